"""Time as an argument: code that needs a clock is passed one, so that tests control it.

Two kinds, never mixed: the wall clock says when something happened and may be changed at any
time; the monotonic clock says how long something took and when a deadline is reached.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeAlias

NowMs: TypeAlias = Callable[[], int]
"""Milliseconds since the Unix epoch."""


def now_ms() -> int:
    """Return the time of the machine's wall clock."""
    return time.time_ns() // 1_000_000


class Stopwatch:
    """Elapsed time by the monotonic clock of the running loop."""

    __slots__ = ("_began", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    @property
    def seconds(self) -> float:
        """The time since its creation."""
        return self._loop.time() - self._began

    @property
    def milliseconds(self) -> int:
        """The time since its creation, in whole milliseconds."""
        return int(self.seconds * 1000)
