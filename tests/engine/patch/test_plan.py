"""Tests of what a patch makes of files, all probed on 0.163.0 unless said otherwise."""

from __future__ import annotations

import errno

import pytest

from treadle.engine.patch.effort import Effort
from treadle.engine.patch.plan import FileEdit, plan, targets
from treadle.engine.patch.syntax import PatchError, parse


def planned(files: dict[str, bytes], *lines: str) -> list[FileEdit]:
    """The plan of a patch against files in the folder /w."""

    def read(path: str, _limit: int, _effort: Effort) -> bytes:
        if path not in files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return files[path]

    text = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    operations = parse(text)
    targets(operations, "/w")
    return plan(operations, "/w", read, Effort())


def updated(old: bytes, *lines: str) -> bytes:
    """What an update makes of one file."""
    [edit] = planned({"/w/a": old}, "*** Update File: a", *lines)
    return edit.new


def refusal(files: dict[str, bytes], *lines: str) -> str:
    with pytest.raises(PatchError) as caught:
        planned(files, *lines)
    return str(caught.value)


FOUR = b"one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize(
    ("old", "lines", "new"),
    [
        (FOUR, ["@@", " one", "-two", "+TWO"], b"one\nTWO\nthree\nfour\n"),
        (FOUR, ["@@ two", "-three", "+3"], b"one\ntwo\n3\nfour\n"),
        (FOUR, ["@@", "-one", "+1", "@@", "-four", "+4"], b"1\ntwo\nthree\n4\n"),
        (FOUR, ["@@", "-four", "+4", "*** End of File"], b"one\ntwo\nthree\n4\n"),
        (FOUR, ["@@", "+five"], b"one\ntwo\nthree\nfour\nfive\n"),
        (FOUR, ["@@", "+5", "@@", "+6"], b"one\ntwo\nthree\nfour\n5\n6\n"),
        (FOUR, ["@@", "-one", "-two", "-three", "-four"], b""),
        (b"", ["@@", "+one"], b"one\n"),
        (b"one\n\ntwo\n", ["@@", " one", "", "-two", "+2"], b"one\n\n2\n"),
        # Nearly the same is enough, and the file's own spelling of what stays is kept.
        (b"one  \ntwo\n", ["@@", " one", "-two", "+2"], b"one  \n2\n"),
        (b"\tone\ntwo\n", ["@@", " one", "-two", "+2"], b"\tone\n2\n"),
        (
            "a \u2013 \u201cb\u201d\u00a0c\ntwo\n".encode(),
            ["@@", ' a - "b" c', "-two"],
            "a \u2013 \u201cb\u201d\u00a0c\n".encode(),
        ),
        # An exact place further down is better than a similar one before it.
        (b"one \nx\none\n", ["@@", "-one", "+1"], b"one \nx\n1\n"),
        # An empty line at the end of a part may be missing in the file.
        (b"one\ntwo\n", ["@@", " one", "-two", "+2", " "], b"one\n2\n"),
        (b"one\ntwo\n", ["@@", "-two", "-", "+2", "+"], b"one\n2\n"),
        (b"one\ntwo\n", ["@@", "+three", ""], b"one\ntwo\nthree\n"),
        (b"one\ntwo\n", ["@@", " ", "@@", "-one"], b"two\n"),
        (b"a \nb\na\nb\n", ["@@ a ", "-b"], b"a \nb\na\n"),
        # The last line gets an end if it had none.
        (b"one\ntwo", ["@@", "-one", "+1"], b"1\ntwo\n"),
        (b"one\ntwo", ["@@", " two", "+three"], b"one\ntwo\nthree\n"),
        # New lines end as the first line of the file does; old ones keep their end.
        (b"a\r\nb\r\nc\r\n", ["@@", " a", "-b", "+B"], b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\nc\n", ["@@", " b", "+X"], b"a\r\nb\nX\r\nc\n"),
        (b"a\nb\r\n", ["@@", " b", "+X"], b"a\nb\r\nX\n"),
        (b"a\r\nb", ["@@", "+z"], b"a\r\nb\r\nz\r\n"),
        # Only a line feed ends a line.
        ("a\x0cb\u2028c\ntwo\n".encode(), ["@@", "-two"], "a\x0cb\u2028c\n".encode()),
        (b"a\0b\ntwo\n", ["@@", "-two"], b"a\0b\n"),
    ],
)
def test_an_update_changes_the_lines_it_names(old: bytes, lines: list[str], new: bytes) -> None:
    assert updated(old, *lines) == new


