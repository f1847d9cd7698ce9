"""A lock between processes on a folder itself, so that no lock file is left behind."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LOCK_SECONDS: Final = 5.0
_BUSY: Final = frozenset({errno.EAGAIN, errno.EACCES})
_NO_LOCKS: Final = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL})


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder in the block; waits for other processes, so call it in a worker thread.

    A folder of a file system without locks is not locked.

    Raises:
        BlockingIOError: another process holds it for more than `LOCK_SECONDS`.
        OSError: it cannot be opened.
    """
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
        # Otherwise a process that was stopped while it held the lock would block this one.
        if time.monotonic() > deadline:
            raise BlockingIOError(errno.EAGAIN, f"{folder} is locked by another program")
        time.sleep(0.005)
