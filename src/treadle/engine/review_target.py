"""What a review looks at: checked against the repository, and put into words for the reviewer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from treadle.engine.errors import InvalidInput
from treadle.engine.git import read_git_info
from treadle.protocol.review import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)

GIT_SECONDS: Final = 10.0
_SHORT: Final = 7
_PATH: Final = "target"
# What a caller has set up for another repository must not change which one is read here.
_KEPT: Final = ("PATH", "HOME", "TMPDIR")
_SYSTEM: Final = ("/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin")


@dataclass(frozen=True, slots=True)
class ReviewTask:
    """A review that can begin: a few words for the user, all of them for the reviewer."""

    hint: str
    prompt: str


async def resolve(target: ReviewTarget, cwd: str) -> ReviewTask:
    """Find what is to be reviewed in the repository of a folder.

    Raises:
        InvalidInput: there is no such thing; the message says what is missing.
    """
    match target:
        case CustomReviewTarget():
            text = _given("instructions", target.instructions)
            return ReviewTask(text, text)
        case UncommittedChangesReviewTarget():
            _check_repository(cwd)
            return ReviewTask(
                "current changes",
                "Review what has changed in this repository since its last commit: all that is "
                "staged, unstaged or not tracked yet. `git status --short`, `git diff HEAD` and "
                "the untracked files themselves show it.",
            )
        case CommitReviewTarget():
            return await _commit(target, cwd)
        case BaseBranchReviewTarget():
            return await _branch(_named("branch", target.branch), cwd)
        case _:
            assert_never(target)


async def _commit(target: CommitReviewTarget, cwd: str) -> ReviewTask:
    given, title = _named("sha", target.sha), (target.title or "").strip()
    _check_repository(cwd)
    sha = await _find_commit(given, cwd)
    if sha is None:
        raise InvalidInput(f"{_PATH}.sha", f"no commit {given!r} in {cwd}")
    hint = f"commit {given[:_SHORT]}"
    return ReviewTask(
        f"{hint}: {title}" if title else hint,
        f"Review what commit {sha} changed{f' ({title!r})' if title else ''}. "
        f"`git show {sha}` shows it.",
    )


async def _branch(branch: str, cwd: str) -> ReviewTask:
    _check_repository(cwd)
    if await _find_commit(branch, cwd) is None:
        raise InvalidInput(f"{_PATH}.branch", f"no branch {branch!r} in {cwd}")
    if await _find_commit("HEAD", cwd) is None:
        raise InvalidInput(_PATH, f"there is no commit to review yet in {cwd}")
    newest = await _newest(branch, cwd)
    base = await _git(cwd, "merge-base", "HEAD", newest)
    if base is None:
        raise InvalidInput(f"{_PATH}.branch", f"{branch!r} and the current branch share no commit")
    return ReviewTask(
        f"changes against '{branch}'",
        f"Review what would be merged into the branch {branch!r}: all that differs from commit "
        f"{base}, where the current branch left it. `git diff {base}` shows it; files that are "
        "not tracked yet belong to it too.",
    )


async def _newest(branch: str, cwd: str) -> str:
    """The branch, or what it follows on a server if that has gone further."""
    upstream = f"{branch}@{{upstream}}"
    if await _find_commit(upstream, cwd) is None:
        return branch
    ahead = await _git(cwd, "rev-list", "--count", f"{branch}..{upstream}")
    return branch if ahead in (None, "0") else upstream


async def _find_commit(name: str, cwd: str) -> str | None:
    found = await _git(
        cwd, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
    )
    return found or None


def _given(field: str, value: str) -> str:
    if not value.strip():
        raise InvalidInput(f"{_PATH}.{field}", f"{field} must not be empty")
    return value.strip()


def _named(field: str, value: str) -> str:
    """The name of something in a repository; no such name can be passed on with a NUL in it."""
    if "\0" in value:
        raise InvalidInput(f"{_PATH}.{field}", f"{field} must not contain a NUL character")
    return _given(field, value)


def _check_repository(cwd: str) -> None:
    if read_git_info(cwd) is None:
        raise InvalidInput(_PATH, f"{cwd} is not inside a git repository")


async def _git(cwd: str, *arguments: str) -> str | None:
    """What git says, `None` if it knows nothing of the kind.

    Only commands that read: none of them runs a hook or a program that the repository names.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *arguments,
            cwd=cwd,
            env=_environment(os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise InvalidInput(_PATH, f"git cannot be run: {error.strerror}") from error
    try:
        async with asyncio.timeout(GIT_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise InvalidInput(_PATH, f"git {arguments[0]} took too long in {cwd}") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("utf-8", "replace").strip() if process.returncode == 0 else None


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environ[name] for name in _KEPT if name in environ}
    if "PATH" in kept:
        # The system's own git comes before one that a command may have put there.
        folders = [folder for folder in kept["PATH"].split(os.pathsep) if folder.startswith("/")]
        folders.sort(key=lambda folder: folder not in _SYSTEM)
        kept["PATH"] = os.pathsep.join(folders)
    return {**kept, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
