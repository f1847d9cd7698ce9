"""Routing of notifications to followed turns, listeners and streams."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import isawaitable
from typing import Final, TypeAlias, TypeVar

import msgspec

from treadle.client._runtime.message_text import OpenText
from treadle.client._runtime.turn_state import OLD_ENDS, TurnState
from treadle.client.errors import ClientError, EventsLost
from treadle.client.events import (
    FAULT,
    Event,
    ItemCompleted,
    ItemStarted,
    ServerRequestResolved,
    ThreadStatusChanged,
    TurnCompleted,
    UnknownNotification,
    method_of,
    reader_of,
    unknown,
    view_of,
)
from treadle.jsonrpc.envelope import NotificationMessage
from treadle.protocol.command import CommandExecOutputDeltaNotification
from treadle.protocol.item import FileChangeThreadItem, FileUpdateChange
from treadle.protocol.status import ActiveThreadStatus, ThreadStatus
from treadle.protocol.thread_manage import (
    ThreadArchivedNotification,
    ThreadClosedNotification,
    ThreadDeletedNotification,
)
from treadle.support.concurrency.tasks import BackgroundTasks

MAX_UNREAD: Final = 10_000
"""Maximum number of events that a stream of the whole server buffers for its reader."""

T = TypeVar("T")

Listener: TypeAlias = Callable[..., Awaitable[None] | object]
TurnKey: TypeAlias = tuple[str | None, str]
"""A turn by its thread and its id: servers of 0.98 number turns per thread."""

JOIN_SECONDS: Final = 2.0
"""How long a turn may be without events after another turn of its thread has ended.

Up to 0.118 a server adds input for a busy thread to the running turn, but answers with the id of a
turn that never starts.
"""
DUPLICATE_PREFIX: Final = "codex/event/"
"""Prefix of the methods with which servers of 0.98 repeat each event in an older form."""

logger = logging.getLogger(__name__)


class EventStream:
    """A stream of the server's events outside turns, since it was opened."""

    def __init__(self, leave: Callable[[EventStream], None]) -> None:
        self._leave = leave
        self._unread: deque[Event] = deque()
        self._lost = 0
        self._end: ClientError | None = None
        self._is_over = False
        self._wake = asyncio.Event()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        while not self._unread:
            if self._lost:
                lost, self._lost = self._lost, 0
                raise EventsLost(lost)
            if self._end is not None:
                raise self._end
            if self._is_over:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._unread.popleft()

    def feed(self, event: Event) -> None:
        """Add an event."""
        if len(self._unread) < MAX_UNREAD:
            self._unread.append(event)
        else:
            self._lost += 1
        self._wake.set()

    def end(self, failure: ClientError | None) -> None:
        """End the stream after the buffered events, with an error if there is one."""
        self._end, self._is_over = failure, True
        self._wake.set()

    async def aclose(self) -> None:
        """Close the stream."""
        self._leave(self)
        self.end(None)


class Opening:
    """The period in which a request that opens a turn waits for its answer."""

    __slots__ = ("_notifications", "_serial")

    def __init__(self, notifications: NotificationRouter) -> None:
        self._notifications = notifications
        self._serial = 0

    def __enter__(self) -> int:
        self._serial = self._notifications.begin_opening()
        return self._serial

    def __exit__(self, *_: object) -> None:
        self._notifications.end_opening(self._serial)


