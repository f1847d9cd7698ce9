"""Turns that wait for clients alone outlive their server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread


def only_waits(thread: LoadedThread) -> bool:
    """Whether the turn waits for answers alone: to its own questions, or to its agents'."""
    turn = thread.turn
    if turn is None or turn.is_listening or not turn.running_calls:
        return False
    waiting = thread.server_requests.waiting_calls()
    waiting |= {
        call_id for call_id, ids in turn.waits.items() if any(map(thread.services.waits, ids))
    }
    return turn.running_calls <= waiting


def stop_or_suspend(thread: LoadedThread) -> None:
    """Stop the turn that runs because the server ends.

    One that only waits for answers is left as it is, for the next server to go on with.
    """
    turn = thread.turn
    if turn is None:
        return
    turn.ends_with_server = True
    if turn.failure is None and only_waits(thread):
        turn.is_suspended = True
        thread.server_requests.suspend()
    thread.stop(turn)
