"""The git repository that a command uses: whose settings it has, and which kinds git accepts.

The settings of a repository name programs that git starts (`core.fsmonitor`). A folder without
`.git` is a repository too if it contains `HEAD`, `objects` and `refs`: any command can create one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.sandbox.paths import real
from treadle.shell.scripts import program_name
from treadle.support.files.reading import read_regular

if TYPE_CHECKING:
    from treadle.sandbox.boundary import Boundary
    from treadle.sandbox.policy import Confinement

_ELSEWHERE: Final = ("-C", "--git-dir", "--work-tree", "--exec-path", "--bare")
"""Options before the sub-command of git that select another repository."""
_MAX_FILE: Final = 4096


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


def is_planted(boundary: Boundary, confinement: Confinement, cwd: str) -> bool:
    """Whether a command may have written the settings of the repository of a folder.

    This ignores bare repositories, which `without_bare_repositories` makes git refuse.
    """
    folder = Path(real(cwd))
    for place in (folder, *folder.parents):
        entry = place / ".git"
        if os.path.lexists(entry):
            return not all(
                boundary.is_protected(str(path), confinement, top=str(place))
                for path in _settings_of(entry)
            )
    return False


def may_become_planted(boundary: Boundary, confinement: Confinement, cwd: str) -> bool:
    """Whether a command can determine the repository of a folder, now or before git starts."""
    folder = Path(real(cwd))
    for place in (folder, *folder.parents):
        entry = place / ".git"
        if not boundary.is_protected(str(entry), confinement, top=str(place)):
            return True
        if os.path.lexists(entry):
            return is_planted(boundary, confinement, cwd)
    return False


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


_MAX_DIGITS: Final = 6


def _settings_of(entry: Path) -> list[Path]:
    """The files that decide about the settings of a repository, from its `.git`."""
    if entry.is_dir():
        return [entry, entry / "config", *_common(entry)]
    # A worktree or a submodule: the file names the folder.
    named = _first_line(entry).removeprefix("gitdir:").strip()
    target = entry.parent / named
    return [entry, target / "config", target / "commondir", *_common(target)]


def _common(folder: Path) -> list[Path]:
    """The settings that a worktree shares with its repository."""
    place = folder / "commondir"
    return [place, folder / _first_line(place) / "config"] if os.path.lexists(place) else []


def _first_line(path: Path) -> str:
    try:
        # A command can put a pipe there, and opening one would wait for its other end.
        text = read_regular(path, _MAX_FILE)
    except OSError:
        return ""
    return text.decode("utf-8", "replace").partition("\n")[0].strip()
