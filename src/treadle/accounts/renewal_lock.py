"""The lock of a renewal between processes, which a process that only reads cannot keep.

Locking a file needs no permission to write it, so that a sandboxed command can hold the lock for as
long as it lives. A process that renews therefore notes in the file when it has begun: without a
recent note, a lock that is held does not count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from treadle.support.files.file_lock import acquire, opened

GRACE_SECONDS: Final = 5.0
"""How long a lock without a note counts: the note follows the lock at once."""

NOTE_SECONDS: Final = 45.0
"""How long a note counts: longer than a renewal, of which a killed process leaves one behind."""

_MAX_NOTE: Final = 64


@contextmanager
def renewing(path: Path, *, seconds: float) -> Iterator[bool]:
    """Hold the lock in the block; yields whether it was acquired in time.

    It blocks, so call it in a worker thread.
    """
    with opened(path) as descriptor:
        if descriptor is None or not acquire(descriptor, seconds, is_void=_is_void(descriptor)):
            yield False
            return
        _write_note(descriptor, f"{time.time():.3f}")
        try:
            yield True
        finally:
            _write_note(descriptor, "")


def _is_void(descriptor: int) -> Callable[[float], bool]:
    return lambda waited: waited >= GRACE_SECONDS and not _has_note(descriptor)


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
