"""A journal whose file is closed while its thread is idle."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.descriptors import no_descriptors
from tests.store.builders import Clock, Writer, meta
from treadle.protocol.base import GitInfo
from treadle.store.journal import StorageFailed
from treadle.store.records import MetadataChanged, Named
from treadle.store.store import Store
from treadle.store.stored_thread import ThreadQuery


def test_entries_after_the_file_was_deleted_are_refused(store: Store, clock: Clock) -> None:
    """They would go to a file without a name, and be lost."""
    journal = store.create(meta(clock))
    assert journal.path is not None
    Path(journal.path).unlink()
    with pytest.raises(StorageFailed, match="ENOENT"):
        Writer(journal, clock).turn("hello", "hi")
    journal.close()


def test_entries_after_the_file_was_replaced_are_refused(store: Store, clock: Clock) -> None:
    journal = store.create(meta(clock))
    assert journal.path is not None
    path = Path(journal.path)
    other = path.with_suffix(".other")
    other.write_bytes(path.read_bytes())
    other.rename(path)
    with pytest.raises(StorageFailed, match="ESTALE"):
        Writer(journal, clock).turn("hello", "hi")
    journal.close()


def test_entries_follow_a_file_that_is_archived(store: Store, clock: Clock) -> None:
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    writer.turn("one", "1")
    store.archive(journal.thread_id)
    writer.turn("two", "2")
    journal.close()

    assert len(store.read(journal.thread_id).turns) == 2


def test_shortage_of_descriptors_loses_nothing(store: Store, clock: Clock) -> None:
    first = store.create(meta(clock))
    Writer(first, clock).turn("hello", "hi")
    first.close()
    journal, _ = store.open(first.thread_id)
    with no_descriptors():
        with pytest.raises(StorageFailed, match="EMFILE"):
            journal.append([Named("lost")])
        with pytest.raises(OSError, match="Too many open files"):
            store.open(journal.thread_id)
        with pytest.raises(OSError, match="Too many open files"):
            store.create(meta(clock))
        journal.close()

    reopened, stored = store.open(journal.thread_id)
    reopened.close()
    assert (len(stored.turns), stored.meta.name) == (1, None)
    updated = store.update(journal.thread_id, lambda _: MetadataChanged(GitInfo(branch="main")))
    assert updated.git_info == GitInfo(branch="main")


def test_file_that_could_not_be_opened_is_listed_later(store: Store, clock: Clock) -> None:
    journal = store.create(meta(clock))
    Writer(journal, clock).turn("hello", "hi")
    journal.close()
    assert journal.path is not None
    path = Path(journal.path)
    path.write_bytes(path.read_bytes() + b"\n")
    with no_descriptors(), suppress(OSError):
        store.list(ThreadQuery())

    assert [each.id for each in store.list(ThreadQuery()).data] == [journal.thread_id]
