"""Ids: version 7 UUIDs, which sort by their time of creation."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

_RANDOM_BITS: Final = 74
_RANDOM_MASK: Final = (1 << _RANDOM_BITS) - 1

_lock: Final = threading.Lock()
_last = 0


def uuid7() -> str:
    """Return a new id, greater than every earlier one of this process."""
    global _last  # noqa: PLW0603  the order holds for the process, so the state does too
    random_bits = int.from_bytes(os.urandom(10), "big") & _RANDOM_MASK
    with _lock:
        value = (time.time_ns() // 1_000_000) << _RANDOM_BITS | random_bits
        if value <= _last:
            # A random step, so that two processes forked from one do not produce the same ids.
            value = _last + 1 + (random_bits & 0xFFFF_FFFF)
        _last = value
    return _format(value)


def _format(value: int) -> str:
    # 48 bits of time, 12 random, 62 random; version and variant go in between.
    time_and_a, b = value >> 62, value & ((1 << 62) - 1)
    milliseconds, a = time_and_a >> 12, time_and_a & 0xFFF
    number = milliseconds << 80 | 0x7 << 76 | a << 64 | 0b10 << 62 | b
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
