"""How long others wait for a command, not counting the time in which somebody is asked about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class PausableTimeout:
    """The clocks of those who wait for one command; all of them can be made to stand still."""

    def __init__(self) -> None:
        # Each with the seconds that are left on it, while it stands still.
        self._limits: dict[asyncio.Timeout, float | None] = {}
        self._holds = 0

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncIterator[None]:
        """Wait no longer than this.

        Raises:
            TimeoutError: the time is up.
        """
        async with asyncio.timeout(seconds) as limit:
            self._limits[limit] = None
            if self._holds:
                self._stop(limit)
            try:
                yield
            finally:
                del self._limits[limit]

    @contextmanager
    def on_hold(self) -> Iterator[None]:
        """Let nobody run out of patience meanwhile."""
        self._holds += 1
        if self._holds == 1:
            for limit in self._limits:
                self._stop(limit)
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                self._go_on()

    def _stop(self, limit: asyncio.Timeout) -> None:
        when = limit.when()
        if when is not None and not limit.expired():
            self._limits[limit] = when - asyncio.get_running_loop().time()
            limit.reschedule(None)

    def _go_on(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit, left in self._limits.items():
            if left is not None:
                limit.reschedule(now + left)
                self._limits[limit] = None
