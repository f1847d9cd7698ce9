"""Locks by key: callers that need different keys do not wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager


class KeyLocks:
    """Holds any number of keys at once; all keys of a caller are taken in one step."""

    def __init__(self) -> None:
        self._held: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def hold(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """Wait until no other caller holds any of these keys, and hold them in the block."""
        needed = set(keys)
        while True:
            released = next((self._held[key] for key in needed if key in self._held), None)
            if released is None:
                break
            await released.wait()
        released = asyncio.Event()
        self._held |= dict.fromkeys(needed, released)
        try:
            yield
        finally:
            for key in needed:
                del self._held[key]
            released.set()
