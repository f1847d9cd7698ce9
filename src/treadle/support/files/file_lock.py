"""A lock file between processes, with a timeout."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.01


@contextmanager
def locked(path: Path, *, seconds: float) -> Iterator[bool]:
    """Hold a lock file; yields whether it was acquired in time."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        yield False
        return
    try:
        yield _acquire(descriptor, time.monotonic() + seconds)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            # The kernel can wait for a lock, but not with a timeout.
            time.sleep(_POLL_SECONDS)
        except OSError:
            return False
        else:
            return True
