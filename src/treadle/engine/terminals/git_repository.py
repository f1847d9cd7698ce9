"""The git repository that a command uses: whose settings it has, and which kinds git accepts.

The settings of a repository name programs that git starts (`core.fsmonitor`). A folder without
`.git` is a repository too if it contains `HEAD`, `objects` and `refs`: any command can create one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.sandbox.paths import parents, real
from treadle.shell.scripts import program_name

if TYPE_CHECKING:
    from treadle.engine.project.confined_git import ConfinedGit
    from treadle.sandbox.boundary import Boundary
    from treadle.sandbox.policy import Confinement

_ELSEWHERE: Final = ("-C", "--git-dir", "--work-tree", "--exec-path", "--bare")
"""Options before the sub-command of git that select another repository."""
_LINK: Final = b"160000 "
"""The mode of a repository in the index of another one."""
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_REPOSITORIES: Final = 16
_MAX_DIGITS: Final = 6


def uses_git(commands: Sequence[Sequence[str]]) -> bool:
    """Whether one of these commands is git."""
    return any(program_name(command[0]) == "git" for command in commands if command)


def stays_in_folder(command: Sequence[str]) -> bool:
    """Whether a git command uses the repository of the folder that it runs in."""
    for word in command[1:]:
        if not word.startswith("-"):
            break
        if word.startswith(_ELSEWHERE):
            return False
    return True


async def is_planted(git: ConfinedGit, boundary: Boundary, confinement: Confinement) -> bool:
    """Whether a command may have written what git runs in the repository of a folder.

    That is what its settings and the files that they include say, its hooks, and the repositories
    inside it, which git enters. Git itself lists all of these; if it cannot, they count as planted.

    This ignores bare repositories, which `without_bare_repositories` makes git refuse.
    """
    from treadle.engine.project.confined_git import GitUnavailable

    try:
        return await _Search(git, boundary, confinement).finds_planted(git.cwd)
    except (GitUnavailable, OSError, TimeoutError):
        return True


class _Search:
    """The search for what a command may have written, in a repository and those inside it."""

    def __init__(self, git: ConfinedGit, boundary: Boundary, confinement: Confinement) -> None:
        self._git = git
        self._boundary = boundary
        self._confinement = confinement
        self._left = _MOST_REPOSITORIES

    async def finds_planted(self, cwd: str) -> bool:
        top = _repository_of(cwd)
        if top is None:
            return False
        return not self._is_own(_entry(top)) or await self._has_planted(top)

    async def _has_planted(self, top: str) -> bool:
        """Whether something was planted in a repository, whose `.git` was not."""
        self._left -= 1
        if self._left < 0:
            return True
        git = self._git.in_folder(top)
        listing = ("config", "--list", "--show-origin", "--name-only", "-z")
        settings = await git.read(*listing, limit=_MOST_BYTES)
        hooks = await git.ask("rev-parse", "--git-path", "hooks")
        entries = await git.read("ls-files", "--stage", "-z", limit=_MOST_BYTES)
        if settings is None or hooks is None or entries is None:
            return True
        if max(len(settings), len(entries)) >= _MOST_BYTES:
            return True
        places = [os.path.join(top, name) for name in (*_origins(settings), hooks)]  # noqa: PTH118
        if not all(map(self._is_own, [*places, *_listed(places[-1])])):
            return True
        # Git enters these to learn their state, and runs what their settings name.
        inner = [str(Path(top, link)) for link in _links(entries)]
        for folder in filter(_is_repository, inner):
            if await self.finds_planted(folder):
                return True
        return False

    def _is_own(self, path: str) -> bool:
        """Whether no command can have written a file or folder; a missing one has no effect."""
        if not os.path.lexists(path):
            return True
        above, has_entry, _ = path.partition("/.git/")
        if not has_entry:
            above = path.removesuffix("/.git")
        # Entries directly in a writable folder are not writable if they are named `.git`.
        top = above if above != path else None
        return self._boundary.is_protected(path, self._confinement, top=top)


def _repository_of(cwd: str) -> str | None:
    """Return the folder with the repository that contains a folder."""
    folder = real(cwd)
    return next(filter(_is_repository, (folder, *parents(folder))), None)


def _is_repository(folder: str) -> bool:
    """Whether git may find a repository in a folder; in an empty `.git` it finds none.

    While a command runs, its sandbox holds such an empty folder in each writable one.
    """
    entry = _entry(folder)
    try:
        if not stat.S_ISDIR(os.lstat(entry).st_mode):
            return True
        with os.scandir(entry) as entries:
            return next(entries, None) is not None
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _entry(folder: str) -> str:
    return f"{folder.rstrip('/')}/.git"


def _origins(listing: bytes) -> Iterator[str]:
    """Yield the files of a listing of settings, each once: they alternate with the names."""
    parts = listing.split(b"\0")[::2]
    for part in dict.fromkeys(parts):
        if part.startswith(b"file:"):
            yield os.fsdecode(part.removeprefix(b"file:"))


def _listed(folder: str) -> list[str]:
    """Return the hooks in a folder, which may be missing."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _links(entries: bytes) -> Iterator[str]:
    """Yield the paths in an index that are repositories."""
    for entry in entries.split(b"\0"):
        if entry.startswith(_LINK):
            yield os.fsdecode(entry.partition(b"\t")[2])


def without_bare_repositories(env: Mapping[str, str]) -> dict[str, str]:
    """The variables by which git accepts a bare repository only where `--git-dir` names it.

    The settings of the user's own variables remain.
    """
    count = env.get("GIT_CONFIG_COUNT", "")
    at = int(count) if count.isdecimal() and count.isascii() and len(count) < _MAX_DIGITS else 0
    return {
        "GIT_CONFIG_COUNT": str(at + 1),
        f"GIT_CONFIG_KEY_{at}": "safe.bareRepository",
        f"GIT_CONFIG_VALUE_{at}": "explicit",
    }
