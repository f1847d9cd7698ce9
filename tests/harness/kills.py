"""Where a killed process may stop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def watching_writes() -> Iterator[dict[int, list[int]]]:
    """Note how long each file is after each write to it."""
    sizes: dict[int, list[int]] = {}
    write = os.write

    def noting_write(descriptor: int, data: bytes) -> int:
        written = write(descriptor, data)
        state = os.fstat(descriptor)
        sizes.setdefault(state.st_ino, []).append(state.st_size)
        return written

    with pytest.MonkeyPatch.context() as patch:
        # The system's own call is the only place that sees where a killed process may stop.
        patch.setattr(os, "write", noting_write)
        yield sizes
