"""What is kept of an output, and what the model reads of it."""

from __future__ import annotations

import pytest

from treadle.engine.tools.output import OutputBuffer, decode, tokens, truncate


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_both_ends_are_kept_however_the_bytes_come(size: int) -> None:
    data = b"".join(b"%d\n" % i for i in range(1000))
    buffer = OutputBuffer(1000)
    for start in range(0, len(data), size):
        buffer.add(data[start : start + size])

    assert (buffer.total, buffer.omitted) == (len(data), len(data) - 1000)
    gap = f"\n... {len(data) - 1000} bytes omitted ...\n"
    assert buffer.text() == data[:500].decode() + gap + data[-500:].decode()


def test_what_fits_is_kept_whole() -> None:
    buffer = OutputBuffer(10)
    buffer.add(b"12345")
    buffer.add(b"67890")
    assert (buffer.text(), buffer.omitted) == ("1234567890", 0)


def test_a_gap_cuts_no_character_in_two() -> None:
    buffer = OutputBuffer(10)
    buffer.add("ééééééé".encode())
    head, _, tail = buffer.text().partition("\n... 4 bytes omitted ...\n")
    assert (head, tail) == ("éé", "éé")


def test_truncation_cuts_no_character_in_two() -> None:
    assert truncate("é" * 100, 3) == "ééé…47 tokens truncated…ééé"
    assert truncate("€" * 10, 2) == "€…6 tokens truncated…€"


@pytest.mark.parametrize(("size", "count"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_a_token_is_about_four_bytes(size: int, count: int) -> None:
    assert tokens(size) == count


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("é".encode(), "é"),
        (b"\xffabc", "ÿabc"),
        ("é".encode() + b"\xff", "é\ufffd"),
        ("\ufffd".encode(), "\ufffd"),
        (b"", ""),
    ],
)
def test_bytes_are_read_as_utf_8_unless_they_cannot_be(data: bytes, text: str) -> None:
    assert decode(data) == text
