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

    A folder of a file system without locks is not locked, and neither is one that another process
    holds for more than `LOCK_SECONDS`: a process that only reads can lock it, and keep it so.

    Raises:
        OSError: it cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
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
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)
