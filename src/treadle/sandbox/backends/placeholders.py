"""Empty folders that stand where a command must not make one.

A mount needs something to be mounted on. A placeholder is on disk only while commands run: whoever
uses one holds a shared lock on it, and the last one removes it. One that a killed process left
behind is known by its mode and goes with the next command that runs there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

# Nobody gives an empty folder this mode by chance: sticky, and not even its owner may write.
_MODE: Final = 0o1555
_ATTEMPTS: Final = 8


class Placeholder:
    """A name that is taken until it is released."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = str(path)
        self.fd = fd

    def hand_over(self) -> None:
        """Leave it to whoever got the descriptor, and the lock with it."""
        os.close(self.fd)

    def release(self) -> None:
        """Give the name up; the last of its users removes the folder."""
        with contextlib.suppress(OSError):
            # Refused while others hold it; and a folder in which somebody has put something stays.
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(self.path).rmdir()
        os.close(self.fd)


def take(path: str) -> Placeholder | None:
    """Put a placeholder where nothing is; `None` if something else is there.

    Raises:
        OSError: none can be made there.
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
        # Its last user removes it, or did so between our look and our lock.
        os.close(fd)
    if is_placeholder(path):
        # A command locks it to make others wait. It is empty, so any other cover will do.
        return None
    raise OSError(f"{path} comes and goes")


def _mark(place: Path) -> None:
    """Give a new placeholder its mode, but not what a command has put in its place meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchmod(fd, _MODE)
        finally:
            os.close(fd)


def is_placeholder(path: str) -> bool:
    """Whether there is one, and nothing in it."""
    place = Path(path)
    with contextlib.suppress(OSError):
        is_marked = stat.S_IMODE(place.lstat().st_mode) == _MODE
        return is_marked and place.is_dir() and next(place.iterdir(), None) is None
    return False


def _is_shared(fd: int) -> bool:
    """Take a shared lock; never wait, because commands can open and lock the folder too."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same(place: Path, fd: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(place.lstat(), os.fstat(fd))
    return False
