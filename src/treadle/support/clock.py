"""Time as an argument: whoever needs it is given a clock, so that tests own it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

NowMs: TypeAlias = Callable[[], int]
"""Milliseconds since the Unix epoch."""


def now_ms() -> int:
    """The machine's own wall clock."""
    return time.time_ns() // 1_000_000
