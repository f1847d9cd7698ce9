"""The log of a thread: what its readers get, wherever they are."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest

from treadle.engine.events import log as log_module
from treadle.engine.events import reader as log_reader
from treadle.engine.events.log import EventLog
from treadle.engine.events.reader import EventsExpired, LogReader
from treadle.protocol import notifications as n
from treadle.protocol.delta import AgentMessageDeltaNotification
from treadle.protocol.error import WarningNotification
from treadle.protocol.item import (
    AgentMessageThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
)
from treadle.protocol.mcp import McpToolCallProgressNotification
from treadle.protocol.thread_manage import ThreadClosedNotification
from treadle.protocol.turn import Turn, TurnStartedNotification
from treadle.store.journal import Entry, Event, StorageFailed
from treadle.store.memory import MemoryJournal
from treadle.store.records import InputConsumed

Text = dict[str, str]


class Speaker:
    """Speaks into a log as a turn does, and knows what it has said of each open item."""

    def __init__(self, journal: MemoryJournal | None = None) -> None:
        self.journal = journal or MemoryJournal("t")
        self._open: Text = {}
        self._clock = count(1000)
        self.log = EventLog(self.journal, lambda: next(self._clock), open_items=self.open_items)

    def open_items(self) -> list[ItemStartedNotification]:
        return [self._started(id_, text) for id_, text in self._open.items()]

    def begin_turn(self, id_: str) -> None:
        turn = Turn(id=id_, items=[], status="inProgress")
        self.log.publish(n.TURN_STARTED, TurnStartedNotification("t", turn))

    def start(self, id_: str) -> None:
        self._open[id_] = ""
        self.log.publish(n.ITEM_STARTED, self._started(id_, ""))

    def say(self, id_: str, *deltas: str) -> None:
        for delta in deltas:
            self._open[id_] += delta
            notification = AgentMessageDeltaNotification(delta, id_, "t", "u")
            self.log.publish(n.ITEM_AGENT_MESSAGE_DELTA, notification)

    def complete(self, id_: str) -> None:
        item = AgentMessageThreadItem(id=id_, text=self._open.pop(id_))
        self.log.publish(n.ITEM_COMPLETED, ItemCompletedNotification(0, item, "t", "u"))

    def _started(self, id_: str, text: str) -> ItemStartedNotification:
        return ItemStartedNotification(AgentMessageThreadItem(id=id_, text=text), 0, "t", "u")


def read_all(reader: LogReader) -> list[Event]:
    events: list[Event] = []
    while batch := reader.read():
        events += batch
    return events


def texts(events: Sequence[Event], known: Text | None = None) -> Text:
    """What a client shows that follows these events."""
    shown = dict(known or {})
    for event in events:
        match event.params:
            case ItemStartedNotification(item=AgentMessageThreadItem(id=id_, text=text)):
                shown[id_] = text
            case ItemCompletedNotification(item=AgentMessageThreadItem(id=id_, text=text)):
                shown[id_] = text
            case AgentMessageDeltaNotification(item_id=id_, delta=delta):
                shown[id_] += delta
            case _:
                pass
    return shown


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that keeps few deltas and reads few events at a time."""
    monkeypatch.setattr(log_module, "MAX_RECENT", 4)
    monkeypatch.setattr(log_reader, "BATCH", 2)


def test_a_reader_gets_everything_after_its_position_once_and_in_order() -> None:
    speaker = Speaker()
    speaker.start("a")
    reader = speaker.log.reader(0)
    speaker.say("a", "x", "y")
    first = read_all(reader)
    speaker.complete("a")
    assert [event.seq for event in first + read_all(reader)] == [1, 2, 3, 4]
    assert [event.seq for event in read_all(speaker.log.reader(2))] == [3, 4]
    assert read_all(speaker.log.reader(4)) == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("after", range(41))
def test_a_reader_that_returns_at_any_position_ends_up_with_the_same_texts(after: int) -> None:
    """When deltas have expired, an open item is sent again as it stands, and then continues."""
    speaker = Speaker()
    whole = speaker.log.reader(0)
    heard: list[Event] = []
    speaker.begin_turn("u")
    for id_ in ("a", "b"):
        speaker.start(id_)
    for number in range(18):
        speaker.say("ab"[number % 2], str(number), ".")
        heard += read_all(whole)
        if number == 12:
            speaker.complete("a")
            speaker.start("a")
    before = [event for event in heard if event.seq <= after]
    reader = speaker.log.reader(after)
    missed = read_all(reader)
    speaker.say("a", "end")
    speaker.complete("b")
    rest = read_all(reader)
    expected = texts(heard + read_all(whole))
    assert texts([*before, *missed, *rest]) == expected
    seqs = [event.seq for event in [*before, *missed, *rest] if event.seq]
    assert seqs == sorted(set(seqs))


