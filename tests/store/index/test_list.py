"""Lists of threads: every one exactly once, in order, by every filter."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.builders import START_MS, Clock, Writer, meta
from treadle.protocol.base import JsonValue
from treadle.protocol.source import SessionSourceDetail, SubAgentSourceDetail, ThreadSpawn
from treadle.store.index.database import Database
from treadle.store.index.index import Index, Row, page_sql
from treadle.store.journal import BadCursor
from treadle.store.store import Store
from treadle.store.stored_thread import SortKey, ThreadMeta, ThreadQuery


def add(store: Store, clock: Clock, text: str = "hello", **changes: JsonValue) -> str:
    """Write a thread with one turn."""
    journal = store.create(meta(clock, **changes))
    Writer(journal, clock).turn(text, "hi")
    journal.close()
    return journal.thread_id


def ids(store: Store, **query: JsonValue) -> list[str]:
    return [thread.id for thread in store.list(ThreadQuery(**query)).data]


def test_a_thread_is_listed_after_its_first_message(store: Store, clock: Clock) -> None:
    """As upstream: a thread that was only started is not listed."""
    journal = store.create(meta(clock))
    assert ids(store) == []
    turn = Writer(journal, clock).turn("hello\nthere", "hi")
    (listed,) = store.list(ThreadQuery()).data
    journal.close()

    assert listed.id == journal.thread_id
    assert (listed.preview, listed.path, listed.model) == (
        "hello\nthere",
        journal.path,
        "mock-model",
    )
    assert turn.id


def test_pages_follow_the_requested_key_and_direction(store: Store, clock: Clock) -> None:
    first = add(store, clock)
    clock.tick()
    second = add(store, clock)
    clock.tick()
    journal, _ = store.open(first)
    Writer(journal, clock).turn("again", "yes")
    journal.close()

    assert ids(store) == [second, first]
    assert ids(store, sort_direction="asc") == [first, second]
    assert ids(store, sort_key="updated_at") == [first, second]
    assert ids(store, sort_key="recency_at", sort_direction="asc") == [second, first]


def test_cursors_lead_forward_and_back(store: Store, clock: Clock) -> None:
    threads = []
    for _ in range(5):
        threads.append(add(store, clock))
        clock.tick()
    newest_first = threads[::-1]

    page = store.list(ThreadQuery(limit=2))
    second = store.list(ThreadQuery(limit=2, cursor=page.next_cursor))
    back = ThreadQuery(cursor=second.backwards_cursor, sort_direction="asc")

    assert [thread.id for thread in second.data] == newest_first[2:4]
    assert [thread.id for thread in store.list(back).data] == threads[-2:]
    last = store.list(ThreadQuery(limit=2, cursor=second.next_cursor))
    assert ([thread.id for thread in last.data], last.next_cursor) == (newest_first[4:], None)


@pytest.mark.parametrize(("limit", "given_back"), [(0, 1), (None, 25), (1000, 28)])
def test_limits_are_clamped(store: Store, clock: Clock, limit: int | None, given_back: int) -> None:
    for _ in range(28):
        add(store, clock)

    assert len(ids(store, limit=limit)) == given_back


@pytest.mark.parametrize("cursor", ["garbage", "", "|", "1|", "x|y", "1" * 40 + "|a", "²|a"])
def test_an_invalid_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(BadCursor, match="invalid cursor"):
        store.list(ThreadQuery(cursor=cursor))


def test_filters(store: Store, clock: Clock) -> None:
    spawned = SessionSourceDetail(
        sub_agent=SubAgentSourceDetail(thread_spawn=ThreadSpawn(depth=1, parent_thread_id="p"))
    )
    here = add(store, clock, cwd="/here", source="cli")
    there = add(store, clock, cwd="/there", originator="other")
    run = add(store, clock, source="exec")
    server = add(store, clock, source="appServer")
    agent = add(store, clock, source=spawned, parent_thread_id=here)
    grandchild = add(store, clock, source=spawned, parent_thread_id=agent)

    def matches(**query: JsonValue) -> set[str]:
        return set(ids(store, **query))

    assert matches() == {here, there}
    assert matches(source_kinds=[]) == {here, there}
    assert matches(source_kinds=["cli", "exec"]) == {here, run}
    assert matches(source_kinds=["appServer"]) == {server}
    assert matches(source_kinds=["subAgent"]) == {agent, grandchild}
    assert matches(source_kinds=["subAgentReview"]) == set()
    assert matches(source_kinds=["subAgentThreadSpawn"], parent_thread_id=here) == {agent}
    assert matches(source_kinds=["subAgent"], ancestor_thread_id=here) == {agent, grandchild}
    assert matches(originators=["other"]) == {there}
    assert matches(excluded_thread_ids=[here]) == {there}
    assert matches(model_providers=[]) == {here, there}
    assert matches(model_providers=["mock_provider"]) == {here, there}
    assert matches(model_providers=["missing"]) == set()
    assert matches(archived=True) == set()


def test_several_folders_are_one_list(tmp_path: Path, clock: Clock) -> None:
    index = Index(Database(tmp_path))
    rows = [row(number, cwd=f"/{'abc'[number % 3]}") for number in range(30)]
    for each in rows:
        index.put(each)
    wanted = [each.meta.id for each in rows if each.meta.cwd != "/c"]

    query = ThreadQuery(cwd=["/b", "/a", "/a"], limit=7, sort_direction="asc")
    assert [thread.id for thread in pages(index, query)] == wanted
    assert index.page(ThreadQuery(cwd=[])).data == []
    index.close()


@pytest.mark.parametrize("term", ["needle", "eedl", "le in", "ne", "n", '"quoted"', "50%_"])
def test_search_finds_parts_of_preview_and_name(store: Store, clock: Clock, term: str) -> None:
    wanted = add(store, clock, 'a needle in "quoted" hay 50%_x')
    add(store, clock, "half a stack, 50 x")
    store.set_name(add(store, clock, "half a stack"), "some other title")

    assert ids(store, search_term=term) == [wanted]
    if term.upper() != term:
        assert ids(store, search_term=term.upper()) == []  # upstream: the case counts


def test_search_finds_names(store: Store, clock: Clock) -> None:
    named = add(store, clock)
    add(store, clock)
    store.set_name(named, "Grüße aus Köln")

    assert ids(store, search_term="GRÜSSE") == []
    assert ids(store, search_term="grüße") == []
    assert ids(store, search_term="Grüße") == [named]


def test_a_message_is_found_with_a_snippet(store: Store, clock: Clock) -> None:
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    writer.turn("first question", "the answer is forty-two, of course")
    query = ThreadQuery(mentions="Forty-Two")
    matches = store.search(query)
    writer.turn("second", "nothing of note")
    journal.close()
    add(store, clock)

    assert [thread.id for thread in matches.page.data] == [journal.thread_id]
    assert matches.snippets == ["the answer is forty-two, of course"]
    assert len(store.search(query).page.data) == 1
    assert store.search(ThreadQuery(mentions="unsaid")).page.data == []


def row(number: int, *, at: int = START_MS, **changes: JsonValue) -> Row:
    fields: dict[str, JsonValue] = {"id": f"thread-{number:06}", "cwd": "/w", "path": f"/{number}"}
    thread = meta(Clock(at), **(fields | changes))
    return Row(thread, at, at, at, has_message=True)


def pages(index: Index, query: ThreadQuery) -> Iterator[ThreadMeta]:
    """Yield all pages, one at a time."""
    cursor = query.cursor
    while True:
        page = index.page(_at(query, cursor))
        yield from page.data
        cursor = page.next_cursor
        if cursor is None:
            return


def _at(query: ThreadQuery, cursor: str | None) -> ThreadQuery:
    return ThreadQuery(
        cursor=cursor,
        limit=query.limit,
        sort_key=query.sort_key,
        sort_direction=query.sort_direction,
        cwd=query.cwd,
    )


times = st.lists(st.integers(min_value=0, max_value=3), min_size=1, max_size=40)


@settings(max_examples=40, deadline=None)
@given(
    before=times,
    during=times,
    limit=st.integers(min_value=1, max_value=7),
    key=st.sampled_from(["created_at", "updated_at", "recency_at"]),
    direction=st.sampled_from(["asc", "desc"]),
)
def test_existing_threads_are_listed_once_whatever_is_added_meanwhile(
    before: list[int], during: list[int], limit: int, key: SortKey, direction: str
) -> None:
    """The reference loses threads with equal times."""
    with TemporaryDirectory() as folder:
        index = Index(Database(Path(folder)))
        rows = [row(number, at=START_MS + at) for number, at in enumerate(before)]
        for each in rows:
            index.put(each)
        late = iter([row(1000 - number, at=START_MS + at) for number, at in enumerate(during)])
        seen = []
        query = ThreadQuery(
            limit=limit, sort_key=key, sort_direction="asc" if direction == "asc" else "desc"
        )
        for thread in pages(index, query):
            seen.append(thread.id)
            newcomer = next(late, None)
            if newcomer is not None:
                index.put(newcomer)
        index.close()

    assert len(seen) == len(set(seen))
    assert {each.meta.id for each in rows} <= set(seen)


@pytest.mark.parametrize("key", ["created_at", "updated_at", "recency_at"])
@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("cursor", [None, "5|x"])
def test_a_page_is_read_along_an_index(
    tmp_path: Path, key: SortKey, direction: str, cursor: str | None
) -> None:
    """Sorting all threads for each page would make lists slow."""
    index = Index(Database(tmp_path))
    for number in range(50):
        index.put(row(number))
    index.close()
    query = ThreadQuery(
        cursor=cursor,
        sort_key=key,
        sort_direction="asc" if direction == "asc" else "desc",
        model_providers=["a", "b"],
    )
    connection = sqlite3.connect(tmp_path / "treadle.sqlite")
    folders: list[str | None] = [None] if key == "recency_at" else [None, "/w"]
    for folder in folders:
        sql, values = page_sql(query, folder, 26)
        plan = [step[3] for step in connection.execute(f"explain query plan {sql}", values)]
        assert [step for step in plan if "TEMP B-TREE" in step or "SCAN" in step] == []
    connection.close()
