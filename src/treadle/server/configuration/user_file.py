"""Changes a file that others change too: whole or not at all, and on top of what they wrote."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from treadle.server import files

LOCK_SECONDS: Final = 5.0
_TRIES: Final = 10
_BUSY: Final = frozenset({errno.EAGAIN, errno.EACCES})
# Some file systems have no locks; there is still the look before the file is replaced.
_NO_LOCKS: Final = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL})


def edit_file(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Replace what a file holds; `change` may be asked again if somebody else was faster.

    A link is followed, for people keep such files elsewhere. A new file is the owner's alone.

    Raises:
        OSError: the file cannot be read or written; what `change` raises is passed on.
    """
    # Not Path.resolve, which before Python 3.13 does not take links that lead to themselves.
    target = Path(os.path.realpath(path))
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(target.parent):
        for _ in range(_TRIES):
            before = _content(target)
            after = change(before or b"")
            if after == (before or b""):
                return
            if _content(target) == before:
                _replace(target, after, is_new=before is None)
                return
    raise BlockingIOError(errno.EAGAIN, f"{path} is being changed by others all the time")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes, *, is_new: bool) -> None:
    if is_new:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    files.write(path, content)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder itself, so that no lock file is left behind."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    from fcntl import LOCK_EX, LOCK_NB, flock

    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return
            if error.errno not in _BUSY:
                raise
        else:
            return
        # A program that was stopped while it wrote would keep us for ever.
        if time.monotonic() > deadline:
            raise BlockingIOError(errno.EAGAIN, f"{folder} is locked by another program")
        time.sleep(0.005)
