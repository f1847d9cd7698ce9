"""Placeholders: empty folders at paths where a command must not create anything.

A mount needs a mount point. A placeholder is on disk only while commands run: each of its users
holds a shared lock on it, and the last one removes it. One that a killed process left behind is
recognised by its mode, and removed with the next command that runs there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from treadle.support.files.kinds import is_empty_folder

# No empty folder has this mode by chance: sticky, and not even its owner may write.
_MODE: Final = 0o1555
_ATTEMPTS: Final = 8


class Placeholder:
    """A path that is reserved until it is released."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = str(path)
        self.fd = fd

    def hand_over(self) -> None:
        """Leave the placeholder, with its lock, to the process that has the descriptor."""
        os.close(self.fd)

    def release(self) -> None:
        """Release the path; its last user removes the folder."""
        with contextlib.suppress(OSError):
            # Fails while others hold it, and if the folder is not empty.
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(self.path).rmdir()
        os.close(self.fd)


def take(path: str) -> Placeholder | None:
    """Create a placeholder where nothing exists; `None` if something else does.

    Raises:
        OSError: it cannot be created.
    """
    place = Path(path)
    for _attempt in range(_ATTEMPTS):
        with contextlib.suppress(FileExistsError, NotADirectoryError):
            place.mkdir(_MODE)
            _mark(place)
        try:
            found = place.lstat()
            if not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) != _MODE:
                return None
            fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        if _is_shared(fd) and _is_same(place, fd):
            return Placeholder(place, fd)
        # Its last user removes it, or did so between our check and our lock.
        os.close(fd)
    if is_placeholder(path):
        # A command has locked it to block others. It is empty, so any other cover will do.
        return None
    raise OSError(f"{path} keeps being replaced")


def _mark(place: Path) -> None:
    """Set the mode of a new placeholder, but not of something that a command put in its place."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchmod(fd, _MODE)
        finally:
            os.close(fd)


def is_placeholder(path: str) -> bool:
    """Return whether it exists and is empty."""
    place = Path(path)
    with contextlib.suppress(OSError):
        is_marked = stat.S_IMODE(place.lstat().st_mode) == _MODE
        return is_marked and is_empty_folder(place)
    return False


def _is_shared(fd: int) -> bool:
    """Take a shared lock without waiting, since commands can lock the folder too."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same(place: Path, fd: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(place.lstat(), os.fstat(fd))
    return False
