"""Tests of a patch as blocking work: its limits, and what a caller that leaves stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.engine.patch.compare import changes
from treadle.engine.patch.effort import MAX_LINES, MAX_PATCH_BYTES
from treadle.engine.patch.files import EditFailed
from treadle.engine.patch.syntax import PatchError
from treadle.engine.patch.work import Applied, Draft, apply, draft
from treadle.engine.project.diffs import MAX_TOTAL_SHOWN, TurnDiff
from treadle.sandbox.policy import UNRESTRICTED
from treadle.support.concurrency.workers import Workers


async def drafted(folder: Path, *lines: str) -> Draft:
    text = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    return await draft(Workers("test", 1), text, str(folder), UNRESTRICTED.may_read)


async def applied(patch: Draft, folder: Path) -> Applied | PatchError | EditFailed:
    return await apply(Workers("test", 1), patch, TurnDiff(), str(folder))


@pytest.mark.parametrize("text", ["+" + "x" * MAX_PATCH_BYTES, "+\n" * (MAX_LINES + 1)])
async def test_a_patch_that_is_too_long_is_rejected(tmp_path: Path, text: str) -> None:
    with pytest.raises(PatchError, match=f"larger than {MAX_PATCH_BYTES} characters"):
        await drafted(tmp_path, "*** Add File: x", text)


async def test_a_file_with_too_many_lines_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n" * (MAX_LINES + 1))

    with pytest.raises(PatchError, match=f"has more than {MAX_LINES} lines"):
        await drafted(tmp_path, "*** Update File: a", "-x")


async def test_a_file_that_changed_after_the_patch_was_planned_is_planned_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    patch = await drafted(tmp_path, "*** Update File: a", "-two", "+2")
    (tmp_path / "a").write_text("zero\none\ntwo\n")

    outcome = await applied(patch, tmp_path)

    assert isinstance(outcome, Applied)
    assert (tmp_path / "a").read_text() == "zero\none\n2\n"
    assert outcome.changes[0].diff == "@@ -2,2 +2,2 @@\n one\n-two\n+2\n"


async def test_a_file_that_no_longer_matches_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    patch = await drafted(tmp_path, "*** Update File: a", "-one", "+1", "*** Add File: b", "+b")
    (tmp_path / "a").write_text("other\n")

    outcome = await applied(patch, tmp_path)

    assert str(outcome) == f"Failed to find expected lines in {tmp_path}/a:\none"
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "a").read_text() == "other\n"


async def test_the_diffs_sent_to_clients_are_bounded(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(12)]
    for name in names:
        (tmp_path / name).write_text("x\n" * 400_000)
    patch = await drafted(tmp_path, *(f"*** Delete File: {name}" for name in names))

    outcome = await applied(patch, tmp_path)

    assert isinstance(outcome, Applied)
    assert outcome.diff is not None
    assert sum(len(change.diff) for change in patch.changes) <= MAX_TOTAL_SHOWN
    assert len(outcome.diff) <= MAX_TOTAL_SHOWN
    assert outcome.diff.count("diff --git") == len(names)


@pytest.mark.parametrize("budget", [0, 100, 10_000])
def test_texts_that_take_too_long_to_compare_get_a_coarser_diff(budget: int) -> None:
    old = [f"{number % 7}\n" for number in range(3000)]
    new = [f"{number % 5}\n" for number in range(3000)]
    made: list[str] = []
    place = 0
    for change in changes(old, new, max_comparisons=budget):
        made += old[place : change.old_start] + new[change.new_start : change.new_end]
        place = change.old_end

    assert made + old[place:] == new
