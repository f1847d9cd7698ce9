"""What is appended to a journal is read back, in order, and is synced when required."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from traceback import walk_tb

import pytest

from tests.store.builders import Clock, Writer, meta
from treadle.engine.events.log import EventLog
from treadle.protocol import notifications as n
from treadle.protocol.error import WarningNotification
from treadle.protocol.item import AgentMessageThreadItem, with_times
from treadle.store.journal import Event, Journal, ThreadExists, ThreadFull
from treadle.store.memory import MemoryJournal
from treadle.store.records import InputQueued
from treadle.store.rollout import journal as journals
from treadle.store.rollout.journal import FileJournal
from treadle.store.store import SEQ_GAP, Store


def warning(seq: int, text: str = "careful") -> Event:
    return Event(seq, 1_790_000_000_123, n.WARNING.method, WarningNotification(text, "thr"))


@pytest.fixture(params=["file", "memory"])
def journal(request: pytest.FixtureRequest, store: Store, clock: Clock) -> Journal:
    return store.create(meta(clock), ephemeral=request.param == "memory")


def test_events_are_read_as_they_were_appended(journal: Journal, clock: Clock) -> None:
    writer = Writer(journal, clock)
    writer.turn("hello", "hi there")
    journal.append([warning(writer.events[-1].seq + 1)])

    assert [*writer.events, warning(writer.events[-1].seq + 1)] == list(journal.read(0))
    journal.close()


def test_reading_returns_only_the_requested_range(journal: Journal) -> None:
    journal.append([warning(seq) for seq in (1, 2, 5, 9)])

    assert [
        [event.seq for event in journal.read(after, until)]
        for after, until in ((1, 5), (2, None), (9, None), (0, 100))
    ] == [[2, 5], [5, 9], [], [1, 2, 5, 9]]
    assert journal.last_seq == 9
    journal.close()


def test_a_long_journal_is_read_from_near_the_requested_place(store: Store, clock: Clock) -> None:
    journal = store.create(meta(clock))
    for seq in range(1, 401):
        journal.append([warning(seq, "x" * 1000)])

    assert list(range(391, 401)) == [event.seq for event in journal.read(390)]
    assert list(range(100, 201)) == [event.seq for event in journal.read(99, 200)]
    journal.close()


def test_a_new_thread_is_a_private_file_before_anything_is_appended(
    store: Store, clock: Clock
) -> None:
    journal = store.create(meta(clock))

    assert journal.path is not None
    path = Path(journal.path)
    assert (stat.S_IMODE(path.stat().st_mode), path.read_bytes().count(b"\n")) == (0o600, 1)
    journal.close()


def test_an_append_is_one_system_call(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program that reads at the same time never sees half of it."""
    journal = store.create(meta(clock))
    writes: list[bytes] = []
    write = os.write

    def spy(descriptor: int, data: bytes) -> int:
        writes.append(bytes(data))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", spy)
    journal.append([warning(1), warning(2), warning(3)])

    assert [data.count(b"\n") for data in writes] == [3]
    journal.close()


def test_a_full_disk_leaves_no_partial_line(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = store.create(meta(clock))
    journal.append([warning(1)])
    write = os.write
    calls: list[int] = []

    def fills_up(descriptor: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:20])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fills_up)
        with pytest.raises(OSError, match="No space"):
            journal.append([warning(2)])
    journal.append([warning(2, "there is room again")])

    assert [warning(1), warning(2, "there is room again")] == list(journal.read(0))
    journal.close()


def test_a_new_writer_numbers_above_what_deltas_may_have_used(store: Store, clock: Clock) -> None:
    """Deltas are numbered but not stored: after a crash their numbers must not be reused."""
    journal = store.create(meta(clock))
    journal.append([warning(7)])
    journal.close()

    again, stored = store.open(journal.thread_id)
    assert (stored.last_seq, again.last_seq) == (7, 7 + SEQ_GAP)
    again.append([warning(again.last_seq + 1)])
    assert [event.seq for event in again.read(0)] == [7, 8 + SEQ_GAP]
    again.close()


def test_a_new_writer_numbers_above_events_that_a_power_cut_lost(
    store: Store, clock: Clock
) -> None:
    """Input is synced when it is accepted; the events that clients get afterwards are not."""
    journal = store.create(meta(clock))
    journal.append([InputQueued("i", [], "turn", next_seq=1)])
    journal.close()

    again, stored = store.open(journal.thread_id)
    assert (stored.last_seq, again.last_seq) == (1, 1 + SEQ_GAP)
    again.append([InputQueued("j", [], "turn", next_seq=again.last_seq + 1)])
    again.close()
    third, _ = store.open(journal.thread_id)
    assert third.last_seq == 2 + 2 * SEQ_GAP
    third.close()


