"""The difference of a working tree from the closest commit that a remote has."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.engine.patch.files import Blob, Changed
from treadle.engine.project.confined_git import ConfinedGit
from treadle.engine.project.diffs import TurnDiff
from treadle.support.concurrency.workers import Workers
from treadle.support.files.reading import open_regular, read_up_to

MAX_DIFF: Final = 16 * 1024 * 1024
"""The maximum size of the difference of the tracked files."""

MAX_UNTRACKED: Final = 1000
"""The maximum number of untracked files."""

_MAX_NAMES: Final = 4 * 1024 * 1024
_MAX_BOUNDARIES: Final = 20
_MAX_FILE: Final = 16 * 1024 * 1024


class RemoteDiff(Struct, frozen=True):
    """The commit, and what the working tree changes of it."""

    commit: str
    text: str


class DiffTooLarge(Exception):
    """The difference exceeds a limit."""


async def diff_to_remote(git: ConfinedGit, workers: Workers) -> RemoteDiff | None:
    """Compare a repository with its remote; `None` outside of one, or if no commit is shared.

    Raises:
        DiffTooLarge: the difference exceeds `MAX_DIFF` or `MAX_UNTRACKED`.
        GitUnavailable: no sandbox works.
        OSError: git or the folder does not exist.
        TimeoutError: git takes too long.
    """
    top = await git.ask("rev-parse", "--show-toplevel")
    commit = await _closest(git) if top else None
    if top is None or commit is None:
        return None
    plain = ("--no-ext-diff", "--no-textconv", "--no-color")
    tracked = await git.read("diff", *plain, commit, "--", limit=MAX_DIFF + 1)
    listed = await git.read(
        "ls-files", "--others", "--exclude-standard", "--full-name", "-z", ":/", limit=_MAX_NAMES
    )
    if tracked is None or listed is None:
        return None
    names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
    if len(tracked) > MAX_DIFF:
        raise DiffTooLarge(f"the difference has more than {MAX_DIFF} bytes")
    if len(names) > MAX_UNTRACKED or len(listed) >= _MAX_NAMES:
        raise DiffTooLarge(f"there are more than {MAX_UNTRACKED} untracked files")
    new = await workers.run(_new_files, Path(top), names)
    return RemoteDiff(commit, tracked.decode("utf-8", "replace") + new)


async def _closest(git: ConfinedGit) -> str | None:
    """Return the commit of a remote to which `HEAD` adds the fewest commits."""
    arguments = ("rev-list", "--boundary", "HEAD", "--not", "--remotes")
    shown = await git.read(*arguments, limit=_MAX_NAMES)
    if shown is None:
        return None
    lines = shown.decode("ascii", "replace").split()
    bounds = [line[1:] for line in lines if line.startswith("-")][:_MAX_BOUNDARIES]
    if not lines:
        # The remote has `HEAD` itself, unless there is neither.
        return await git.ask("rev-parse", "--verify", "HEAD^{commit}")
    distances: dict[str, int] = {}
    for bound in bounds:
        count = await git.ask("rev-list", "--count", f"{bound}..HEAD")
        distances[bound] = int(count or 0)
    return min(distances, key=lambda bound: distances[bound], default=None)


def _new_files(top: Path, names: list[str]) -> str:
    diff = TurnDiff()
    for name in names:
        blob = _blob(top / name)
        if blob is not None:
            diff.add([Changed(str(top / name), None, blob)])
    return diff.unified(str(top))


def _blob(path: Path) -> Blob | None:
    """Return a file as git stores it; `None` for what git does not store."""
    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            return Blob(os.fsencode(path.readlink()), 0o120000)
        mode = 0o100755 if state.st_mode & stat.S_IXUSR else 0o100644
        descriptor = open_regular(path, follow_symlinks=False)
        try:
            data = read_up_to(descriptor, _MAX_FILE + 1)
        finally:
            os.close(descriptor)
    except OSError:
        return None  # removed in the meantime, unreadable, or a special file
    if len(data) > _MAX_FILE:
        raise DiffTooLarge(f"the untracked file {path.name!r} has more than {_MAX_FILE} bytes")
    return Blob(data, mode)
