"""A home: archiving, naming, forking, and several servers or programs that share it."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.store.builders import Clock, Writer, breakdown, message, meta
from treadle.protocol.base import GitInfo
from treadle.protocol.status import NotLoadedThreadStatus
from treadle.protocol.turn import Turn
from treadle.store.continuation import entries_of
from treadle.store.journal import Journal, ThreadNotFound
from treadle.store.records import Compacted, MetadataChanged, Named
from treadle.store.store import Store
from treadle.store.stored_thread import ThreadQuery, thread_snapshot


def thread(store: Store, clock: Clock, *texts: str) -> tuple[Journal, list[Turn]]:
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    return journal, [writer.turn(text, f"{text}!") for text in texts or ("hello",)]


def ids(store: Store, *, archived: bool = False) -> list[str]:
    return [each.id for each in store.list(ThreadQuery(archived=archived)).data]


def test_an_archived_thread_moves_away_and_can_be_restored(store: Store, clock: Clock) -> None:
    journal, turns = thread(store, clock)
    journal.close()
    assert journal.path is not None
    name = Path(journal.path).name

    archived = store.archive(journal.thread_id)
    assert (archived.path, archived.archived) == (
        str(store.home / "archived_sessions" / name),
        True,
    )
    assert (ids(store), ids(store, archived=True)) == ([], [journal.thread_id])
    assert store.read(journal.thread_id).turns == turns

    back = store.unarchive(journal.thread_id)
    assert (back.path, back.archived) == (journal.path, False)
    assert (ids(store), ids(store, archived=True)) == ([journal.thread_id], [])


def test_archiving_twice_finds_nothing_to_archive(store: Store, clock: Clock) -> None:
    journal, _ = thread(store, clock)
    journal.close()
    with pytest.raises(ThreadNotFound):
        store.unarchive(journal.thread_id)
    store.archive(journal.thread_id)
    with pytest.raises(ThreadNotFound):
        store.archive(journal.thread_id)


def test_a_thread_may_be_archived_while_it_is_open_here(store: Store, clock: Clock) -> None:
    journal, turns = thread(store, clock)
    moved = store.archive(journal.thread_id)
    turns.append(Writer(journal, clock).turn("still", "yes"))

    assert (journal.path, ids(store, archived=True)) == (moved.path, [journal.thread_id])
    journal.close()
    assert store.read(journal.thread_id).turns == turns
    assert ids(store, archived=True) == [journal.thread_id]


def test_a_deleted_thread_is_gone(store: Store, clock: Clock) -> None:
    journal, _ = thread(store, clock)
    journal.close()
    store.delete(journal.thread_id)

    assert ids(store) == []
    assert list(store.home.rglob("rollout-*")) == []
    with pytest.raises(ThreadNotFound):
        store.read(journal.thread_id)


def test_a_thread_may_be_deleted_while_it_is_open_here(store: Store, clock: Clock) -> None:
    journal, _ = thread(store, clock)
    store.delete(journal.thread_id)
    Writer(journal, clock).turn("too", "late")
    journal.append([])
    journal.close()

    assert (ids(store), list(store.home.rglob("rollout-*"))) == ([], [])


def test_names_are_stored_where_the_reference_stores_them(store: Store, clock: Clock) -> None:
    journal, _ = thread(store, clock)
    store.set_name(journal.thread_id, "first")
    journal.append([Named("second")])
    journal.close()

    lines = (store.home / "session_index.jsonl").read_text().splitlines()
    expected = {"id": journal.thread_id, "updated_at": "2026-09-21T14:13:20.000Z"}
    assert [json.loads(line) for line in lines] == [
        {**expected, "thread_name": "first"},
        {**expected, "thread_name": "second"},
    ]
    assert store.read(journal.thread_id).name == "second"


def test_a_name_from_another_program_is_seen(store: Store, clock: Clock) -> None:
    journal, _ = thread(store, clock)
    journal.close()
    with (store.home / "session_index.jsonl").open("a") as file:
        file.write(json.dumps({"id": journal.thread_id, "thread_name": "theirs"}) + "\nrubbish\n")

    assert [each.name for each in store.list(ThreadQuery()).data] == ["theirs"]
    assert store.read(journal.thread_id).name == "theirs"


def test_git_facts_of_open_and_closed_threads_can_change(store: Store, clock: Clock) -> None:
    journal, _ = thread(store, clock)
    assert store.update(
        journal.thread_id, lambda _: MetadataChanged(GitInfo(branch="a"))
    ).git_info == GitInfo("a")
    journal.close()
    assert store.update(journal.thread_id, lambda _: MetadataChanged(None)).git_info is None
    assert store.read(journal.thread_id).meta.git_info is None


def test_metadata_is_the_same_alone_and_in_the_list(store: Store, clock: Clock) -> None:
    journal, _ = thread(store, clock)
    journal.close()

    assert [store.read(journal.thread_id, turns=False).meta] == store.list(ThreadQuery()).data


def test_the_index_is_private_and_rebuilt_when_missing_or_broken(
    store: Store, clock: Clock
) -> None:
    journals = [thread(store, clock, text)[0] for text in ("one", "two", "three")]
    for journal in journals:
        journal.close()
    store.set_name(journals[0].thread_id, "named")
    store.update(journals[1].thread_id, lambda _: MetadataChanged(GitInfo(branch="b")))
    store.archive(journals[2].thread_id)
    listed = store.list(ThreadQuery())
    index = store.home / "treadle.sqlite"
    assert stat.S_IMODE(index.stat().st_mode) == 0o600
    store.close()

    for damage in (b"", b"no database at all" * 100):
        for path in store.home.glob("treadle.sqlite*"):
            path.unlink()
        if damage:
            index.write_bytes(damage)
        fresh = Store(store.home, clock=clock)
        assert fresh.list(ThreadQuery()) == listed
        assert ids(fresh, archived=True) == [journals[2].thread_id]
        fresh.close()


def test_an_index_of_another_version_is_rebuilt(store: Store, clock: Clock) -> None:
    journal, _ = thread(store, clock)
    journal.close()
    store.close()
    with sqlite3.connect(store.home / "treadle.sqlite") as connection:
        connection.execute("pragma user_version = 99")
    connection.close()

    fresh = Store(store.home, clock=clock)
    assert ids(fresh) == [journal.thread_id]
    fresh.close()


def test_two_servers_see_each_others_threads(store: Store, clock: Clock) -> None:
    other = Store(store.home, clock=clock)
    assert (ids(store), ids(other)) == ([], [])
    journal, turns = thread(store, clock)
    assert ids(other) == [journal.thread_id]
    clock.tick()
    turns.append(Writer(journal, clock).turn("more", "yes"))
    journal.close()

    again, stored = other.open(journal.thread_id)
    assert stored.turns == turns
    assert [each.updated_at for each in store.list(ThreadQuery()).data] == [clock.now // 1000]
    again.close()
    other.delete(journal.thread_id)
    assert ids(store) == []
    other.close()


def test_lines_that_another_program_appends_show_in_the_next_list(
    store: Store, clock: Clock
) -> None:
    journal, _ = thread(store, clock)
    journal.close()
    assert journal.path is not None
    assert len(ids(store)) == 1
    with Path(journal.path).open("a") as file:
        line = {"timestamp": "2031-01-01T00:00:00.000Z", "type": "event_msg", "payload": {}}
        file.write(json.dumps(line) + "\n")

    assert [each.updated_at for each in store.list(ThreadQuery()).data] == [1_924_992_000]


def test_files_that_appear_and_vanish_show_in_the_next_list(store: Store, clock: Clock) -> None:
    journal, _ = thread(store, clock)
    journal.close()
    assert journal.path is not None
    path = Path(journal.path)
    data = path.read_bytes()
    assert ids(store) == [journal.thread_id]
    path.unlink()
    assert ids(store) == []
    path.write_bytes(data)
    assert ids(store) == [journal.thread_id]


def copied(store: Store, clock: Clock, source: str, **cut: str) -> tuple[Sequence[Turn], Journal]:
    journal = store.create(meta(clock, forked_from_id=source))
    stored = store.cut(store.read(source), **cut)
    journal.append(entries_of(stored, journal.thread_id))
    stored = store.read(journal.thread_id)
    return stored.turns, journal


def test_a_fork_has_the_turns_context_and_usage_of_its_source(store: Store, clock: Clock) -> None:
    journal, turns = thread(store, clock, "one", "two")
    journal.append([Compacted("s", [message("user", "short")])])
    turns.append(Writer(journal, clock).turn("three", "three!"))
    found, fork = copied(store, clock, journal.thread_id)
    source, copy = store.read(journal.thread_id), store.read(fork.thread_id)

    assert found == turns
    assert (copy.history, copy.settings) == (source.history, source.settings)
    assert (copy.usage, copy.response_ids) == (source.usage, source.response_ids)
    assert copy.usage is not None
    assert copy.usage.total == breakdown(10)
    assert {event.params.thread_id for event in fork.read(0)} == {fork.thread_id}  # type: ignore[attr-defined]  # each has one
    journal.close()
    fork.close()


def test_a_fork_may_end_at_a_turn_or_before_it(store: Store, clock: Clock) -> None:
    journal, turns = thread(store, clock, "one", "two", "three")
    through, first = copied(store, clock, journal.thread_id, last_turn_id=turns[1].id)
    before, second = copied(store, clock, journal.thread_id, before_turn_id=turns[1].id)

    assert (through, before) == (turns[:2], turns[:1])
    assert store.read(second.thread_id).history == [
        message("user", "one"),
        message("assistant", "one!"),
    ]
    for each in (journal, first, second):
        each.close()


def test_stored_metadata_becomes_the_protocols_thread(store: Store, clock: Clock) -> None:
    journal, turns = thread(store, clock)
    journal.close()
    stored = store.read(journal.thread_id)

    shown = thread_snapshot(stored.meta, NotLoadedThreadStatus(), stored.turns)
    assert (shown.id, shown.session_id, shown.turns) == (stored.meta.id, stored.meta.id, turns)
    assert msgspec.json.decode(msgspec.json.encode(shown), type=type(shown)) == shown
