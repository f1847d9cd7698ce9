"""Tests of the patch format."""

from __future__ import annotations

import pytest

from treadle.engine.patch.syntax import AddFile, DeleteFile, Hunk, PatchError, UpdateFile, parse

HEADER = (
    "is not a valid hunk header. Valid hunk headers: '*** Add File: {path}', "
    "'*** Delete File: {path}', '*** Update File: {path}'"
)
EXPECTED = "Expected update hunk to start with a @@ context marker"
UNEXPECTED = "Unexpected line found in update hunk"
MARKS = "Every line should start with ' ' (context line), '+' (added line), or '-' (removed line)"


def wrapped(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def test_a_patch_is_read_operation_by_operation() -> None:
    text = wrapped(
        "*** Add File: new file.txt",
        "+one",
        "+",
        "*** Delete File: old.txt",
        "*** Update File: a.txt",
        "*** Move to: b.txt",
        "@@ class A",
        "@@  def f",
        " stays",
        "",
        "-goes",
        "+comes",
        "@@",
        "-last",
        "*** End of File",
    )
    first = [(" ", "stays"), (" ", ""), ("-", "goes"), ("+", "comes")]
    hunks = [Hunk(["class A", " def f"], first), Hunk([], [("-", "last")], is_at_end=True)]

    assert parse(text) == [
        AddFile("new file.txt", ["one", ""]),
        DeleteFile("old.txt"),
        UpdateFile("a.txt", hunks, "b.txt"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n\n *** Begin Patch\n*** Delete File: a\n*** End Patch \n", id="blanks"),
        pytest.param("*** Begin Patch\n  *** Delete File: a  \n*** End Patch", id="indented"),
        pytest.param("*** Begin Patch\r\n*** Delete File: a\r\n*** End Patch\r\n", id="crlf"),
        pytest.param(
            "<<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF", id="shell"
        ),
        pytest.param("*** Begin Patch\n*** Delete File: a\n*** End Patch\n*** End Patch", id="two"),
    ],
)
def test_text_around_a_patch_is_ignored(text: str) -> None:
    assert parse(text) == [DeleteFile("a")]


def test_the_first_part_of_an_update_needs_no_marker() -> None:
    text = wrapped("*** Update File: a", " one", "-two")

    assert parse(text) == [UpdateFile("a", [Hunk([], [(" ", "one"), ("-", "two")])])]


def test_a_patch_without_operations_is_valid() -> None:
    assert parse("*** Begin Patch\n*** End Patch") == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "invalid patch: The last line of the patch must be '*** End Patch'"),
        ("foo", "invalid patch: The first line of the patch must be '*** Begin Patch'"),
        (
            "```\n*** Begin Patch\n*** End Patch\n```",
            "invalid patch: The first line of the patch must be '*** Begin Patch'",
        ),
        ("*** Begin Patch", "invalid patch: The last line of the patch must be '*** End Patch'"),
        (
            wrapped("  foo  "),
            f"invalid hunk at line 2, 'foo' {HEADER}",
        ),
        (
            wrapped("*** Add File: "),
            f"invalid hunk at line 2, '*** Add File:' {HEADER}",
        ),
        (
            wrapped("*** Add File: a", "+x", "y"),
            f"invalid hunk at line 4, 'y' {HEADER}",
        ),
        (
            wrapped("*** Update File: a"),
            "invalid hunk at line 2, Update file hunk for path 'a' is empty",
        ),
        (
            wrapped("*** Update File: a", "*** Move to: b"),
            "invalid hunk at line 2, Update file hunk for path 'a' is empty",
        ),
        (
            wrapped("*** Update File: a", "@@"),
            "invalid hunk at line 4, Update hunk does not contain any lines",
        ),
        (
            wrapped("*** Update File: a", "xtwo"),
            f"invalid hunk at line 3, {UNEXPECTED}: 'xtwo'. {MARKS}",
        ),
        (
            wrapped("*** Update File: a", "@@", "*** Delete File: b"),
            f"invalid hunk at line 4, {UNEXPECTED}: '*** Delete File: b'. {MARKS}",
        ),
        (
            wrapped("*** Update File: a", "@@", " one", "xtwo"),
            f"invalid hunk at line 5, {EXPECTED}, got: 'xtwo'",
        ),
    ],
)
def test_an_error_has_the_same_text_as_in_the_reference(text: str, fault: str) -> None:
    """Upstream: probed on 0.163.0."""
    with pytest.raises(PatchError) as caught:
        parse(text)

    assert str(caught.value) == fault
