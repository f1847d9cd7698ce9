"""The number of rounds of long tests: a tenth by default, all of them with `make soak`."""

from __future__ import annotations

import os

IS_FULL = os.environ.get("TREADLE_SOAK") == "1"


EVERY = 1 if IS_FULL else 3
"""Which of many similar points a test tries: each, or one in three."""


def rounds(full: int, *, least: int = 1) -> int:
    """Return how often a test repeats what it does."""
    return full if IS_FULL else max(least, full // 10)
