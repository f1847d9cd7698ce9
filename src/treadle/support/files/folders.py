"""Removes folders of any depth.

The standard library takes a descriptor for each level, and before Python 3.13 a call as well: a
deep folder used up what all clients share.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(slots=True)
class _Level:
    """A folder on the way down: its name in the one above, what it is, and what it holds yet."""

    name: str
    found: os.stat_result
    folders: list[str]


def remove_folder(path: Path) -> None:
    """Remove a folder and all it holds, through no link.

    Raises:
        OSError: something cannot be removed, or the folder was moved meanwhile.
    """
    here = os.open(path, _FOLDER)
    try:
        levels = [_emptied(path.name, here)]
        while len(levels) > 1 or levels[0].folders:
            here = _down(levels, here) if levels[-1].folders else _up(levels, here)
    finally:
        os.close(here)
    path.rmdir()


def _down(levels: list[_Level], here: int) -> int:
    """Go into the next folder; returns the descriptor that takes the place of the given one."""
    name = levels[-1].folders.pop()
    try:
        below = os.open(name, _FOLDER, dir_fd=here)
    except FileNotFoundError:
        return here
    try:
        levels.append(_emptied(name, below))
    except BaseException:
        os.close(below)
        raise
    os.close(here)
    return below


def _up(levels: list[_Level], here: int) -> int:
    """Leave a folder that is empty now and remove it; returns the descriptor of the one above."""
    name = levels.pop().name
    above = os.open("..", _FOLDER, dir_fd=here)
    try:
        _check_same(above, levels[-1])
        with suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=above)
    except BaseException:
        os.close(above)
        raise
    os.close(here)
    return above


def _check_same(folder: int, level: _Level) -> None:
    if not os.path.samestat(os.fstat(folder), level.found):
        raise OSError(errno.EBUSY, "the folder was moved while it was removed", level.name)


def _emptied(name: str, folder: int) -> _Level:
    """Remove all but the folders in a folder."""
    folders: list[str] = []
    with os.scandir(folder) as entries:
        held = list(entries)
    for entry in held:
        with suppress(FileNotFoundError):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return _Level(name, os.fstat(folder), folders)
