"""Suspends turns that only wait for clients, so that the next server can continue them."""

from __future__ import annotations

from collections.abc import Callable

from treadle.engine.state import ThreadState


def is_only_waiting(thread: ThreadState, is_waiting: Callable[[str], bool]) -> bool:
    """Whether the turn only waits for answers to its server requests or its sub-agents'.

    `is_waiting` says the same about a sub-agent.
    """
    turn = thread.turn
    if turn is None or turn.is_streaming or not turn.running_calls:
        return False
    waiting = thread.server_requests.waiting_calls()
    waiting |= {call_id for call_id, ids in turn.waits.items() if any(map(is_waiting, ids))}
    return turn.running_calls <= waiting


def stop_or_suspend(thread: ThreadState, is_waiting: Callable[[str], bool]) -> None:
    """Stop the active turn because the server shuts down.

    A turn that only waits for answers is suspended: the next server continues it.
    """
    turn = thread.turn
    if turn is None:
        return
    turn.ends_with_server = True
    if turn.failure is None and is_only_waiting(thread, is_waiting):
        turn.is_suspended = True
        thread.server_requests.suspend()
    turn.stop()
