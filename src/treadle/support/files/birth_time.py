"""The time at which a file was created, where the system knows it."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ctypes import CDLL
    from pathlib import Path

_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800
# Of `struct statx`: its size, and the places of `stx_mask` and `stx_btime`.
_SIZE, _MASK, _SECONDS, _NANOSECONDS = 256, 0, 80, 88


def birth_time_ms(path: Path, status: os.stat_result) -> int:
    """Return when the target of a path was created, in Unix milliseconds; 0 if it is unknown."""
    seconds = getattr(status, "st_birthtime", None)
    if seconds is not None:
        return max(0, int(seconds * 1000))
    return _from_kernel(path) if sys.platform == "linux" else 0


def _from_kernel(path: Path) -> int:
    """Ask for what `os.stat` omits: Python has no `statx` before release 3.15."""
    from ctypes import create_string_buffer

    library = _library()
    if library is None:
        return 0
    found = create_string_buffer(_SIZE)
    if library.statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, found) != 0:
        return 0

    def number(at: int, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(found.raw[at : at + size], sys.byteorder, signed=signed)

    if not number(_MASK, 4) & _STATX_BTIME:
        return 0
    seconds = number(_SECONDS, 8, signed=True)
    return max(0, seconds * 1000 + number(_NANOSECONDS, 4) // 1_000_000)


@cache
def _library() -> CDLL | None:
    """The C library, unless it is too old."""
    from ctypes import CDLL

    library = CDLL(None)
    return library if hasattr(library, "statx") else None
