"""Reconnection: the delays between attempts, and recovery of missed events.

A server that numbers its events (`seq`) resends the events after the last one received. With
another server the client resumes the thread and delivers the stored items that it has not received.
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


class RequestSender(Protocol):
    """Sends a request on one connection."""

    async def __call__(self, method: Request[P, R], params: P) -> R:
        """Send a request and return its result."""
        ...


Reconcile: TypeAlias = Callable[[TurnState, Turn], None]
"""Delivers what is stored of a turn and was not received."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays between attempts: doubled each time, with jitter."""

    attempts: int = 12
    first_s: float = 0.05
    longest_s: float = 5.0

    def delays(self) -> Iterator[float]:
        """Iterate over the delays, one for each attempt."""
        for attempt in range(self.attempts):
            delay = min(self.longest_s, self.first_s * 2**attempt)
            yield delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret


async def catch_up(
    send: RequestSender, notifications: NotificationRouter, thread_id: str, reconcile: Reconcile
) -> bool:
    """Subscribe to a thread again and deliver missed events; return false if refused."""
    for state in notifications.turns.values():
        if state.thread_id == thread_id and state.text is not None:
            state.text.break_off()
    try:
        thread = await _resume(send, thread_id, notifications.seqs.get(thread_id))
    except RequestRefused as refused:
        _give_up(notifications, thread_id, refused)
        return False
    notifications.record_status(thread_id, thread.status)
    turns = {turn.id: turn for turn in thread.turns}
    for state in list(notifications.turns.values()):
        if state.thread_id == thread_id and state.id in turns:
            reconcile(state, turns[state.id])
    return True


async def _resume(send: RequestSender, thread_id: str, after_seq: int | None) -> Thread:
    if after_seq is not None:
        try:
            params = ThreadResumeParams(thread_id=thread_id, after_seq=after_seq)
            return (await send(THREAD_RESUME, params)).thread
        except RequestRefused:
            pass  # the numbers do not match: a server with another home
    return (await send(THREAD_RESUME, ThreadResumeParams(thread_id=thread_id))).thread


def _give_up(notifications: NotificationRouter, thread_id: str, reason: ClientError) -> None:
    for state in list(notifications.turns.values()):
        if state.thread_id == thread_id:
            state.fail(reason)


def is_unsure(turn: Turn) -> bool:
    """Return whether a stored turn may still be running.

    The reference shows a turn without a stored end as interrupted, without a completion time.
    """
    return turn.status == "interrupted" and turn.completed_at is None


def deliver_missed(state: TurnState, turn: Turn) -> None:
    """Deliver the completed items of a turn that are new, and its end if it has one."""
    known = [_content_of(item) for item in state.items.values()]
    for item in _finished(turn):
        content = _content_of(item)
        if item.id in state.items:
            continue
        if content in known:
            known.remove(content)  # stored under another id than it was delivered with
            continue
        message = item if state.text is None else state.text.with_streamed_id(item)
        state.feed(
            ItemCompleted(
                item=message, thread_id=state.thread_id, turn_id=turn.id, completed_at_ms=0
            )
        )
    if turn.status != "inProgress":
        # Its items were delivered above, some of them under other ids.
        ended = msgspec.structs.replace(turn, items=[])
        state.feed(TurnCompleted(thread_id=state.thread_id, turn=ended))


def _finished(turn: Turn) -> list[ThreadItem]:
    if turn.status != "inProgress":
        return list(turn.items)
    # The last item may be in progress, and only some kinds of items have a status.
    items = [item for item in turn.items if getattr(item, "status", "") != "inProgress"]
    return items[:-1] if items and items[-1] is turn.items[-1] else list(items)


_CONTENT_FIELDS = (
    "text",
    "content",
    "command",
    "changes",
    "tool",
    "arguments",
    "query",
    "review",
    "path",
)


def _content_of(item: Item) -> tuple[object, ...]:
    """Return the content of an item, for comparison without its id."""
    return type(item), *(getattr(item, name, None) for name in _CONTENT_FIELDS)
