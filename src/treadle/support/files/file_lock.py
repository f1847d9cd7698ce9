"""A lock file between processes, with a timeout."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.01


@contextmanager
def locked(path: Path, *, seconds: float) -> Iterator[bool]:
    """Hold a lock file; yields whether it was acquired in time."""
    with opened(path) as descriptor:
        yield descriptor is not None and acquire(descriptor, seconds)


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    """Open a lock file, which is created if it is missing; yields `None` if that is impossible."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def acquire(
    descriptor: int, seconds: float, *, is_void: Callable[[float], bool] = lambda _waited: False
) -> bool:
    """Lock an open file; return whether it succeeded in time.

    `is_void` returns, after so many seconds, whether the lock of another process does not count.
    """
    begun = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - begun
            if is_void(waited):
                return True
            if waited >= seconds:
                return False
            # The kernel can wait for a lock, but not with a timeout.
            time.sleep(_POLL_SECONDS)
        except OSError:
            return False
        else:
            return True
