"""Text that is safe to print to a terminal."""

from __future__ import annotations

import unicodedata

import pytest

from treadle.support.text.terminal import (
    CONTINUED,
    LINE,
    block,
    has_escapes,
    one_line,
    prose,
    shortened,
)

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -l 'ä€😀漢'", "ls -l 'ä€😀漢'"),
        ("x\x1b[2K\r  ls", "x\\x1b[2K\\r  ls"),
        ("a\x00\x07\x08\x7f\x9b2Jb", "a\\x00\\x07\\x08\\x7f\\x9b2Jb"),
        ("a\u202eb\u2066c\u2069", "a\\u202eb\\u2066c\\u2069"),
        ("a\u200bb\u200dc\ufeffd\u00ade", "a\\u200bb\\u200dc\\ufeffd\\xade"),
        ("a\u2028b\u2029c\x85", "a\\u2028b\\u2029c\\x85"),
        ("a\ud800b\udcff", "a\\ud800b\\udcff"),
        ("a\U000e0041b\u3164c\u2800", "a\\U000e0041b\\u3164c\\u2800"),
        ("a\u00a0b\ufe0f", "a\\xa0b\\ufe0f"),
        ("a\nb\tc", "a\\nb\\tc"),
    ],
)
def test_only_characters_that_a_terminal_shows_as_themselves_are_printed(
    text: str, shown: str
) -> None:
    assert one_line(text) == shown


def test_no_hidden_character_remains_in_either_form() -> None:
    ranges = (range(0x3200), range(0xD000, 0x11000), range(0xE0000, 0xE0200))
    every = "".join(chr(code) for codes in ranges for code in codes)
    for form, kept in ((one_line, set()), (prose, set("\n\t"))):
        left = {char for char in form(every) if unicodedata.category(char) in HIDDEN}
        assert left == kept


def test_prose_keeps_its_lines_and_spaces() -> None:
    assert prose("a\r\n\tb\u00a0c\x1b[31m\r") == "a\n\tb\u00a0c\\x1b[31m\\r"


def test_escapes_other_than_line_breaks_are_detected() -> None:
    assert not has_escapes("a\nb")
    assert has_escapes("a\tb")


def test_a_long_text_keeps_both_ends_and_counts_the_rest() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("a" * 60 + "b" * 100 + "c" * 30, 90) == (
        "a" * 60 + " [... 100 characters left out ...] " + "c" * 30
    )


@pytest.mark.parametrize("text", ["x" * 500, "漢" * 300, "a\n\n\nRun this?", "", "\x1b" * 99])
def test_every_row_of_a_block_has_a_prefix_and_fits_the_terminal(text: str) -> None:
    rows = block(text, 40)
    columns = [
        sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in row) for row in rows
    ]
    assert max(columns) < 40
    assert all(row.startswith((LINE, CONTINUED)) for row in rows)
    lines = "".join(row if row.startswith(LINE) else row[4:] for row in rows).split(LINE)[1:]
    assert lines == [one_line(line) for line in text.split("\n")]
