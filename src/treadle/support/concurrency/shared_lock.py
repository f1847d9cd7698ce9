"""A lock with shared and exclusive holders, in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedLock:
    """Separates exclusive holders from all others."""

    def __init__(self) -> None:
        self._inside = 0
        self._is_exclusive = False
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def enter(self, *, alone: bool = False) -> AsyncIterator[None]:
        """Hold the lock with others, or exclusively."""
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((alone, admitted))
        self._let_in()
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.cancelled():
                self._waiting.remove((alone, admitted))
                self._let_in()
            else:
                self._leave()
            raise
        try:
            yield
        finally:
            self._leave()

    def _let_in(self) -> None:
        while self._waiting:
            alone, admitted = self._waiting[0]
            if self._is_exclusive or (alone and self._inside):
                return
            self._waiting.popleft()
            self._inside += 1
            self._is_exclusive = alone
            admitted.set_result(None)

    def _leave(self) -> None:
        self._inside -= 1
        self._is_exclusive = False
        self._let_in()
