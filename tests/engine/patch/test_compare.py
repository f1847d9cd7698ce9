"""Tests of the line-by-line difference."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from treadle.engine.patch.compare import changes, unified


def applied(old: list[str], new: list[str]) -> list[str]:
    """The old lines with each change made."""
    made: list[str] = []
    place = 0
    for change in changes(old, new):
        made += old[place : change.old_start] + new[change.new_start : change.new_end]
        place = change.old_end
    return made + old[place:]


def size(old: list[str], new: list[str]) -> int:
    found = changes(old, new)
    return sum(c.old_end - c.old_start + c.new_end - c.new_start for c in found)


def shortest(old: list[str], new: list[str]) -> int:
    """How many lines must at least come or go, worked out the slow way."""
    row = [0] * (len(new) + 1)
    for line in old:
        above, row = row, [0]
        for at, other in enumerate(new):
            row.append(above[at] + 1 if line == other else max(above[at + 1], row[at]))
    return len(old) + len(new) - 2 * row[-1]


@pytest.mark.parametrize("seed", range(5))
def test_small_differences_are_the_smallest_possible(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    for _ in range(200):
        old, new = ([draw.choice("abcd") for _ in range(draw.randrange(12))] for _ in range(2))

        assert (applied(old, new), size(old, new)) == (new, shortest(old, new))


@pytest.mark.parametrize("kinds", [3, 100_000])
def test_large_differences_lead_to_the_new_text(kinds: int) -> None:
    draw = random.Random(kinds)  # noqa: S311 - test data
    old = [f"{draw.randrange(kinds)}\n" for _ in range(3000)]
    new = [line for line in old if draw.random() > 0.2]
    for _ in range(600):
        new.insert(draw.randrange(len(new)), f"new {draw.randrange(kinds)}\n")

    assert applied(old, new) == new


@pytest.mark.parametrize("seed", range(3))
def test_git_applies_the_hunks(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    lines = [f"{draw.randrange(30)}\n" for _ in range(300)]
    old = "".join(lines) + draw.choice(["", "end"])
    for _ in range(12):
        lines[draw.randrange(len(lines))] = draw.choice(["", "new\n", "two\nlines\n"])
    new = "".join(lines) + draw.choice(["", "other end"])
    (tmp_path / "a").write_text(old, "utf-8")
    diff = f"--- a/a\n+++ b/a\n{unified(old, new, context=3)}"

    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff.encode(), check=True)

    assert (tmp_path / "a").read_text("utf-8") == new


@pytest.mark.parametrize(
    ("old", "new", "context", "diff"),
    [
        ("a\n", "a\n", 3, ""),
        ("", "a\nb\n", 3, "@@ -0,0 +1,2 @@\n+a\n+b\n"),
        ("a\nb\n", "", 3, "@@ -1,2 +0,0 @@\n-a\n-b\n"),
        ("a\nb\nc\nd\n", "a\nB\nc\nd\n", 1, "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"),
        (
            "a\nb",
            "A\nb\n",
            1,
            "@@ -1,2 +1,2 @@\n-a\n-b\n\\ No newline at end of file\n+A\n+b\n",
        ),
        # Two lines between two changes are context of both; three are not.
        ("1\na\nb\n2\n", "x\na\nb\ny\n", 1, "@@ -1,4 +1,4 @@\n-1\n+x\n a\n b\n-2\n+y\n"),
        (
            "1\na\nb\nc\n2\n",
            "x\na\nb\nc\ny\n",
            1,
            "@@ -1,2 +1,2 @@\n-1\n+x\n a\n@@ -4,2 +4,2 @@\n c\n-2\n+y\n",
        ),
    ],
)
def test_hunks_have_the_format_of_the_reference(
    old: str, new: str, context: int, diff: str
) -> None:
    assert unified(old, new, context=context) == diff
