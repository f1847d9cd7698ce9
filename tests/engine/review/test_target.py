"""What a review looks at, found in a real repository."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.harness.repositories import commit, git, repository
from tests.harness.sandbox import SANDBOX
from treadle.engine.errors import InvalidInput
from treadle.engine.project.confined_git import ConfinedGit
from treadle.engine.review.target import ReviewTask, resolve
from treadle.protocol.review import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.protection import Protection


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return repository(tmp_path / "ws")


async def found(target: ReviewTarget, folder: Path) -> ReviewTask:
    async with asyncio.timeout(20):
        return await resolve(target, ConfinedGit(SANDBOX, Boundary(Protection()), str(folder)))


async def refused(target: ReviewTarget, folder: Path) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as raised:
        await found(target, folder)
    return raised.value.path, str(raised.value)


async def test_a_branch_is_compared_from_where_the_current_one_left_it(folder: Path) -> None:
    base = git(folder, "rev-parse", "HEAD")
    git(folder, "checkout", "--quiet", "-b", "work")
    commit(folder, "b.txt", "mine\n")
    git(folder, "checkout", "--quiet", "main")
    commit(folder, "c.txt", "theirs\n")
    git(folder, "checkout", "--quiet", "work")
    task = await found(BaseBranchReviewTarget("main"), folder)

    assert task.hint == "changes against 'main'"
    assert f"`git diff {base}`" in task.prompt


async def test_a_branch_behind_its_remote_is_compared_at_the_remote(
    folder: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "--quiet", str(folder), "clone")
    clone = tmp_path / "clone"
    newer = commit(folder, "b.txt", "newer\n")
    git(clone, "fetch", "--quiet")
    git(clone, "checkout", "--quiet", "-b", "work", "origin/main")
    commit(clone, "c.txt", "mine\n")
    task = await found(BaseBranchReviewTarget("main"), clone)

    assert f"`git diff {newer}`" in task.prompt


async def test_a_commit_is_named_by_its_short_name_and_title(folder: Path) -> None:
    sha = git(folder, "rev-parse", "HEAD")
    short = sha[:7]
    plain = await found(CommitReviewTarget(sha), folder)
    titled = await found(CommitReviewTarget(sha, "Begin"), folder)

    assert plain == ReviewTask(
        f"commit {short}", f"Review what commit {sha} changed. `git show {sha}` shows it."
    )
    assert titled == ReviewTask(
        f"commit {short}: Begin",
        f"Review what commit {sha} changed ('Begin'). `git show {sha}` shows it.",
    )


async def test_instructions_are_passed_on_as_they_are(tmp_path: Path) -> None:
    task = await found(CustomReviewTarget("  Check naming\n"), tmp_path)
    assert task == ReviewTask("Check naming", "Check naming")


async def test_an_empty_target_is_rejected_by_name(folder: Path) -> None:
    """Upstream's words."""
    targets: list[tuple[ReviewTarget, str]] = [
        (CustomReviewTarget("  "), "instructions"),
        (BaseBranchReviewTarget(" "), "branch"),
        (CommitReviewTarget(""), "sha"),
    ]
    for target, field in targets:
        assert await refused(target, folder) == (f"target.{field}", f"{field} must not be empty")


async def test_a_name_that_cannot_be_passed_to_git_is_rejected(folder: Path) -> None:
    targets: list[tuple[ReviewTarget, str]] = [
        (BaseBranchReviewTarget("ma\0in"), "branch"),
        (CommitReviewTarget("12\x0034"), "sha"),
    ]
    for target, field in targets:
        reason = f"{field} must not contain a NUL character"
        assert await refused(target, folder) == (f"target.{field}", reason)


async def test_a_missing_target_is_rejected(folder: Path, tmp_path: Path) -> None:
    """Ours: upstream begins a review of nothing."""
    assert await refused(CommitReviewTarget("1234567deadbeef"), folder) == (
        "target.sha",
        f"no commit '1234567deadbeef' in {folder}",
    )
    assert await refused(BaseBranchReviewTarget("--all"), folder) == (
        "target.branch",
        f"no branch '--all' in {folder}",
    )
    assert await refused(UncommittedChangesReviewTarget(), tmp_path) == (
        "target",
        f"{tmp_path} is not inside a git repository",
    )


async def test_branches_without_a_common_ancestor_are_rejected(folder: Path) -> None:
    git(folder, "checkout", "--quiet", "--orphan", "other")
    commit(folder, "z.txt", "z\n")
    assert await refused(BaseBranchReviewTarget("main"), folder) == (
        "target.branch",
        "'main' and the current branch share no commit",
    )
