"""Everything clients are told about one thread, numbered, in order.

What is told was first appended to the thread's journal. Deltas are the exception: they are
numbered too, but kept only in memory and only for a while, because the completed item repeats
them. A reader is a position in this log, so joining late, coming back and lagging are one case.

A disk that fails does not silence the log: the journal keeps what it cannot write, the event is
published all the same, and `on_failure` ends the turn. Only `store` and `required` events raise.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import msgspec

from treadle.engine.events.reader import EventsExpired, LogReader
from treadle.protocol import notifications as n
from treadle.protocol.item import ItemStartedNotification
from treadle.protocol.method import Notification
from treadle.store.journal import Entry, Event, Journal, JournalClosed, StorageFailed
from treadle.store.records import AnyRecord
from treadle.support.clock import NowMs

logger = logging.getLogger(__name__)

P = TypeVar("P", bound=msgspec.Struct)

MAX_RECENT: Final = 8192
# What is told to everybody is for those who listen now: nobody comes back for it.
MAX_ANNOUNCED: Final = 2048
MAX_RECENT_CHARACTERS: Final = 4 * 1024 * 1024

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
        # Speaks of a request to a connection, which no later connection has had.
        n.SERVER_REQUEST_RESOLVED,
        # Speaks of processes that end with this server.
        n.MCP_SERVER_STARTUP_STATUS_UPDATED,
        n.RAW_RESPONSE_ITEM_COMPLETED,
        n.RAW_RESPONSE_COMPLETED,
    )
)
"""What is told but not stored: the completed item holds it all."""

_TURN_STARTED: Final = n.TURN_STARTED.method

OnUnsynced: TypeAlias = Callable[[Event, StorageFailed], None]
"""Called with an event that cannot be put on the disk, before clients get it."""


@dataclass(frozen=True, slots=True)
class ForwardedEvent(Event):
    """An event of one thread that everybody is told, with its place in that thread."""

    thread_seq: int


@dataclass(frozen=True, slots=True)
class OpenedRequest(Event):
    """A question to the clients, in its place among the events; `request_id` is its number."""

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
        open_asks: Callable[[], Sequence[OpenedRequest]] = tuple,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._open_items = open_items
        self.open_requests = open_asks
        self._recent: list[Event] = []
        # The older half goes at once, so that it is seldom.
        self._limit = 2 * (MAX_ANNOUNCED if journal is None else MAX_RECENT)
        self._characters = 0
        self._turn_seq = 0
        self.last_seq = journal.last_seq if journal is not None else 0
        # Events whose publication waits for a sync; the later ones wait behind them.
        self._unsynced: deque[int] = deque()
        self._watchers: set[Callable[[], None]] = set()
        self.on_event: Callable[[Event], None] | None = None
        # Called when the disk refuses what happens in the thread.
        self.on_failure: Callable[[StorageFailed], None] = lambda _failure: None

    def publish(
        self,
        method: Notification[P],
        params: P,
        *,
        records: Sequence[AnyRecord] = (),
        required: bool = False,
        on_unsynced: OnUnsynced | None = None,
    ) -> Event:
        """Append one event; it is stored, if it is to be stored, before anybody sees it.

        With `records` that must not be stored without it, or it without them. With `on_unsynced`
        clients get the event, and all that follow, when it is on the disk. If it cannot be put
        there, they get it after that call, which may replace it.

        Raises:
            StorageFailed: it is `required` to be stored, and cannot be.
        """
        name = method.method
        event = Event(self.last_seq + 1, self._clock(), name, params)
        if name in DELTAS:
            self._characters += len(getattr(params, "delta", ""))
        elif self._journal is not None:
            if required:
                self._journal.append((*records, event))
            else:
                self._keep((*records, event))
            if name == _TURN_STARTED:
                self._forget_older_turns()
        self._add(event)
        if on_unsynced is not None:
            self._hold(event, on_unsynced)
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
        """Append a question; what is stored of it are the records.

        Raises:
            StorageFailed: they cannot be stored.
        """
        self.store(*records)
        asked = OpenedRequest(self.last_seq + 1, self._clock(), method, params, request_id, is_open)
        self._add(asked)
        return asked

    def record(self, *records: AnyRecord) -> None:
        """Store what no client is told in this form."""
        if records and self._journal is not None:
            self._keep(records)

    def store(self, *records: AnyRecord) -> None:
        """Do as `record`, for what must not be taken for stored when it is not.

        Raises:
            StorageFailed: nothing of it is stored.
        """
        if records and self._journal is not None:
            self._journal.append(records)

    def sync(self) -> asyncio.Future[None]:
        """Put everything stored so far on the disk; fails with `StorageFailed`."""
        if self._journal is not None:
            return self._journal.sync()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def sync_soon(self) -> None:
        """Put everything stored so far on the disk, without anybody waiting for it."""
        self.sync().add_done_callback(self._on_synced)

    def _on_synced(self, done: asyncio.Future[None]) -> None:
        failure = None if done.cancelled() else done.exception()
        if isinstance(failure, StorageFailed):
            self.on_failure(failure)

    async def published(self) -> None:
        """Wait until no event waits for the disk, and those who follow the log had a turn."""
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
        """Call this whenever something was appended; the result ends it."""
        self._watchers.add(wake)
        return lambda: self._watchers.discard(wake)

    @property
    def watchers(self) -> int:
        """How many are called when something is appended."""
        return len(self._watchers)

    def reader(self, after: int | None) -> LogReader:
        """Read what comes after a position; `None` is now, with the items that are under way."""
        return LogReader(self, after)

    def recent(self, after: int) -> Sequence[Event] | None:
        """Everything after a position, deltas too; `None` if they are not kept back to there."""
        first = self._recent[0].seq if self._recent else self.last_seq + 1
        if after + 1 < first:
            return None
        return self._recent[after + 1 - first : max(0, self.visible_seq + 1 - first)]

    def stored(self, after: int) -> Iterator[Event]:
        """What is stored after a position.

        Raises:
            LeftBehind: nothing is stored.
        """
        if self._journal is None:
            raise EventsExpired
        return self._journal.read(after, self.visible_seq)

    def unread_bytes(self, after: int) -> int:
        """How much of the journal has to be looked through for what comes after a position."""
        return 0 if self._journal is None else self._journal.unread_bytes(after)

    def under_way(self) -> Sequence[Event]:
        """The open items as they stand and the open questions, for whoever missed a part of them.

        The last one has the number up to which they tell everything; the others have 0, for
        whoever has not been told all of them has not got that far.
        """
        now, items, asks = self._clock(), self._open_items(), self.open_requests()
        last = len(items) - 1
        told = [
            Event(self.last_seq if place == last else 0, now, n.ITEM_STARTED.method, item)
            for place, item in enumerate(items)
        ]
        return [*told, *asks]

    @property
    def visible_seq(self) -> int:
        """The number of the last event that clients may get: none waits for the disk before it."""
        return self._unsynced[0] - 1 if self._unsynced else self.last_seq

    def _keep(self, entries: Sequence[Entry]) -> None:
        try:
            failure = self._journal.keep(entries) if self._journal is not None else None
        except JournalClosed as error:
            # Another client archived or deleted the thread: this event has no reader.
            logger.debug("not stored", extra={"reason": str(error)})
            return
        if failure is not None:
            self.on_failure(failure)

    def _hold(self, event: Event, on_unsynced: OnUnsynced) -> None:
        """Publish nothing from an event on until it is on the disk."""
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
        """Give an event that no client has got yet another content."""
        place = event.seq - self._recent[0].seq
        self._recent[place] = Event(event.seq, event.at_ms, method.method, params)

    def _add(self, event: Event) -> None:
        self.last_seq = event.seq
        self._recent.append(event)
        if len(self._recent) > self._limit or self._characters > MAX_RECENT_CHARACTERS:
            self._forget(len(self._recent) // 2)
        for wake in self._watchers:
            wake()
        if self.on_event is not None:
            self.on_event(event)

    def _forget_older_turns(self) -> None:
        """Keep the last turn only: who is further back than that reads what is stored."""
        if self._recent:
            self._forget(max(0, self._turn_seq - self._recent[0].seq))
        self._turn_seq = self.last_seq + 1

    def _forget(self, count: int) -> None:
        if count:
            del self._recent[:count]
            self._characters = sum(
                len(getattr(event.params, "delta", "")) for event in self._recent
            )


def _report(done: asyncio.Future[None], event: Event, on_unsynced: OnUnsynced) -> None:
    failure = None if done.cancelled() else done.exception()
    if isinstance(failure, StorageFailed):
        on_unsynced(event, failure)
