"""Logs repeated problems: once when they begin, then once a minute while they last."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 60.0


class Incident:
    """Logs the first occurrence at once, and counts those that follow within a minute."""

    def __init__(
        self,
        logger: logging.Logger,
        message: str,
        *,
        level: int = logging.WARNING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._message = message
        self._level = level
        self._clock = clock
        self._logged_at: float | None = None
        self._unlogged = 0

    def happened(self, reason: str, **fields: object) -> None:
        """Record one occurrence."""
        now = self._clock()
        if self._logged_at is not None and now - self._logged_at < INTERVAL_S:
            self._unlogged += 1
            return
        more = {"more_since_last": self._unlogged} if self._unlogged else {}
        self._logged_at, self._unlogged = now, 0
        self._logger.log(self._level, self._message, extra={"reason": reason, **more, **fields})
