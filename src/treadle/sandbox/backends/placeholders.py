"""Placeholders: empty folders at paths where a command must not create anything.

A mount needs a mount point. A placeholder is on disk only while commands run: each of its users
holds a shared lock on it, and the last one removes it. One that a killed process left behind is
recognised by its mode, and removed with the next command that runs there.

A command of another folder can lock a placeholder too, so that its next user gets no lock. That one
puts an entry into it instead: a folder with an entry cannot be removed. Removing it would detach
what is mounted on it, and the command could create something there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from treadle.support.files.writing import SCRATCH
from treadle.support.ids import uuid7

# No empty folder has this mode by chance: sticky, and not even its owner may write.
_MODE: Final = 0o1555
# While an entry is created or removed.
_OPEN_MODE: Final = _MODE | stat.S_IWUSR
_ATTEMPTS: Final = 8


class Placeholder:
    """A path that is reserved until it is released."""

    def __init__(self, path: Path, fd: int, entry: str = "") -> None:
        self.path = str(path)
        self.fd = fd
        self._entry = entry

    @property
    def order(self) -> str:
        """What the guard needs to release it: the path, and the entry in it if there is one."""
        return f"{self.path}//{self._entry}" if self._entry else self.path

    def hand_over(self) -> None:
        """Leave the placeholder, with its lock, to the process that has the descriptor."""
        os.close(self.fd)

    def release(self) -> None:
        """Release the path; its last user removes the folder."""
        with contextlib.suppress(OSError):
            if self._entry:
                _remove_entry(self.fd, self._entry)
            # Fails while others hold it, and if the folder is not empty.
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same(Path(self.path), self.fd):
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
            mode = stat.S_IMODE(found.st_mode)
            if not stat.S_ISDIR(found.st_mode) or mode not in (_MODE, _OPEN_MODE):
                return None
            fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, fd)
            try:
                entry = "" if _is_shared(fd) else _add_entry(fd)
            except FileNotFoundError:
                # Its last user removes it, or did so between our check and our lock.
                continue
            except PermissionError:
                # A placeholder of another user, which a command has locked.
                return None
            if _is_same(place, fd):
                stack.pop_all()
                return Placeholder(place, fd, entry)
    raise OSError(f"{path} keeps being replaced")


def _add_entry(fd: int) -> str:
    """Put an entry into a placeholder, so that it cannot be removed; return its name."""
    entry = f"{SCRATCH}{uuid7()}"
    os.fchmod(fd, _OPEN_MODE)
    try:
        os.close(os.open(entry, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400, dir_fd=fd))
    finally:
        os.fchmod(fd, _MODE)
    return entry


def _remove_entry(fd: int, entry: str) -> None:
    os.fchmod(fd, _OPEN_MODE)
    try:
        os.unlink(entry, dir_fd=fd)
    finally:
        os.fchmod(fd, _MODE)


def _mark(place: Path) -> None:
    """Set the mode of a new placeholder, but not of something that a command put in its place."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchmod(fd, _MODE)
        finally:
            os.close(fd)


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
