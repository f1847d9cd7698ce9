"""Syncs: off the event loop, shared by all waiters, and not trusted after a failure."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.builders import Clock, meta
from treadle.protocol import notifications as n
from treadle.protocol.error import WarningNotification
from treadle.store.journal import Event, Journal, StorageFailed
from treadle.store.store import Store


def warning(seq: int, text: str = "w") -> Event:
    """Return an event of any kind."""
    return Event(seq, 0, n.WARNING.method, WarningNotification(text))


def content_of(journal: Journal) -> bytes:
    """Return the content of a journal's file."""
    return Path(journal.path or "").read_bytes()


class SlowDisk:
    """Lets syncs continue, or fail, on demand."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.began = threading.Semaphore(0)
        self.errors: list[OSError] = []
        self.syncs = 0
        self._sync = os.fdatasync

    def fdatasync(self, descriptor: int) -> None:
        """Sync when the test allows it."""
        self.syncs += 1
        self.began.release()
        assert self.gate.wait(20)
        if self.errors:
            raise self.errors.pop()
        self._sync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    """Provide a disk whose syncs wait."""
    disk = SlowDisk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    yield disk
    disk.gate.set()


async def test_a_slow_sync_delays_only_its_waiters(
    store: Store, clock: Clock, disk: SlowDisk
) -> None:
    journal, other = store.create(meta(clock)), store.create(meta(clock))
    first = journal.sync()
    assert await asyncio.to_thread(disk.began.acquire, timeout=20)
    journal.append([warning(1)])
    other.append([warning(1)])

    assert not first.done()
    assert [event.seq for event in journal.read(0)] == [1]
    disk.gate.set()
    await first
    journal.close()
    other.close()


async def test_waiters_that_arrive_meanwhile_share_the_next_sync(
    store: Store, clock: Clock, disk: SlowDisk
) -> None:
    journal = store.create(meta(clock))
    first = journal.sync()
    assert await asyncio.to_thread(disk.began.acquire, timeout=20)
    later = []
    for number in range(5):
        journal.append([warning(number + 1)])
        later.append(journal.sync())
    disk.gate.set()
    await asyncio.wait([first, *later])

    assert disk.syncs == 2
    await journal.sync()
    assert disk.syncs == 2, "there is nothing left to sync"
    journal.close()


async def test_a_journal_may_be_closed_while_it_is_synced(
    store: Store, clock: Clock, disk: SlowDisk
) -> None:
    journal = store.create(meta(clock))
    synced = journal.sync()
    assert await asyncio.to_thread(disk.began.acquire, timeout=20)
    journal.close()
    again, _ = store.open(journal.thread_id)
    disk.gate.set()
    await synced
    again.close()


async def test_bytes_of_a_failed_sync_are_written_again(
    store: Store, clock: Clock, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel marks pages as clean that it could not write: the next sync would do nothing."""
    disk.gate.set()
    journal = store.create(meta(clock))
    await journal.sync()
    size = len(content_of(journal))
    journal.append([warning(1, "precious")])
    disk.errors.append(OSError(errno.EIO, ""))
    with pytest.raises(StorageFailed, match=r"Input/output error \(EIO\)"):
        await journal.sync()
    written: list[tuple[int, bytes]] = []
    pwrite = os.pwrite

    def spy(descriptor: int, data: bytes, offset: int) -> int:
        written.append((offset, data))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", spy)
    await journal.sync()

    ((offset, data),) = written
    assert offset == size
    assert b"precious" in data
    assert [event.seq for event in journal.read(0)] == [1]
    journal.close()


async def test_lines_that_the_disk_refused_precede_later_ones(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = store.create(meta(clock))
    journal.append([warning(1)])

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        failure = journal.keep([warning(2)])
        with pytest.raises(StorageFailed):
            journal.append([warning(3, "refused")])
        with pytest.raises(StorageFailed):
            await journal.sync()
        assert [event.seq for event in journal.read(0)] == [1, 2]
    assert failure is not None
    assert (failure.code, failure.folder) == ("ENOSPC", str(Path(journal.path or "").parent))
    journal.append([warning(3)])

    assert list(journal.read(0)) == [warning(1), warning(2), warning(3)]
    assert content_of(journal).count(b"\n") == 4
    journal.close()
    _, stored = store.open(journal.thread_id)
    assert stored.last_seq == 3
