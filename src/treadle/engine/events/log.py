"""The event log of one thread: all events that clients receive, numbered and in order.

Every event is appended to the thread's journal before it is published. Deltas are the exception:
they are numbered too, but kept only in memory and only for a while, because the completed item
repeats them. A reader is a position in this log, so that joining late, reconnecting and lagging
are one case.

A disk failure does not stop the log: the journal keeps what it cannot write, the event is
published anyway, and `on_failure` ends the turn. Only `store` and `required` events raise.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from treadle.engine.events.reader import EventsExpired, LogReader
from treadle.protocol import notifications as n
from treadle.protocol.item import ItemStartedNotification
from treadle.protocol.method import Notification
from treadle.store.journal import Entry, Event, Journal, JournalClosed, StorageFailed
from treadle.store.records import AnyRecord
from treadle.support.clock import NowMs
from treadle.support.text.json_text import encode_json

logger = logging.getLogger(__name__)

P = TypeVar("P", bound=msgspec.Struct)

MAX_RECENT: Final = 8192
MIN_RECENT: Final = 16
"""How many events stay in memory when others are forgotten for their size."""

# Broadcasts are only for connected clients: no client reads them after a reconnect.
MAX_ANNOUNCED: Final = 2048
MAX_RECENT_BYTES: Final = 4 * 1024 * 1024
"""The limit on all recent events of a thread; stored ones can be read again from its journal."""

MAX_ANNOUNCED_BYTES: Final = 16 * 1024 * 1024

DELTAS: Final = frozenset(
    method.method
    for method in (
        n.ITEM_AGENT_MESSAGE_DELTA,
        n.ITEM_PLAN_DELTA,
        n.ITEM_REASONING_SUMMARY_PART_ADDED,
        n.ITEM_REASONING_SUMMARY_TEXT_DELTA,
        n.ITEM_REASONING_TEXT_DELTA,
        n.ITEM_COMMAND_EXECUTION_OUTPUT_DELTA,
        n.ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION,
        n.ITEM_FILE_CHANGE_OUTPUT_DELTA,
        n.ITEM_FILE_CHANGE_PATCH_UPDATED,
        n.ITEM_MCP_TOOL_CALL_PROGRESS,
        # Refers to a request id of one connection; later connections do not know it.
        n.SERVER_REQUEST_RESOLVED,
        # Refers to processes that end with this server.
        n.MCP_SERVER_STARTUP_STATUS_UPDATED,
        n.RAW_RESPONSE_ITEM_COMPLETED,
        n.RAW_RESPONSE_COMPLETED,
    )
)
"""Events that are published but not stored: the completed item contains their content."""

_TURN_STARTED: Final = n.TURN_STARTED.method

OnUnsynced: TypeAlias = Callable[[Event, StorageFailed], None]
"""Called with an event that cannot be written to the disk, before clients get it."""


class ForwardedEvent(Event, frozen=True):
    """A thread's event that is broadcast to all clients; `thread_seq` is its number there."""

    thread_seq: int


class OpenedRequest(Event, frozen=True):
    """A server request, at its position among the events; `request_id` is its number."""

    request_id: int
    is_open: Callable[[], bool]


