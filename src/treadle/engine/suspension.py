"""Suspends turns that only wait for clients, so that the next server can continue them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread


def is_only_waiting(thread: LoadedThread) -> bool:
    """Whether the turn only waits for answers to its server requests or its sub-agents'."""
    turn = thread.turn
    if turn is None or turn.is_streaming or not turn.running_calls:
        return False
    waiting = thread.server_requests.waiting_calls()
    waiting |= {
        call_id for call_id, ids in turn.waits.items() if any(map(thread.services.is_waiting, ids))
    }
    return turn.running_calls <= waiting


def stop_or_suspend(thread: LoadedThread) -> None:
    """Stop the active turn because the server shuts down.

    A turn that only waits for answers is suspended: the next server continues it.
    """
    turn = thread.turn
    if turn is None:
        return
    turn.ends_with_server = True
    if turn.failure is None and is_only_waiting(thread):
        turn.is_suspended = True
        thread.server_requests.suspend()
    thread.stop(turn)
