"""Removes folders of any depth.

The standard library takes a descriptor for each level, and before Python 3.13 a recursive call: a
deep folder used up resources that all clients share.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class _Level(Struct):
    """A folder on the way down: its name in its parent, its identity, and its remaining folders."""

    name: str
    status: os.stat_result
    folders: list[str]


def remove_folder(path: Path) -> None:
    """Remove a folder and its content, without following links.

    Raises:
        OSError: something cannot be removed, or the folder was moved meanwhile.
    """
    here = os.open(path, _FOLDER)
    try:
        levels = [_empty(path.name, here)]
        while len(levels) > 1 or levels[0].folders:
            here = _down(levels, here) if levels[-1].folders else _up(levels, here)
    finally:
        os.close(here)
    path.rmdir()


def _down(levels: list[_Level], here: int) -> int:
    """Enter the next folder; return the descriptor that replaces the given one."""
    name = levels[-1].folders.pop()
    try:
        below = os.open(name, _FOLDER, dir_fd=here)
    except FileNotFoundError:
        return here
    try:
        levels.append(_empty(name, below))
    except BaseException:
        os.close(below)
        raise
    os.close(here)
    return below


def _up(levels: list[_Level], here: int) -> int:
    """Leave an emptied folder and remove it; return the descriptor of its parent."""
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
    if not os.path.samestat(os.fstat(folder), level.status):
        raise OSError(errno.EBUSY, "the folder was moved while it was removed", level.name)


def _empty(name: str, folder: int) -> _Level:
    """Remove everything but the folders in a folder."""
    folders: list[str] = []
    with os.scandir(folder) as entries:
        children = list(entries)
    for entry in children:
        with suppress(FileNotFoundError):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return _Level(name, os.fstat(folder), folders)
