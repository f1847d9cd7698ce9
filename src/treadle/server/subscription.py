"""A client's position in a log; delivers later events in order, as fast as the client reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from treadle.engine.events.log import EventLog
from treadle.store.journal import Event

RunInThread: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]


class Subscription:
    """Delivers a log to one client.

    A client that reads slowly makes only its own position lag: nothing waits for it, and nothing
    is dropped.
    """

    def __init__(
        self,
        log: EventLog,
        after: int | None,
        deliver: Callable[[Event], Awaitable[None]],
        *,
        run: RunInThread = asyncio.to_thread,
    ) -> None:
        self.after = log.last_seq if after is None else after
        self.position = self.after
        self._log = log
        self._reader = log.reader(after)
        self._deliver = deliver
        self._run = run
        self._is_idle = asyncio.Event()

    @property
    def last_seq(self) -> int:
        """The number of the last event in the log."""
        return self._log.last_seq

    async def follow(self) -> None:
        """Deliver events until cancelled.

        Raises:
            EventsExpired: the client read so slowly that its next event is no longer stored.
        """
        wake = asyncio.Event()
        unwatch = self._log.watch(wake.set)
        deliver, read = self._deliver, self._reader.read
        try:
            while True:
                wake.clear()
                if self._reader.is_far_behind:
                    await self._run(self._reader.prefetch)
                events = read()
                for event in events:
                    await deliver(event)
                    self.position = max(self.position, event.seq)
                if not events:
                    self.position = self._reader.position
                    self._is_idle.set()
                    await wake.wait()
        finally:
            unwatch()

    async def caught_up(self) -> None:
        """Wait until every event has been delivered."""
        while self.position < self._log.last_seq:
            self._is_idle.clear()
            await self._is_idle.wait()
