"""Resolves the target of a review in the repository, and writes the reviewer's prompt."""

from __future__ import annotations

import re
import shlex
from typing import Final, assert_never

from msgspec import Struct

from treadle.engine.errors import InvalidInput
from treadle.engine.project.confined_git import ConfinedGit, GitUnavailable
from treadle.engine.project.git import is_in_repository
from treadle.protocol.review import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)

_SHORT: Final = 7
_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PATH: Final = "target"


class ReviewTask(Struct, frozen=True):
    """A resolved review: a short description for the user, and the reviewer's prompt."""

    hint: str
    prompt: str


async def resolve(target: ReviewTarget, git: ConfinedGit) -> ReviewTask:
    """Resolve a review target in the repository of a folder.

    If git cannot be confined, the reviewer gets the names as the client sent them.

    Raises:
        InvalidInput: the target does not exist; the message names what is missing.
    """
    match target:
        case CustomReviewTarget():
            text = _require("instructions", target.instructions)
            return ReviewTask(text, text)
        case UncommittedChangesReviewTarget():
            _check_repository(git.cwd)
            return ReviewTask(
                "current changes",
                "Review what has changed in this repository since its last commit: all that is "
                "staged, unstaged or not tracked yet. `git status --short`, `git diff HEAD` and "
                "the untracked files themselves show it.",
            )
        case CommitReviewTarget():
            return await _commit(target, git)
        case BaseBranchReviewTarget():
            return await _branch(_require_name("branch", target.branch), git)
        case _:
            assert_never(target)


async def _commit(target: CommitReviewTarget, git: ConfinedGit) -> ReviewTask:
    given, title = _require_name("sha", target.sha), (target.title or "").strip()
    _check_repository(git.cwd)
    try:
        sha = await _find_commit(given, git)
    except GitUnavailable:
        sha = shlex.quote(given)
    if sha is None:
        raise InvalidInput(f"{_PATH}.sha", f"no commit {given!r} in {git.cwd}")
    hint = f"commit {given[:_SHORT]}"
    return ReviewTask(
        f"{hint}: {title}" if title else hint,
        f"Review what commit {sha} changed{f' ({title!r})' if title else ''}. "
        f"`git show {sha}` shows it.",
    )


async def _branch(branch: str, git: ConfinedGit) -> ReviewTask:
    _check_repository(git.cwd)
    try:
        base = await _find_base(branch, git)
    except GitUnavailable:
        command = f"git merge-base HEAD {shlex.quote(branch)}"
        differs = f"the commit that `{command}` names"
        shows = "`git diff` with that commit shows it"
    else:
        differs = f"commit {base}"
        shows = f"`git diff {base}` shows it"
    return ReviewTask(
        f"changes against '{branch}'",
        f"Review what would be merged into the branch {branch!r}: all that differs from {differs}, "
        f"where the current branch left it. {shows}; files that are not tracked yet belong to it "
        "too.",
    )


async def _find_base(branch: str, git: ConfinedGit) -> str:
    """Find the commit at which the current branch diverged from another one."""
    if await _find_commit(branch, git) is None:
        raise InvalidInput(f"{_PATH}.branch", f"no branch {branch!r} in {git.cwd}")
    if await _find_commit("HEAD", git) is None:
        raise InvalidInput(_PATH, f"there is no commit to review yet in {git.cwd}")
    base = _commit_id(await _ask(git, "merge-base", "HEAD", await _newest(branch, git)))
    if base is None:
        raise InvalidInput(f"{_PATH}.branch", f"{branch!r} and the current branch share no commit")
    return base


async def _newest(branch: str, git: ConfinedGit) -> str:
    """Return the branch, or its upstream branch if that is ahead."""
    upstream = f"{branch}@{{upstream}}"
    if await _find_commit(upstream, git) is None:
        return branch
    ahead = await _ask(git, "rev-list", "--count", f"{branch}..{upstream}")
    return branch if ahead in (None, "0") else upstream


async def _find_commit(name: str, git: ConfinedGit) -> str | None:
    found = await _ask(
        git, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
    )
    return _commit_id(found)


def _commit_id(output: str | None) -> str | None:
    """Accept only a commit id: it becomes part of the prompt."""
    return output if output is not None and _SHA.fullmatch(output) else None


def _require(field: str, value: str) -> str:
    if not value.strip():
        raise InvalidInput(f"{_PATH}.{field}", f"{field} must not be empty")
    return value.strip()


def _require_name(field: str, value: str) -> str:
    """Return a name in a repository; git cannot take a name with a NUL character."""
    if "\0" in value:
        raise InvalidInput(f"{_PATH}.{field}", f"{field} must not contain a NUL character")
    return _require(field, value)


def _check_repository(cwd: str) -> None:
    if not is_in_repository(cwd):
        raise InvalidInput(_PATH, f"{cwd} is not inside a git repository")


async def _ask(git: ConfinedGit, *arguments: str) -> str | None:
    """Return the output of git; `None` if the object does not exist."""
    try:
        return await git.ask(*arguments)
    except TimeoutError:
        raise InvalidInput(_PATH, f"git {arguments[0]} took too long in {git.cwd}") from None
    except OSError as error:
        raise InvalidInput(_PATH, f"cannot run git: {error.strerror}") from error
