"""Repairs the end of a rollout file that a killed server left."""

from __future__ import annotations

import logging
import os
from typing import Final

from treadle.store.rollout.format import decode_line
from treadle.store.rollout.reading import MAX_LINE_BYTES

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 256 * 1024


def repair(descriptor: int) -> None:
    """Add the missing line feed to a complete last line; cut off an incomplete one."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return
    start = _last_line(descriptor, size)
    length = size - start
    fragment = os.pread(descriptor, length, start) if length <= MAX_LINE_BYTES else b""
    if decode_line(fragment) is not None:
        os.write(descriptor, b"\n")
        return
    logger.warning("half-written line cut off", extra={"bytes": length})
    os.ftruncate(descriptor, start)


def _last_line(descriptor: int, size: int) -> int:
    """Return the offset of the last line; what a broken disk left there may be of any length."""
    end = size
    while end > 0:
        start = max(0, end - _READ_BYTES)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