def test_lines_below_a_context_are_added_there_and_not_at_the_end_of_the_file() -> None:
    """Ours: the reference looks for the context and then appends to the file all the same."""
    assert updated(FOUR, "@@ two", "+2.5") == b"one\ntwo\n2.5\nthree\nfour\n"


def test_nested_contexts_narrow_the_place() -> None:
    """Ours: the reference refuses a second one, though its instructions describe it."""
    old = b"class A\n def f\n  x\nclass B\n def f\n  x\n"

    assert updated(old, "@@ class B", "@@  def f", "-  x", "+  y") == (
        b"class A\n def f\n  x\nclass B\n def f\n  y\n"
    )


def test_each_kind_of_operation_becomes_an_edit_of_an_absolute_path() -> None:
    files = {"/w/a": b"one\n", "/other/b": b"\xff\0"}

    assert planned(
        files,
        "*** Update File: ./d/../a",
        "*** Move to: e/f",
        "-one",
        "+1",
        "*** Delete File: /other/b",
        "*** Add File: ../n",
        "+x",
    ) == [
        FileEdit(
            kind="update", path="/w/a", name="e/f", move_path="/w/e/f", old=b"one\n", new=b"1\n"
        ),
        FileEdit(kind="delete", path="/other/b", name="/other/b", old=b"\xff\0"),
        FileEdit(kind="add", path="/n", name="../n", new=b"x\n"),
    ]


def test_a_move_onto_itself_is_an_update() -> None:
    """Ours: the reference deletes the file."""
    [edit] = planned({"/w/a": b"one\n"}, "*** Update File: a", "*** Move to: ./a", "-one", "+1")

    assert (edit.move_path, edit.new) == (None, b"1\n")


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["*** Update File: a", "-no", "+x"], "Failed to find expected lines in /w/a:\nno"),
        (["*** Update File: a", "@@ no", "-one"], "Failed to find context 'no' in /w/a"),
        (
            ["*** Update File: a", "-two", "*** End of File"],
            "Failed to find expected lines in /w/a:\ntwo",
        ),
        (
            ["*** Update File: a", "-three", "@@", "-one"],
            "Failed to find expected lines in /w/a:\none",
        ),
        (
            ["*** Update File: no", "-one"],
            "Failed to read file to update /w/no: No such file or directory (os error 2)",
        ),
        (["*** Delete File: no"], "Failed to read /w/no: No such file or directory (os error 2)"),
        (
            ["*** Update File: bin", "-one"],
            "Failed to read file to update /w/bin: invalid utf-8 sequence of 1 bytes from index 4",
        ),
        (
            ["*** Update File: cut", "-one"],
            "Failed to read file to update /w/cut: incomplete utf-8 byte sequence from index 4",
        ),
        (
            ["*** Update File: a", "-one", "*** Update File: ./a", "-two"],
            "invalid patch: multiple operations target /w/a",
        ),
        (
            ["*** Delete File: a", "*** Add File: a", "+new"],
            "invalid patch: multiple operations target /w/a",
        ),
        (["*** Add File: n\0ul", "+x"], r"invalid patch: '/w/n\x00ul' contains a NUL byte"),
        (
            ["*** Update File: a", "*** Move to: b", "-one", "*** Add File: b", "+x"],
            "invalid patch: multiple operations target /w/b",
        ),
    ],
)
def test_a_patch_that_does_not_match_the_files_is_rejected_by_name(
    lines: list[str], fault: str
) -> None:
    files = {"/w/a": FOUR, "/w/bin": b"one\n\xff\xfe\0\n", "/w/cut": b"one\n\xe2\x82"}

    assert refusal(files, *lines) == fault
