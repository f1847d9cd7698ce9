"""The state of a followed turn: its events so far, its waiters and its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from treadle.client._compat.lenient import Item
from treadle.client._runtime.message_text import HELD, OpenText
from treadle.client.errors import ClientError, EventsLost
from treadle.client.events import (
    AgentMessageDelta,
    Event,
    ItemCompleted,
    ItemStarted,
    TokenUsageUpdated,
    TurnCompleted,
    TurnDiffUpdated,
    TurnErrorReported,
    TurnPlanUpdated,
    TurnStarted,
    UnknownNotification,
)
from treadle.client.result import TurnResult, final_answer
from treadle.protocol.error import TurnError
from treadle.protocol.turn import Turn, TurnPlanStep
from treadle.protocol.usage import ThreadTokenUsage

MAX_UNREAD: Final = 100_000
"""Maximum number of events that a stream buffers for its reader."""

OLD_ENDS: Final = {"turn/failed": "failed", "turn/cancelled": "interrupted"}
"""Notifications by which older servers report the end of a turn."""


class TurnState:
    """The events of one turn; used only on the event loop that reads the connection."""

    def __init__(self, thread_id: str, turn: Turn, *, keeps_events: bool = False) -> None:
        self.thread_id = thread_id
        self.turn = turn
        self.items: dict[str, Item] = {}
        # The start events of items, and the items that started again after their completion.
        self._starts: dict[str, ItemStarted] = {}
        self._reopened: set[str] = set()
        self.diff: str | None = None
        self.plan: list[TurnPlanStep] = []
        self.usage: ThreadTokenUsage | None = None
        self.open_requests = 0
        # The loop's clock, which its timers use.
        self.now = asyncio.get_running_loop().time
        self.last_event_at = self.now()
        self.is_running = False
        self.has_items = False
        self.text: OpenText | None = None
        """The message text so far, if the client reconnects to a server without event numbers."""
        self.is_over = False
        self.is_given_up = False
        self._is_ending = False
        self.failure: ClientError | None = None
        self._error: TurnError | None = None
        self._unread: deque[Event] | None = deque() if keeps_events else None
        self._tap: Callable[[Event | None], None] | None = None
        self._lost = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._twins: list[TurnState] = []
        self._on_end: list[Callable[[], object]] = []

    @property
    def id(self) -> str:
        """The turn's id."""
        return self.turn.id

    def keep_events(self) -> None:
        """Buffer events from now on, for a reader."""
        if self._unread is None:
            self._unread = deque()

    def at_end(self, action: Callable[[], object]) -> None:
        """Call a function when the turn is over or given up."""
        if self.is_over:
            action()
        else:
            self._on_end.append(action)

    def feed(self, event: Event) -> None:
        """Process the next event of the turn."""
        if self.is_over:
            return
        if self.text is not None and not self._admit(event, self.text):
            return
        for twin in self._twins:
            twin.feed(event)
        self.last_event_at = self.now()
        self.is_running = True
        # Deltas, the bulk of all events, do not change the state.
        if type(event) in _RECORDED and not self._record(event):
            return
        self._deliver(event)
        if self._is_ending:
            self._end()
        elif self._waiters:
            self._wake()

    def _admit(self, event: Event, text: OpenText) -> bool:
        """Deliver what is missing before an event; return false to hold the event back."""
        if isinstance(event, TurnCompleted):
            for item in text.missed(event.turn.items, self.items):
                self.feed(
                    ItemCompleted(
                        item=item, thread_id=self.thread_id, turn_id=self.id, completed_at_ms=0
                    )
                )
        rest = text.take(event, self.items)
        if rest is HELD:
            self.last_event_at = self.now()
        elif isinstance(rest, AgentMessageDelta):
            for twin in self._twins:
                twin.feed(rest)
            self._deliver(rest)
        return rest is not HELD

    def _deliver(self, event: Event) -> None:
        if self._tap is not None:
            self._tap(event)
        elif self._unread is not None:
            if len(self._unread) < MAX_UNREAD:
                self._unread.append(event)
            else:
                self._lost += 1

    def tap(self, take: Callable[[Event | None], None]) -> None:
        """Pass buffered and new events to a function as they arrive, and `None` after the last."""
        self._tap = take
        for event in self._unread or ():
            take(event)
        self._unread = None
        self.at_end(partial(take, None))

    def fail(self, failure: ClientError) -> None:
        """Give the turn up; waiters receive this error."""
        if not self.is_over:
            for twin in self._twins:
                twin.fail(failure)
            self.failure = failure
            self._end()

    def share_with(self, twin: TurnState) -> None:
        """Copy the state to another follower of the turn and forward later events to it."""
        twin.items.update(self.items)
        twin._starts.update(self._starts)
        twin._reopened.update(self._reopened)
        twin.diff, twin.plan, twin.usage = self.diff, self.plan, self.usage
        twin.is_running = self.is_running
        if not self.is_over:
            self._twins.append(twin)
        elif self.failure is not None:
            twin.fail(self.failure)
        else:
            twin.feed(TurnCompleted(thread_id=self.thread_id, turn=self.turn))

    async def next_event(self) -> Event | None:
        """Wait for the next event; `None` after the last.

        Raises:
            ClientError: the client gave the turn up.
            EventsLost: events arrived faster than they were read.
        """
        self.keep_events()
        while not self._unread:
            if self._lost:
                raise EventsLost(self._lost)
            if self.is_over:
                if self.failure is not None:
                    raise self.failure
                return None
            await self._wait()
        return self._unread.popleft()

    async def first_event(self) -> None:
        """Wait for the first event of the turn."""
        while not self.is_running and not self.is_over:
            await self._wait()

    async def over(self) -> None:
        """Wait until the turn ends.

        Raises:
            ClientError: the client gave the turn up.
        """
        if not self.is_over:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.at_end(partial(_settle, ended))
            await ended
        if self.failure is not None:
            raise self.failure

    def result(self) -> TurnResult[None]:
        """Return the result so far."""
        items = list(self.items.values())
        items += [item for item in self.turn.items if item.id not in self.items]
        turn = self.turn
        if turn.status == "failed" and turn.error is None and self._error is not None:
            turn = msgspec.structs.replace(turn, error=self._error)
        return TurnResult(
            turn=turn,
            items=items,
            agent_message=final_answer(items),
            diff=self.diff,
            usage=self.usage,
            plan=self.plan,
            output=None,
        )

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _settle(waiter)

    def _end(self) -> None:
        self.is_over = True
        actions, self._on_end = self._on_end, []
        for action in actions:
            action()
        self._wake()

    def _record(self, event: Event) -> bool:
        """Update the state from an event; return false for a repeated event."""
        match event:
            case TurnStarted():
                self.turn = event.turn
            case TurnCompleted():
                self.turn = event.turn
                self._is_ending = True
            case ItemStarted():
                self.has_items = True
                return self._record_start(event)
            case ItemCompleted():
                return self._record_item(event.item)
            case TurnDiffUpdated():
                self.diff = event.diff
            case TurnPlanUpdated():
                self.plan = event.plan
            case TokenUsageUpdated():
                self.usage = event.token_usage
            case TurnErrorReported():
                self._error = event.error
            case _:
                self._record_old_end(event)
        return True

    def _record_start(self, event: ItemStarted) -> bool:
        """Record the start of an item; return false if the item has completed since.

        A server may start the item again under the same id after its model stream broke off.
        """
        id_ = event.item.id
        previous = self._starts.get(id_)
        if id_ in self.items:
            if previous is None or previous == event:
                return False
            self._reopened.add(id_)
        self._starts[id_] = event
        return True

    def _record_item(self, item: Item) -> bool:
        """Record a completed item; return false if it was completed before."""
        if item.id in self.items:
            if item.id not in self._reopened:
                return False
            self._reopened.discard(item.id)
            # The replacement is the newest item.
            del self.items[item.id]
        self.items[item.id] = item
        return True

    def _record_old_end(self, event: Event) -> None:
        if isinstance(event, UnknownNotification) and event.method in OLD_ENDS:
            status = OLD_ENDS[event.method]
            params = event.params if isinstance(event.params, dict) else {}
            message = str(params.get("message") or params.get("reason") or event.method)
            error = TurnError(message) if status == "failed" else None
            self.turn = msgspec.structs.replace(self.turn, status=status, error=error)
            self._is_ending = True


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_RECORDED: Final = frozenset(
    {
        TurnStarted,
        TurnCompleted,
        ItemStarted,
        ItemCompleted,
        TurnDiffUpdated,
        TurnPlanUpdated,
        TokenUsageUpdated,
        TurnErrorReported,
        UnknownNotification,
    }
)