class NotificationRouter:
    """Decodes each notification once and delivers it to turns, listeners and streams."""

    def __init__(
        self,
        tasks: BackgroundTasks,
        *,
        can_return: bool,
        on_closed: Callable[[str], None],
        on_resolved: Callable[[ServerRequestResolved], None],
    ) -> None:
        self._tasks = tasks
        self.can_return: Final = can_return  # whether the client reconnects
        self._on_closed = on_closed
        self._on_resolved = on_resolved
        self.turns: dict[TurnKey, TurnState] = {}
        self.seqs: dict[str, int] = {}
        self.waiting: set[str] = set()
        """Ids of threads that wait for an answer of a client."""
        self._edits: dict[str, tuple[TurnKey, Sequence[FileUpdateChange]]] = {}
        self.commands: dict[str, Callable[[CommandExecOutputDeltaNotification], None]] = {}
        self._early: dict[TurnKey, tuple[int, list[Event]]] = {}
        self._ended: dict[TurnKey, tuple[int, TurnState]] = {}
        self._early_ends: list[tuple[Event, str | None]] = []
        self._opening: list[int] = []
        self._serial = 0
        self._listeners: dict[str, list[Listener]] = {}
        self._streams: list[EventStream] = []
        self._calls: deque[tuple[Listener, object]] = deque()
        self._caller: asyncio.Task[None] | None = None

    def on_notice(self, notice: NotificationMessage) -> None:
        """Process one notification."""
        event: Event
        try:
            reader = reader_of(notice.method)
            if reader is None:
                event = other = unknown(notice.method, notice.params)
                thread_id, turn_id = other.thread_id, other.turn_id
            elif reader.is_global and not self._listeners and not self._streams:
                return
            else:
                event = reader.read(notice.params)
                thread_id, turn_id = reader.thread_of(event), reader.turn_of(event)
            if notice.seq is not None and thread_id is not None:
                if notice.seq <= self.seqs.get(thread_id, 0):
                    return  # delivered before the reconnection
                self.seqs[thread_id] = notice.seq
            self.deliver(notice.method, event, thread_id, turn_id)
        except Exception:  # dispatcher: the connection continues
            logger.exception("notification lost")

    def deliver(
        self, method: str, event: Event, thread_id: str | None, turn_id: str | None
    ) -> None:
        """Deliver an event to its turn, and to listeners and streams."""
        if turn_id:
            if type(event) in _ITEMS:
                self._record_edits(event)
            key = thread_id or self._thread_of(turn_id), turn_id
            state = self.turns.get(key)
            if state is not None:
                state.feed(event)
            elif self._opening:
                self._early.setdefault(key, (self._serial, []))[1].append(event)
        elif not method.startswith(DUPLICATE_PREFIX):
            self._deliver_outside_turns(method, event, thread_id)
        if self._listeners:
            self._notify_listeners(method, event)

    def _deliver_outside_turns(self, method: str, event: Event, thread_id: str | None) -> None:
        if isinstance(event, CommandExecOutputDeltaNotification):
            if (listener := self.commands.get(event.process_id)) is not None:
                listener(event)
            return
        if isinstance(event, ThreadStatusChanged):
            self.record_status(event.thread_id, event.status)
        elif isinstance(event, ServerRequestResolved):
            self._on_resolved(event)
        elif isinstance(event, _CLOSINGS):
            self.seqs.pop(event.thread_id, None)
            self.waiting.discard(event.thread_id)
            self._on_closed(event.thread_id)
        elif isinstance(event, TurnCompleted) or method in OLD_ENDS:
            self._end_only_turn(event, thread_id)
        for stream in self._streams:
            stream.feed(event)

    # -- turns

    def opening(self) -> Opening:
        """Return a context that buffers the events of new turns while a request opens one."""
        return Opening(self)

    def begin_opening(self) -> int:
        """Start to buffer the events of turns that are not followed."""
        self._serial += 1
        self._opening.append(self._serial)
        return self._serial

    def end_opening(self, serial: int) -> None:
        """Drop buffered events that belong to no open request."""
        self._opening.remove(serial)
        if not self._opening:
            self._early.clear()
            self._ended.clear()
            self._early_ends.clear()
            return
        _drop_before(self._opening[0], self._early)
        _drop_before(self._opening[0], self._ended)

    def follow(self, state: TurnState, opening: int | None = None) -> None:
        """Deliver a turn's events to its state, starting with the buffered ones."""
        key = state.thread_id, state.id
        _, ended = self._ended.get(key, (0, None))
        known = self.turns.get(key) or ended
        if known is not None:
            # A server may add new input to the running turn and answer with that turn.
            known.share_with(state)
            return
        self.turns[key] = state
        if self.can_return:
            state.text = OpenText()
        state.at_end(partial(self._on_end, state))
        _, events = self._early.pop(key, (0, []))
        for event in events:
            state.feed(event)
        ends, self._early_ends = self._early_ends, []
        for event, thread_id in ends:
            self._end_only_turn(event, thread_id)
        for ended_in, other in self._ended.values():
            if opening is not None and ended_in >= opening:
                self._expect(state, other)

    def _on_end(self, state: TurnState) -> None:
        key = state.thread_id, state.id
        self.turns.pop(key, None)
        if self._opening:
            self._ended[key] = self._serial, state
        for other in self.turns.values():
            self._expect(other, state)

    def _expect(self, state: TurnState, ended: TurnState) -> None:
        """Join a turn to an ended one, which took its input, unless the turn starts soon."""
        if state.thread_id == ended.thread_id and not (state.has_items or ended.failure):
            join = partial(_join, state, ended, state.last_event_at)
            asyncio.get_running_loop().call_later(JOIN_SECONDS, join)

    def _thread_of(self, turn_id: str) -> str | None:
        """Return the thread of a followed turn, for events without a thread id."""
        return next((state.thread_id for state in self.turns.values() if state.id == turn_id), None)

    def _end_only_turn(self, event: Event, thread_id: str | None) -> None:
        """End the only running turn, on an end event without a turn id."""
        running = [state for state in self.turns.values() if thread_id in (None, state.thread_id)]
        if not running and self._opening:
            self._early_ends.append((event, thread_id))
        if len(running) != 1:
            return
        (state,) = running
        if isinstance(event, TurnCompleted):
            turn = msgspec.structs.replace(state.turn, status="completed")
            event = TurnCompleted(thread_id=state.thread_id, turn=turn)
        state.feed(event)

    def edits(self, item_id: str) -> Sequence[FileUpdateChange]:
        """Return the pending file changes of an item."""
        return self._edits.get(item_id, (None, ()))[1]

    def _record_edits(self, event: Event) -> None:
        if isinstance(event, ItemStarted) and isinstance(event.item, FileChangeThreadItem):
            key = event.thread_id, event.turn_id
            self._edits[event.item.id] = key, event.item.changes
        elif isinstance(event, ItemCompleted):
            self._edits.pop(event.item.id, None)
        elif isinstance(event, TurnCompleted) and self._edits:
            over = event.thread_id, event.turn.id
            ended = [id_ for id_, (key, _) in self._edits.items() if key == over]
            for item_id in ended:
                del self._edits[item_id]

    def record_status(self, thread_id: str, status: ThreadStatus) -> None:
        """Record whether a thread waits for an answer of a client."""
        if isinstance(status, ActiveThreadStatus) and status.active_flags:
            self.waiting.add(thread_id)
        else:
            self.waiting.discard(thread_id)

    # -- listeners

    def listen(self, name: str, listener: Listener) -> None:
        """Call a listener for each event of a name, in order, in a separate task."""
        self._listeners.setdefault(method_of(name), []).append(listener)

    def unlisten(self, name: str, listener: Listener) -> None:
        """Remove a listener."""
        listeners = self._listeners.get(method_of(name), [])
        if listener in listeners:
            listeners.remove(listener)

    def report(self, error: Exception) -> None:
        """Notify the listeners of `error` of a failure of the client."""
        for listener in self._listeners.get(FAULT, ()):
            self._enqueue(listener, error)

    def _notify_listeners(self, method: str, event: Event) -> None:
        listeners = self._listeners.get(method)
        if listeners:
            view = view_of(method)
            value = view(event) if view and not isinstance(event, UnknownNotification) else event
            for listener in listeners:
                self._enqueue(listener, value)
        for listener in self._listeners.get("*", ()):
            self._enqueue(listener, event)

    def _enqueue(self, listener: Listener, value: object) -> None:
        self._calls.append((listener, value))
        if self._caller is None and not self._tasks.is_closed:
            self._caller = self._tasks.spawn(self._call_listeners(), "listeners")

    async def _call_listeners(self) -> None:
        try:
            while self._calls:
                listener, value = self._calls.popleft()
                await _call(listener, value)
        finally:
            self._caller = None

    # -- streams

    def stream(self) -> EventStream:
        """Open a stream of the events outside turns."""
        stream = EventStream(self._remove_stream)
        self._streams.append(stream)
        return stream

    def _remove_stream(self, stream: EventStream) -> None:
        if stream in self._streams:
            self._streams.remove(stream)

    def end(self, failure: ClientError, *, is_clean: bool) -> None:
        """End all turns and streams: the connection is closed."""
        for state in list(self.turns.values()):
            state.fail(failure)
        for stream in self._streams:
            stream.end(None if is_clean else failure)
        if not is_clean:
            self.report(failure)


_CLOSINGS: Final = (
    ThreadClosedNotification,
    ThreadArchivedNotification,
    ThreadDeletedNotification,
)
_ITEMS: Final = frozenset({ItemStarted, ItemCompleted, TurnCompleted})


def _join(state: TurnState, ended: TurnState, last_event_at: float) -> None:
    if not state.is_over and state.last_event_at == last_event_at:
        ended.share_with(state)


def _drop_before(serial: int, entries: dict[TurnKey, tuple[int, T]]) -> None:
    for key in [key for key, (added, _) in entries.items() if added < serial]:
        del entries[key]


async def _call(listener: Listener, value: object) -> None:
    try:
        outcome = listener(value)
        if isawaitable(outcome):
            await outcome
    except Exception:  # user callback: the next listener still receives the event
        logger.exception("listener failed")
