"""Files that a crash, a disk or another program left in a bad state."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.builders import Clock, Writer, message, meta
from treadle.protocol.item import AgentMessageThreadItem
from treadle.store.journal import Journal, ThreadCorrupt, ThreadNotFound
from treadle.store.rollout.reading import MAX_LINE_BYTES
from treadle.store.store import Store
from treadle.support.ids import uuid7


def path_of(journal: Journal) -> Path:
    assert journal.path is not None
    return Path(journal.path)


def written(store: Store, clock: Clock, turns: int = 2) -> Path:
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    for number in range(turns):
        writer.turn(f"question {number}", f"answer {number}")
    journal.close()
    return path_of(journal)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(min_value=1, max_value=6000))
def test_a_file_truncated_anywhere_loses_only_its_last_line(
    store: Store, clock: Clock, cut: int
) -> None:
    path = written(store, clock)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    left = whole[: max(first, len(whole) - cut)]
    path.write_bytes(left)
    expected = left[: left.rfind(b"\n") + 1]

    journal, stored = store.open_path(str(path))
    journal.append([])
    journal.close()

    # A last line that lacks only its line feed is complete.
    assert path.read_bytes() in {expected, left + b"\n"}
    items = [item for turn in stored.turns for item in turn.items]
    assert len(items) == path.read_bytes().count(b'"method":"item/completed"')
    path.unlink()


def test_zeros_that_a_broken_disk_left_are_cut_off_without_being_kept(
    store: Store, clock: Clock
) -> None:
    """Every slice was copied together with all later ones: that took minutes for 200 MiB."""
    path = written(store, clock)
    whole = path.read_bytes()
    os.truncate(path, len(whole) + MAX_LINE_BYTES + 1)
    tracemalloc.start()
    try:
        journal, stored = store.open_path(str(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    journal.append([])
    journal.close()

    assert path.read_bytes() == whole
    assert len(stored.turns) == 2
    assert peak < 8 * 1024 * 1024


def test_a_complete_last_line_without_line_feed_is_kept(store: Store, clock: Clock) -> None:
    path = written(store, clock)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])

    journal, _ = store.open_path(str(path))
    journal.close()

    assert path.read_bytes() == whole


def test_reading_ignores_a_line_that_is_being_written(
    store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(store, clock)
    before = store.read_path(str(path))
    with path.open("ab") as file:
        file.write(b'{"timestamp":"2026-01-01T00:00:00.000Z","type":"event_m')

    assert store.read_path(str(path)) == before
    assert caplog.records == []


def test_damaged_lines_are_skipped_with_a_warning_and_stay_in_the_file(
    store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(store, clock, turns=1)
    journal, before = store.open_path(str(path))
    damage = b'\xff\xfe\x00\n{"type":5}\n{}\n[]\n{"type":"event_msg","payload":7}\nnot json\n\n'
    with path.open("ab") as file:
        file.write(damage)
    journal.close()
    caplog.clear()

    journal, stored = store.open_path(str(path))
    turn = Writer(journal, clock).turn("more", "yes")
    journal.close()

    assert stored.turns == before.turns
    assert store.read_path(str(path)).turns == [*before.turns, turn]
    assert damage in path.read_bytes()
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_lines_of_unknown_types_change_nothing(store: Store, clock: Clock) -> None:
    path = written(store, clock)
    before = store.read_path(str(path))
    with path.open("ab") as file:
        file.write(b'{"timestamp":"","type":"hologram","payload":{"a":[1]}}\n')
        file.write(b'{"timestamp":"","type":"event_msg","payload":{"type":"dream"}}\n')
        file.write(b'{"timestamp":"","type":"treadle","treadle":{"record":"dream"}}\n')

    assert store.read_path(str(path)) == before


def test_lone_surrogates_in_a_line_of_another_program_are_replaced(
    store: Store, clock: Clock
) -> None:
    path = written(store, clock, turns=1)
    with path.open("ab") as file:
        file.write(
            b'{"timestamp":"","type":"response_item","payload":{"type":"message","role":"user",'
            b'"content":[{"type":"input_text","text":"a\\ud800b"}]}}\n'
        )

    last = store.read_path(str(path)).history[-1]
    assert last == message("user", "a\N{REPLACEMENT CHARACTER}b")


def test_a_line_of_ten_mebibytes_is_a_line(store: Store, clock: Clock) -> None:
    journal = store.create(meta(clock))
    big = AgentMessageThreadItem(id="big", text="x" * (10 << 20))
    turn = Writer(journal, clock).turn("hello", "hi", items=[big])
    journal.close()

    again, stored = store.open(journal.thread_id)
    again.close()
    assert stored.turns == [turn]


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b'{"type":"event_msg"}\n', b"\x00" * 50])
def test_a_file_without_its_first_line_is_corrupt(
    store: Store, clock: Clock, content: bytes
) -> None:
    path = written(store, clock)
    path.write_bytes(content)

    with pytest.raises(ThreadCorrupt):
        store.read_path(str(path))
    with pytest.raises(ThreadCorrupt):
        store.open_path(str(path))


def test_an_unknown_thread_is_not_found(store: Store) -> None:
    for attempt in (store.read, store.open, store.archive, store.unarchive, store.delete):
        with pytest.raises(ThreadNotFound):
            attempt(uuid7())
    with pytest.raises(ThreadNotFound):
        store.read_path("/nowhere/rollout.jsonl")


WRITER = """
import sys
from pathlib import Path
from tests.store.builders import Clock, Writer
from treadle.store.store import Store

journal, _ = Store(Path(sys.argv[1])).open(sys.argv[2])
writer = Writer(journal, Clock())
while True:
    # Printed only after it was appended, as a server does.
    print(writer.turn("question", "answer " * 50).id, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path, clock: Clock) -> None:
    """Kill -9 at random points: what was acknowledged is stored, and the thread continues."""
    store = Store(tmp_path / "threads", clock=clock)
    journal = store.create(meta(clock))
    journal.close()
    random = Random(3)  # noqa: S311  a test wants the same numbers each time
    acknowledged: list[bytes] = []
    for _ in range(6):
        command = [sys.executable, "-c", WRITER, str(store.home), journal.thread_id]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            acknowledged += [process.stdout.readline() for _ in range(random.randint(1, 25))]
            process.send_signal(signal.SIGKILL)
            acknowledged += [line for line in process.stdout if line.endswith(b"\n")]

        again, stored = store.open(journal.thread_id)
        again.close()
        completed = [turn for turn in stored.turns if turn.status == "completed"]
        assert {line.decode().strip() for line in acknowledged} <= {turn.id for turn in completed}
        assert all(len(turn.items) == 2 for turn in completed)
        assert path_of(again).read_bytes().endswith(b"\n")
    store.close()
