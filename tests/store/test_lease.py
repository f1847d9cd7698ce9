"""A thread has one writer, in one process; other processes learn which one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.store.builders import Clock, Writer, meta
from treadle.store.journal import ThreadLocked, ThreadNotFound
from treadle.store.records import MetadataChanged
from treadle.store.store import Store

HOLDER = """
import sys
from pathlib import Path
from treadle.store.store import Store

journal, _ = Store(Path(sys.argv[1])).open(sys.argv[2])
print("held", flush=True)
sys.stdin.readline()
journal.close()
print("free", flush=True)
sys.stdin.readline()
"""


@contextmanager
def holder(home: Path, thread_id: str) -> Iterator[subprocess.Popen[str]]:
    """Run another process that is the writer of a thread until its input ends."""
    command = [sys.executable, "-c", HOLDER, str(home), thread_id]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def thread_id(store: Store, clock: Clock) -> str:
    journal = store.create(meta(clock))
    Writer(journal, clock).turn("hello", "hi")
    journal.close()
    return journal.thread_id


def test_a_second_process_learns_which_process_is_the_writer(store: Store, thread_id: str) -> None:
    with holder(store.home, thread_id) as process:
        with pytest.raises(ThreadLocked) as refused:
            store.open(thread_id)

        assert (refused.value.pid, refused.value.host) == (process.pid, socket.gethostname())
        assert str(process.pid) in str(refused.value)


def test_reading_and_naming_need_no_lease(store: Store, thread_id: str) -> None:
    with holder(store.home, thread_id):
        assert len(store.read(thread_id).turns) == 1
        assert store.set_name(thread_id, "renamed").name == "renamed"


@pytest.mark.parametrize(
    "change",
    [
        Store.archive,
        Store.delete,
        lambda store, id_: store.update(id_, lambda _: MetadataChanged(None)),
    ],
    ids=["archive", "delete", "update"],
)
def test_changes_to_the_file_need_the_lease(
    store: Store, thread_id: str, change: Callable[[Store, str], object]
) -> None:
    with holder(store.home, thread_id), pytest.raises(ThreadLocked):
        change(store, thread_id)


def test_a_dead_writers_thread_is_taken_over(store: Store, thread_id: str) -> None:
    with holder(store.home, thread_id) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        journal, stored = store.open(thread_id)

    assert len(stored.turns) == 1
    journal.close()


def test_closing_a_journal_releases_the_thread(store: Store, thread_id: str) -> None:
    with holder(store.home, thread_id) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "free\n"
        journal, _ = store.open(thread_id)
        journal.close()


def test_within_one_process_a_thread_has_one_writer_too(store: Store, thread_id: str) -> None:
    journal, _ = store.open(thread_id)
    with pytest.raises(ThreadLocked) as refused:
        store.open(thread_id)
    journal.close()
    journal, _ = store.open(thread_id)
    journal.close()

    assert refused.value.pid == os.getpid()


def test_no_lock_file_is_left_behind(store: Store, thread_id: str) -> None:
    journal, _ = store.open(thread_id)
    locks = store.home / "thread-writer-locks"
    assert (locks / f"{thread_id}.lock").exists()
    journal.close()

    assert [path.name for path in locks.iterdir()] == [".coordination.lock"]


@pytest.mark.parametrize("id_", ["../../escaped", "", "a/b", ".."])
def test_an_id_never_leads_out_of_the_home(store: Store, clock: Clock, id_: str) -> None:
    with pytest.raises(ThreadNotFound):
        store.create(meta(clock, id=id_))
    assert list(store.home.parent.rglob("*escaped*")) == []
