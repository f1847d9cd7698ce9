"""Timeouts of the callers that wait for a command, paused while an approval is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class PausableTimeout:
    """The timeouts for one command, which can be paused together."""

    def __init__(self) -> None:
        # Each timeout with its remaining seconds while it is paused.
        self._limits: dict[asyncio.Timeout, float | None] = {}
        self._pauses = 0

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncIterator[None]:
        """Limit the time spent in the block, without pauses.

        Raises:
            TimeoutError: the time has passed.
        """
        async with asyncio.timeout(seconds) as limit:
            self._limits[limit] = None
            if self._pauses:
                self._pause(limit)
            try:
                yield
            finally:
                del self._limits[limit]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause all timeouts during the block."""
        self._pauses += 1
        if self._pauses == 1:
            for limit in self._limits:
                self._pause(limit)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._resume()

    def _pause(self, limit: asyncio.Timeout) -> None:
        when = limit.when()
        if when is not None and not limit.expired():
            self._limits[limit] = when - asyncio.get_running_loop().time()
            limit.reschedule(None)

    def _resume(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit, left in self._limits.items():
            if left is not None:
                limit.reschedule(now + left)
                self._limits[limit] = None
