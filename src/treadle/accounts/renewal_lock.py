"""The lock of a renewal between processes, which a process that only reads cannot keep.

Locking a file needs no permission to write it, so that a sandboxed command can hold the lock for as
long as it lives. A process that renews therefore notes in the file when it has begun: without a
recent note, a lock that is held does not count.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

GRACE_SECONDS: Final = 5.0
"""How long a lock without a note counts: the note follows the lock at once."""

NOTE_SECONDS: Final = 45.0
"""How long a note counts: longer than a renewal, of which a killed process leaves one behind."""

_POLL_SECONDS: Final = 0.01
_MAX_NOTE: Final = 64


@contextmanager
def renewing(path: Path, *, seconds: float) -> Iterator[bool]:
    """Hold the lock in the block; yields whether it was acquired in time.

    It blocks, so call it in a worker thread.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        yield False
        return
    try:
        is_held = _acquire(descriptor, seconds)
        if is_held:
            _write_note(descriptor, f"{time.time():.3f}")
        try:
            yield is_held
        finally:
            if is_held:
                _write_note(descriptor, "")
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, seconds: float) -> bool:
    begun = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - begun
            if waited >= GRACE_SECONDS and not _has_note(descriptor):
                return True
            if waited >= seconds:
                return False
            # The kernel can wait for a lock, but not with a timeout.
            time.sleep(_POLL_SECONDS)
        except OSError:
            return False
        else:
            return True


def _has_note(descriptor: int) -> bool:
    try:
        begun = float(os.pread(descriptor, _MAX_NOTE, 0))
    except (OSError, ValueError):
        return False
    # The clock may have been set, and the note is rounded.
    return abs(time.time() - begun) <= NOTE_SECONDS


def _write_note(descriptor: int, note: str) -> None:
    with suppress(OSError):  # a full disk: the lock itself still counts for `GRACE_SECONDS`
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note.encode(), 0)