@pytest.mark.usefixtures("small")
def test_a_reader_cut_off_between_two_repeated_items_gets_both_the_next_time() -> None:
    speaker = Speaker()
    for id_ in ("a", "b"):
        speaker.start(id_)
        speaker.say(id_, *"0123456789")
    events = read_all(speaker.log.reader(1))
    again = [event for event in events if event.seq in (0, speaker.log.last_seq)]
    assert [event.seq for event in again] == [0, speaker.log.last_seq]
    cut = events[: events.index(again[0]) + 1]
    position = max(event.seq for event in cut)
    resumed = read_all(speaker.log.reader(position))
    assert texts(cut + resumed) == {"a": "0123456789", "b": "0123456789"}


def test_a_reader_that_joins_now_gets_the_open_items_as_they_stand() -> None:
    speaker = Speaker()
    speaker.start("a")
    speaker.complete("a")
    speaker.start("b")
    speaker.say("b", "so ", "far")
    reader = speaker.log.reader(None)
    joined = read_all(reader)
    speaker.say("b", "!")
    assert [(event.seq, event.method) for event in joined] == [(5, "item/started")]
    assert texts(joined + read_all(reader)) == {"b": "so far!"}


def test_a_reader_that_joins_a_quiet_thread_gets_nothing() -> None:
    speaker = Speaker()
    speaker.start("a")
    speaker.complete("a")
    assert read_all(speaker.log.reader(None)) == []


def test_deltas_are_kept_for_the_current_and_the_previous_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speaker = Speaker()
    for turn in ("one", "two", "three"):
        speaker.begin_turn(turn)
        speaker.start(turn)
        speaker.say(turn, "x", "y")
        speaker.complete(turn)
    methods = [event.method for event in read_all(speaker.log.reader(0))]
    assert methods.count("item/agentMessage/delta") == 0
    inside = [event.method for event in read_all(speaker.log.reader(6))]
    assert inside.count("item/agentMessage/delta") == 4
    monkeypatch.setattr(log_module, "MIN_RECENT", 1)
    monkeypatch.setattr(log_module, "MAX_RECENT_BYTES", 10)
    speaker = Speaker()
    speaker.start("long")
    speaker.say("long", *["abcd"] * 4)
    assert speaker.log.recent(1) is None


def test_unstored_events_of_any_kind_count_towards_the_limit_of_recent_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """600 progress messages of 1 MB were all kept, although deltas were limited to 4 MB."""
    monkeypatch.setattr(log_module, "MIN_RECENT", 1)
    monkeypatch.setattr(log_module, "MAX_RECENT_BYTES", 10_000)
    log = Speaker().log
    for _ in range(100):
        progress = McpToolCallProgressNotification("i", "x" * 1000, "t", "u")
        log.publish(n.ITEM_MCP_TOOL_CALL_PROGRESS, progress)
    assert log.recent(89) is None
    assert len(log.recent(98) or ()) == 2


def test_stored_events_that_are_no_longer_recent_are_read_from_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """60 changes of 10 MB to the settings were all kept in memory too."""

    class Measured(MemoryJournal):
        @property
        def size(self) -> int:  # type: ignore[override]  # a constant there, as in a file here
            return 1000 * len(self._events)

    monkeypatch.setattr(log_module, "MIN_RECENT", 1)
    monkeypatch.setattr(log_module, "MAX_RECENT_BYTES", 10_000)
    log = Speaker(Measured("t")).log
    for _ in range(100):
        log.publish(n.WARNING, WarningNotification("x" * 1000))
    assert log.recent(89) is None
    assert [event.seq for event in read_all(log.reader(0))] == list(range(1, 101))


