"""Suspends turns that only wait for clients, so that the next server can continue them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from treadle.engine.state import ThreadState


def only_waiting(threads: Iterable[ThreadState]) -> set[str]:
    """Return the threads whose turn only waits for answers to server requests.

    They may be its own requests or those of sub-agents among the same threads. Each wait is
    examined once, however the threads wait for each other.
    """
    # What each turn does besides waiting, and the calls that wait for a thread.
    busy: dict[str, set[str]] = {}
    waiters: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for thread in threads:
        turn = thread.turn
        if turn is None or turn.is_streaming or not turn.running_calls:
            continue
        busy[thread.id] = turn.running_calls - thread.server_requests.waiting_calls()
        for call_id in turn.waits.keys() & busy[thread.id]:
            for target in turn.waits[call_id]:
                waiters[target].append((thread.id, call_id))
    found = [id_ for id_, calls in busy.items() if not calls]
    waiting = set(found)
    while found:
        for thread_id, call_id in waiters[found.pop()]:
            busy[thread_id].discard(call_id)
            if not busy[thread_id] and thread_id not in waiting:
                waiting.add(thread_id)
                found.append(thread_id)
    return waiting


def stop_or_suspend(thread: ThreadState, *, is_waiting: bool) -> None:
    """Stop the active turn because the server shuts down.

    A turn that only waits for answers is suspended: the next server continues it.
    """
    turn = thread.turn
    if turn is None:
        return
    turn.ends_with_server = True
    if turn.failure is None and is_waiting:
        turn.is_suspended = True
        thread.server_requests.suspend()
    turn.stop()