def test_a_closed_journal_refuses_entries_and_may_be_closed_again(
    store: Store, clock: Clock
) -> None:
    journal = store.create(meta(clock))
    journal.close()
    journal.close()

    with pytest.raises(ValueError, match="is closed"):
        journal.append([warning(1)])


def test_records_about_a_closed_thread_are_dropped(store: Store, clock: Clock) -> None:
    """Another client archives a thread while a message about it is on its way."""
    journal = store.create(meta(clock))
    log = EventLog(journal, clock, open_items=list)
    journal.close()
    event = log.publish(n.WARNING, WarningNotification("late"))
    assert event.seq == 1


def test_an_id_is_used_once(store: Store, clock: Clock) -> None:
    first = meta(clock)
    store.create(first).close()
    clock.tick()

    with pytest.raises(ThreadExists):
        store.create(first)


def test_an_ephemeral_thread_leaves_nothing_on_disk(tmp_path: Path, clock: Clock) -> None:
    store = Store(tmp_path / "threads", clock=clock)
    journal = store.create(meta(clock), ephemeral=True)
    Writer(journal, clock).turn("hello", "hi")
    journal.close()

    assert isinstance(journal, MemoryJournal)
    assert (journal.path, (tmp_path / "threads").exists()) == (None, False)
    store.close()


def test_a_lone_surrogate_is_replaced_not_refused(store: Store, clock: Clock) -> None:
    """File names and broken output may hold such text; JSON cannot."""
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    turn = writer.turn("hello", "ok", items=[AgentMessageThreadItem(id="a", text="x\udc80y")])
    journal.close()

    item = store.read(journal.thread_id).turns[0].items[1]
    shown = AgentMessageThreadItem(id="a", text="x\N{REPLACEMENT CHARACTER}y")
    assert item == with_times(shown, clock.now, clock.now)
    assert turn.id == store.read(journal.thread_id).turns[0].id


def test_a_full_journal_keeps_little_and_writes_nothing_after_what_it_dropped(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outputs of thousands of commands would stay in memory; without some, no turn is whole."""
    monkeypatch.setattr(journals, "MAX_GROWN_BYTES", 10_000)
    monkeypatch.setattr(journals, "MAX_SMALL_BYTES", 100)
    monkeypatch.setattr(journals, "MAX_QUEUED_BYTES", 5_000)
    journal = store.create(meta(clock))
    assert isinstance(journal, FileJournal)
    failures = [journal.keep([warning(seq, "x" * 2_000)]) for seq in range(1, 40)]
    path = Path(journal.path or "")
    size = path.stat().st_size

    assert [failure is None for failure in failures[:3]] == [True, True, True]
    assert isinstance(failures[-1], ThreadFull)
    assert journal.pending is not None
    assert 0 < len(journal.pending[1]) <= 5_000
    with pytest.raises(ThreadFull):
        journal.append([warning(40)])
    journal.close()
    assert path.stat().st_size == size


def test_a_full_journal_stores_small_entries_and_what_ends_a_turn(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MAX_GROWN_BYTES", 1)
    journal = store.create(meta(clock))
    assert journal.is_full
    journal.append([warning(1)])
    with pytest.raises(ThreadFull):
        journal.append([warning(2, "x" * journals.MAX_SMALL_BYTES)])
    journal.append([warning(2, "x" * journals.MAX_SMALL_BYTES)], may_fill=True)

    assert [event.seq for event in journal.read(0)] == [1, 2]
    journal.close()


def test_failures_keep_no_copies_of_what_could_not_be_written(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns keep their failures: with a copy in each, memory grew with the square of the turns."""
    journal = store.create(meta(clock))

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        failures = [journal.keep([warning(seq, "x" * 2_000)]) for seq in range(1, 40)]

    for failure in filter(None, failures):
        frames = [frame for frame, _ in walk_tb(failure.__traceback__)]
        texts = [each for frame in frames for each in frame.f_locals.values()]
        assert max(len(text) for text in texts if isinstance(text, bytes)) < 3_000
        assert failure.__cause__ is not None
        assert failure.__cause__.__traceback__ is None
    journal.close()