def test_a_large_event_does_not_displace_the_deltas_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last note of a flood of output was lost: the completed item has the size of the flood."""
    monkeypatch.setattr(log_module, "MAX_RECENT_BYTES", 1000)
    speaker = Speaker()
    speaker.start("long")
    speaker.say("long", "x" * 900)
    speaker.say("long", "the last note")
    speaker.say("long", "y" * 900)
    assert [event.seq for event in speaker.log.recent(1) or ()] == [2, 3, 4]


def test_the_last_event_is_kept_whatever_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_module, "MAX_RECENT_BYTES", 10)
    speaker = Speaker()
    speaker.start("long")
    speaker.say("long", "x" * 100)
    assert [event.seq for event in speaker.log.recent(1) or ()] == [2]
    speaker.say("long", "y")
    assert [event.seq for event in speaker.log.recent(2) or ()] == [3]


class FullDisk(MemoryJournal):
    """A journal that refuses, and keeps, what it is given while it is full."""

    is_full = False

    def append(self, entries: Sequence[Entry], *, may_fill: bool = False) -> None:
        if self.is_full:
            raise StorageFailed("/home", OSError(errno.ENOSPC, ""))
        super().append(entries, may_fill=may_fill)

    def keep(self, entries: Sequence[Entry]) -> StorageFailed | None:
        try:
            self.append(entries)
        except StorageFailed as failure:
            return failure
        return None


def test_an_event_that_cannot_be_stored_is_published_and_reported() -> None:
    journal = FullDisk("t")
    speaker = Speaker(journal)
    failures: list[str] = []
    speaker.log.on_failure = lambda failure: failures.append(failure.code)
    speaker.start("a")
    journal.is_full = True
    speaker.start("b")

    assert [event.seq for event in read_all(speaker.log.reader(0))] == [1, 2]
    assert failures == ["ENOSPC"]


def test_an_event_about_a_failure_gets_the_next_number() -> None:
    """Two events had one number, and readers never got the last event of the log."""
    journal = FullDisk("t")
    log = Speaker(journal).log
    log.on_failure = lambda failure: log.publish_unstored(
        n.WARNING, WarningNotification(failure.code)
    )
    journal.is_full = True
    log.publish(n.WARNING, WarningNotification("first"))
    log.publish(n.WARNING, WarningNotification("second"))

    events = read_all(log.reader(0))
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert warnings_of(events) == ["first", "ENOSPC", "second", "ENOSPC"]


def test_a_required_event_that_cannot_be_stored_is_rejected() -> None:
    journal = FullDisk("t")
    log = EventLog(journal, lambda: 0)
    journal.is_full = True
    warning = WarningNotification("w")
    with pytest.raises(StorageFailed, match="No space left on device"):
        log.publish(n.WARNING, warning, required=True)
    with pytest.raises(StorageFailed, match="No space left on device"):
        log.store(InputConsumed("x"))

    assert (log.last_seq, list(log.reader(0).read())) == (0, [])


class SlowDisk(MemoryJournal):
    """A journal whose syncs end when a test says so."""

    def __init__(self) -> None:
        super().__init__("t")
        self.syncs: list[asyncio.Future[None]] = []

    def sync(self) -> asyncio.Future[None]:
        self.syncs.append(asyncio.get_running_loop().create_future())
        return self.syncs[-1]


async def test_an_event_waits_for_the_disk_and_later_ones_wait_behind_it() -> None:
    journal = SlowDisk()
    log = EventLog(journal, lambda: 0)
    reader = log.reader(0)
    failures: list[str] = []
    log.publish(n.WARNING, WarningNotification("first"))
    log.publish(
        n.WARNING,
        WarningNotification("held"),
        on_unsynced=lambda _event, failure: failures.append(failure.code),
    )
    log.publish(n.WARNING, WarningNotification("later"))

    assert warnings_of(reader.read()) == ["first"]
    assert warnings_of(log.reader(None).read()) == []
    assert warnings_of(reader.read()) == []
    journal.syncs[0].set_result(None)
    await log.published()
    assert warnings_of(reader.read()) == ["held", "later"]
    assert failures == []


async def test_an_event_that_cannot_be_stored_may_be_replaced_before_clients_receive_it() -> None:
    journal = SlowDisk()
    log = EventLog(journal, lambda: 0)
    reader = log.reader(0)

    def replace(event: Event, failure: StorageFailed) -> None:
        log.replace(event, n.WARNING, WarningNotification(failure.code))

    log.publish(n.WARNING, WarningNotification("held"), on_unsynced=replace)
    journal.syncs[0].set_exception(StorageFailed("/home", OSError(errno.EIO, "")))
    await log.published()

    assert warnings_of(reader.read()) == ["EIO"]


def warnings_of(events: Sequence[Event]) -> list[str]:
    """The messages of warnings."""
    return [
        event.params.message for event in events if isinstance(event.params, WarningNotification)
    ]


def test_a_log_without_a_journal_reports_expired_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_ANNOUNCED", 4)
    log = EventLog(None, lambda: 0)
    reader = log.reader(0)
    for _ in range(9):
        log.publish(n.THREAD_CLOSED, ThreadClosedNotification("t"))
    with pytest.raises(EventsExpired):
        reader.read()


def test_a_reader_of_a_closed_journal_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(MemoryJournal):
        def read(self, after: int, until: int | None = None) -> Iterator[Event]:
            raise ValueError(f"closed: nothing from {after} to {until}")

    monkeypatch.setattr(log_module, "MAX_RECENT", 4)
    speaker = Speaker(Closed("t"))
    speaker.start("a")
    speaker.say("a", *"0123456789")
    with pytest.raises(EventsExpired):
        speaker.log.reader(0).read()


def test_watchers_are_called_until_they_unsubscribe() -> None:
    speaker = Speaker()
    calls: list[str] = []
    wake: Callable[[], None] = lambda: calls.append("wake")  # noqa: E731 - a name for the type
    leave = speaker.log.watch(wake)
    speaker.start("a")
    leave()
    speaker.complete("a")
    assert (calls, speaker.log.watchers) == (["wake"], 0)
