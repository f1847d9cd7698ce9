"""Coming back after the line broke: when to try, and how to hear what was missed.

A server that numbers its events (`seq`) is asked for those after the last one heard. From another
one the thread is read anew, and what its turns hold that was not told is told now.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from treadle.client._compat.lenient import Item
from treadle.client._runtime.notifications import NotificationRouter
from treadle.client._runtime.turn_state import TurnState
from treadle.client.errors import ClientError, RequestRefused
from treadle.client.events import ItemCompleted, TurnCompleted
from treadle.protocol.client_requests import THREAD_RESUME
from treadle.protocol.item import ThreadItem
from treadle.protocol.method import Request
from treadle.protocol.thread import Thread, ThreadResumeParams
from treadle.protocol.turn import Turn

P = TypeVar("P")
R = TypeVar("R")


class Asker(Protocol):
    """Makes a request on one connection."""

    async def __call__(self, method: Request[P, R], params: P) -> R:
        """Ask, and wait for the answer."""
        ...


Reconcile: TypeAlias = Callable[[TurnState, Turn], None]
"""Brings what was told of a turn in line with what is stored of it."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before each further try: twice as long each time, and never in step."""

    attempts: int = 12
    first_s: float = 0.05
    longest_s: float = 5.0

    def delays(self) -> Iterator[float]:
        """The waits, one for each try that is left."""
        for attempt in range(self.attempts):
            delay = min(self.longest_s, self.first_s * 2**attempt)
            yield delay * random.uniform(0.5, 1.0)  # noqa: S311 - a jitter, no secret


async def catch_up(
    ask: Asker, hub: NotificationRouter, thread_id: str, reconcile: Reconcile
) -> bool:
    """Subscribe to a thread again and tell its turns what they missed; false if that is refused."""
    for state in hub.turns.values():
        if state.thread_id == thread_id and state.text is not None and not hub.counts:
            state.text.break_off()
    try:
        thread = await _resume(ask, thread_id, hub.seqs.get(thread_id))
    except RequestRefused as refused:
        _give_up(hub, thread_id, refused)
        return False
    hub.note_status(thread_id, thread.status)
    turns = {turn.id: turn for turn in thread.turns}
    for state in list(hub.turns.values()):
        if state.thread_id == thread_id and state.id in turns:
            reconcile(state, turns[state.id])
    return True


async def _resume(ask: Asker, thread_id: str, after_seq: int | None) -> Thread:
    if after_seq is not None:
        try:
            params = ThreadResumeParams(thread_id=thread_id, after_seq=after_seq)
            return (await ask(THREAD_RESUME, params)).thread
        except RequestRefused:
            pass  # its numbers are others than ours: a server on another home
    return (await ask(THREAD_RESUME, ThreadResumeParams(thread_id=thread_id))).thread


def _give_up(hub: NotificationRouter, thread_id: str, reason: ClientError) -> None:
    for state in list(hub.turns.values()):
        if state.thread_id == thread_id:
            state.fail(reason)


def is_unsure(turn: Turn) -> bool:
    """Whether a stored turn may still be going on.

    The reference shows a turn whose end it has not stored yet as interrupted, at no time.
    """
    return turn.status == "interrupted" and turn.completed_at is None


def tell_missed(state: TurnState, turn: Turn) -> None:
    """Tell a turn's finished items that are new, and its end if it has one."""
    known = [_gist(item) for item in state.items.values()]
    for item in _finished(turn):
        gist = _gist(item)
        if item.id in state.items:
            continue
        if gist in known:
            known.remove(gist)  # stored under another id than it was told with
            continue
        told = item if state.text is None else state.text.named(item)
        state.feed(
            ItemCompleted(item=told, thread_id=state.thread_id, turn_id=turn.id, completed_at_ms=0)
        )
    if turn.status != "inProgress":
        # Its items were told above, some of them under other ids.
        ended = msgspec.structs.replace(turn, items=[])
        state.feed(TurnCompleted(thread_id=state.thread_id, turn=ended))


def _finished(turn: Turn) -> list[ThreadItem]:
    if turn.status != "inProgress":
        return list(turn.items)
    # The last item may still be written to, and only some kinds of items say so.
    items = [item for item in turn.items if getattr(item, "status", "") != "inProgress"]
    return items[:-1] if items and items[-1] is turn.items[-1] else list(items)


_TELLING = ("text", "content", "command", "changes", "tool", "arguments", "query", "review", "path")


def _gist(item: Item) -> tuple[object, ...]:
    """What tells two items apart besides their ids."""
    return type(item), *(getattr(item, name, None) for name in _TELLING)