class EventLog:
    """The numbered events of one thread, or of the server as a whole when there is no journal."""

    def __init__(
        self,
        journal: Journal | None,
        clock: NowMs,
        *,
        open_items: Callable[[], Sequence[ItemStartedNotification]] = tuple,
        open_requests: Callable[[], Sequence[OpenedRequest]] = tuple,
        on_event: Callable[[Event], None] | None = None,
        on_failure: Callable[[StorageFailed], None] = lambda _failure: None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._open_items = open_items
        self.open_requests = open_requests
        self._recent: list[Event] = []
        # Trimming drops the older half, so that it happens rarely.
        self._limit = 2 * (MAX_ANNOUNCED if journal is None else MAX_RECENT)
        self._max_size = MAX_ANNOUNCED_BYTES if journal is None else MAX_RECENT_BYTES
        # The approximate size of each recent event, and of all of them.
        self._sizes: list[int] = []
        self._size = 0
        self._turn_seq = 0
        self.last_seq = journal.last_seq if journal is not None else 0
        # Events whose publication waits for a sync; later ones wait behind them.
        self._unsynced: deque[int] = deque()
        self._watchers: set[Callable[[], None]] = set()
        self._on_event = on_event
        # Called when an event or a record cannot be written.
        self.on_failure = on_failure

    def publish(
        self,
        method: Notification[P],
        params: P,
        *,
        records: Sequence[AnyRecord] = (),
        required: bool = False,
        on_unsynced: OnUnsynced | None = None,
    ) -> Event:
        """Append one event; unless it is a delta, it is stored before any client sees it.

        `records` are stored atomically with the event. With `on_unsynced`, clients get the event
        and all later ones only when it is on the disk. If it cannot be written, they get it after
        that call, which may replace it.

        Raises:
            StorageFailed: a `required` event cannot be stored.
        """
        name = method.method
        event = Event(self.last_seq + 1, self._clock(), name, params)
        size: int | None = None
        failure: StorageFailed | None = None
        if name in DELTAS:
            delta = getattr(params, "delta", None)
            size = None if delta is None else len(delta)
        elif self._journal is not None:
            before = self._journal.size
            if required:
                self._journal.append((*records, event))
            else:
                failure = self._keep((*records, event))
            size = self._journal.size - before
            if name == _TURN_STARTED:
                self._forget_older_turns()
        self._add(event, size)
        if on_unsynced is not None:
            self._hold(event, on_unsynced)
        if failure is not None:
            # Only now: it may publish, and that event must not get the number of this one.
            self.on_failure(failure)
        return event

    def publish_unstored(self, method: Notification[P], params: P) -> None:
        """Append one event without storing it."""
        self._add(Event(self.last_seq + 1, self._clock(), method.method, params))

    def open_request(
        self,
        method: str,
        params: msgspec.Struct,
        request_id: int,
        is_open: Callable[[], bool],
        records: Sequence[AnyRecord] = (),
    ) -> OpenedRequest:
        """Append a server request; only its records are stored.

        Raises:
            StorageFailed: the records cannot be stored.
        """
        self.store(*records)
        event = OpenedRequest(self.last_seq + 1, self._clock(), method, params, request_id, is_open)
        self._add(event)
        return event

    def record(self, *records: AnyRecord) -> None:
        """Store facts that no client receives in this form."""
        if records and (failure := self._keep(records)) is not None:
            self.on_failure(failure)

    def store(self, *records: AnyRecord) -> None:
        """Do the same as `record`, but raise on failure.

        Raises:
            StorageFailed: none of the records is stored.
        """
        if records and self._journal is not None:
            self._journal.append(records)

    def sync(self) -> asyncio.Future[None]:
        """Sync everything stored so far to the disk; the future may fail with `StorageFailed`."""
        if self._journal is not None:
            return self._journal.sync()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def sync_soon(self) -> None:
        """Sync everything stored so far to the disk in the background."""
        self.sync().add_done_callback(self._on_synced)

    def _on_synced(self, done: asyncio.Future[None]) -> None:
        failure = None if done.cancelled() else done.exception()
        if isinstance(failure, StorageFailed):
            self.on_failure(failure)

    @property
    def is_full(self) -> bool:
        """Whether the journal has no room for further work."""
        return self._journal is not None and self._journal.is_full

    async def published(self) -> None:
        """Wait until no event waits for the disk and the watchers have run."""
        wake = asyncio.Event()
        unwatch = self.watch(wake.set)
        try:
            while self._unsynced:
                wake.clear()
                await wake.wait()
        finally:
            unwatch()
        await asyncio.sleep(0)

    def forward(self, event: Event) -> None:
        """Append an event of another log."""
        self._add(
            ForwardedEvent(self.last_seq + 1, event.at_ms, event.method, event.params, event.seq)
        )

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after every append; the returned function stops that."""
        self._watchers.add(wake)
        return lambda: self._watchers.discard(wake)

    @property
    def watchers(self) -> int:
        """The number of watchers."""
        return len(self._watchers)

    def reader(self, after: int | None) -> LogReader:
        """Return a reader of the events after a position; `None` is now, with the open items."""
        return LogReader(self, after)

    def recent(self, after: int) -> Sequence[Event] | None:
        """Return all events after a position, with deltas; `None` if some are not in memory."""
        first = self._recent[0].seq if self._recent else self.last_seq + 1
        if after + 1 < first:
            return None
        return self._recent[after + 1 - first : max(0, self.visible_seq + 1 - first)]

    def stored(self, after: int) -> Iterator[Event]:
        """Return the stored events after a position.

        Raises:
            EventsExpired: the log has no journal.
        """
        if self._journal is None:
            raise EventsExpired
        return self._journal.read(after, self.visible_seq)

    def unread_bytes(self, after: int) -> int:
        """Return how many bytes of the journal must be read for the events after a position."""
        return 0 if self._journal is None else self._journal.unread_bytes(after)

    def open_state(self) -> Sequence[Event]:
        """Return the current open items and server requests, for a reader that missed deltas.

        The last item has the number of the last event that they include. The others have 0: a
        reader has reached that number only when it has all of them.
        """
        now, items, requests = self._clock(), self._open_items(), self.open_requests()
        last = len(items) - 1
        started = [
            Event(self.last_seq if index == last else 0, now, n.ITEM_STARTED.method, item)
            for index, item in enumerate(items)
        ]
        return [*started, *requests]

    @property
    def visible_seq(self) -> int:
        """The number of the last event that clients may get: all up to it are on the disk."""
        return self._unsynced[0] - 1 if self._unsynced else self.last_seq

    def _keep(self, entries: Sequence[Entry]) -> StorageFailed | None:
        try:
            return self._journal.keep(entries) if self._journal is not None else None
        except JournalClosed as error:
            # Another client archived or deleted the thread: this event has no reader.
            logger.debug("event not stored", extra={"reason": str(error)})
            return None

    def _hold(self, event: Event, on_unsynced: OnUnsynced) -> None:
        """Hold back an event and all later ones until it is on the disk."""
        synced = self.sync()
        if synced.done():
            _report(synced, event, on_unsynced)
            return
        self._unsynced.append(event.seq)
        synced.add_done_callback(lambda done: self._release(done, event, on_unsynced))

    def _release(self, done: asyncio.Future[None], event: Event, on_unsynced: OnUnsynced) -> None:
        try:
            _report(done, event, on_unsynced)
        finally:
            self._unsynced.remove(event.seq)
            for wake in self._watchers:
                wake()

    def replace(self, event: Event, method: Notification[P], params: P) -> None:
        """Replace the content of an event that no client has received yet."""
        index = event.seq - self._recent[0].seq
        self._recent[index] = Event(event.seq, event.at_ms, method.method, params)

    def _add(self, event: Event, size: int | None = None) -> None:
        """Append an event; its size is measured unless the caller knows it."""
        if size is None:
            size = len(encode_json(event.params))
        self.last_seq = event.seq
        self._recent.append(event)
        self._sizes.append(size)
        self._size += size
        if len(self._recent) > self._limit or self._size > self._max_size:
            self._forget(self._surplus())
        for wake in self._watchers:
            wake()
        if self._on_event is not None:
            self._on_event(event)

    def _forget_older_turns(self) -> None:
        """Keep only the last turn in memory; readers that are further back use the journal."""
        if self._recent:
            self._forget(max(0, self._turn_seq - self._recent[0].seq))
        self._turn_seq = self.last_seq + 1

    def _surplus(self) -> int:
        """Return how many events to forget so that half of both limits is free.

        The last events and those that wait for the disk stay: no client has received them.
        """
        most = min(len(self._recent) - 1, max(0, self.visible_seq + 1 - self._recent[0].seq))
        count = min(max(0, len(self._recent) - self._limit // 2), most)
        size = self._size - sum(self._sizes[:count])
        if self._size <= 2 * self._max_size:
            # A large event must not displace the deltas before it: they are published in the same
            # step of the event loop, so that no client has read them yet.
            most = min(most, len(self._recent) - MIN_RECENT)
        while count < most and size > self._max_size // 2:
            size -= self._sizes[count]
            count += 1
        return count

    def _forget(self, count: int) -> None:
        if count:
            self._size -= sum(self._sizes[:count])
            del self._recent[:count]
            del self._sizes[:count]


def _report(done: asyncio.Future[None], event: Event, on_unsynced: OnUnsynced) -> None:
    failure = None if done.cancelled() else done.exception()
    if isinstance(failure, StorageFailed):
        on_unsynced(event, failure)
