"""Waits until accepted threads and input are on the disk, before the client gets a reply."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from treadle.engine.conversation.context import turn_context
from treadle.store.journal import StorageFailed
from treadle.store.records import SettingsChanged

if TYPE_CHECKING:
    from treadle.engine.settings import RunSettings
    from treadle.engine.thread import AcceptedTurn, LoadedThread
    from treadle.engine.threads import Threads


async def thread_stored(threads: Threads, thread: LoadedThread) -> None:
    """Wait until a new thread is on the disk.

    Raises:
        StorageFailed: the thread could not be stored and is discarded.
    """
    try:
        keep_settings(thread, thread.settings)
        await thread.log.sync()
    except StorageFailed:
        await threads.discard(thread)
        raise


def keep_settings(thread: LoadedThread, settings: RunSettings) -> None:
    """Store the settings of the next turn, so that another server grants no more permissions.

    Raises:
        StorageFailed: the settings cannot be stored.
    """
    thread.log.store(SettingsChanged(turn_context(settings)))


async def input_stored(thread: LoadedThread, accepted: AcceptedTurn | None = None) -> None:
    """Wait until the last input that a thread accepted is on the disk.

    `accepted` is what `LoadedThread.begin_turn` returned. It is started here only if the caller is
    cancelled or the turn holds input of other clients.

    Raises:
        StorageFailed: the input could not be stored and is withdrawn; an active turn fails.
    """
    turn = thread.turn
    try:
        await thread.messages.stored()
    except StorageFailed as failure:
        if turn is None or turn.state != "accepted":
            thread.state.storage_failed(failure)
        elif turn.pending_input and accepted is not None and not accepted.is_repeated:
            accepted.start()
        else:
            thread.drop(turn)
        raise
    except asyncio.CancelledError:
        # The client has disconnected, but its input was written and is not lost.
        if accepted is not None:
            accepted.start()
        raise
