"""What a client is told was accepted is on the disk by then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from treadle.engine.conversation.context import turn_context
from treadle.store.journal import StorageFailed
from treadle.store.records import SettingsGiven

if TYPE_CHECKING:
    from treadle.engine.settings import RunSettings
    from treadle.engine.thread import LoadedThread
    from treadle.engine.threads import Threads


async def thread_stored(threads: Threads, thread: LoadedThread) -> None:
    """Wait until a thread that was just begun is on the disk.

    Raises:
        StorageFailed: it is not, and is gone.
    """
    try:
        keep_settings(thread, thread.settings)
        await thread.log.sync()
    except StorageFailed:
        await threads.discard(thread)
        raise


def keep_settings(thread: LoadedThread, settings: RunSettings) -> None:
    """Store what the next turn runs under, so that another server lets it do no more.

    Raises:
        StorageFailed: it cannot be stored.
    """
    thread.log.store(SettingsGiven(turn_context(settings)))


async def input_stored(thread: LoadedThread, start: Callable[[], None] | None = None) -> None:
    """Wait until the input that a thread has just accepted is on the disk.

    `start` is what `LoadedThread.begin_turn` returned. It is called here only if the caller is
    cancelled or the turn holds input of other clients.

    Raises:
        StorageFailed: the input is not on the disk, and is withdrawn; a turn that runs fails.
    """
    turn = thread.turn
    try:
        await thread.messages.stored()
    except StorageFailed as failure:
        if turn is None or turn.state != "accepted":
            thread.storage_failed(failure)
        elif turn.waiting and start is not None:
            start()
        else:
            thread.drop(turn)
        raise
    except asyncio.CancelledError:
        # The client has gone. What it said was written, and is not lost.
        if start is not None:
            start()
        raise
