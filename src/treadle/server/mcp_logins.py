"""The OAuth logins that wait for a browser: each keeps a port open, so their number is limited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

MAX_LOGINS: Final = 64
"""Maximum number of logins that wait at the same time."""

MAX_LOGINS_OF_CLIENT: Final = 8
"""How many of them one client may have started."""


class McpLogins:
    """Ends the oldest logins when there are too many."""

    def __init__(self) -> None:
        # The time limit of each login and the client that started it, oldest first.
        self._waiting: dict[asyncio.Timeout, object] = {}

    @asynccontextmanager
    async def waiting(self, client: object, seconds: float) -> AsyncIterator[None]:
        """Count a login as long as it waits.

        Raises:
            TimeoutError: the time is over, or too many other logins have begun.
        """
        async with asyncio.timeout(seconds) as limit:
            self._make_room(client)
            self._waiting[limit] = client
            try:
                yield
            finally:
                self._waiting.pop(limit, None)

    def _make_room(self, client: object) -> None:
        own = [limit for limit, starter in self._waiting.items() if starter is client]
        if len(own) >= MAX_LOGINS_OF_CLIENT:
            self._end(own[0])
        elif len(self._waiting) >= MAX_LOGINS:
            self._end(next(iter(self._waiting)))

    def _end(self, limit: asyncio.Timeout) -> None:
        del self._waiting[limit]
        if not limit.expired():
            limit.reschedule(0)
