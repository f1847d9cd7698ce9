"""A client's position in a log: it is told what comes after, in order, as fast as it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from treadle.engine.log import EventLog
from treadle.store.journal import Event


async def follow(log: EventLog, after: int, deliver: Callable[[Event], Awaitable[None]]) -> None:
    """Deliver everything after a position, and go on for ever.

    A client that reads slowly makes only its own position lag: nothing waits for it, and nothing
    is dropped.
    """
    wake = asyncio.Event()
    unwatch = log.watch(wake.set)
    position = after
    try:
        while True:
            wake.clear()
            for event in log.after(position):
                await deliver(event)
                position = event.seq
            await wake.wait()
    finally:
        unwatch()
