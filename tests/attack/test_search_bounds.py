"""A search takes memory and time in proportion to the stored text, not to text times term."""

from __future__ import annotations

import resource
import tracemalloc
from pathlib import Path

import pytest

from tests.harness.model_server import says
from tests.harness.threads import Client, Stage
from tests.store.builders import Clock, Writer, meta
from treadle.protocol.base import JsonValue
from treadle.server.query_limits import MAX_TERM_CHARACTERS
from treadle.store.index import messages as speech
from treadle.store.store import Store
from treadle.store.stored_thread import MAX_PREVIEW_CHARACTERS, ThreadQuery

LIMIT = MAX_TERM_CHARACTERS


async def start_conversation(stage: Stage, client: Client, text: str) -> str:
    stage.model.plays(says("ok"))
    thread_id = await client.start()
    await client.run(thread_id, text)
    return thread_id


async def search_hits(client: Client, term: str) -> list[JsonValue]:
    answer = await client.request("thread/search", {"searchTerm": term})
    data: list[JsonValue] = answer["data"]
    return data


async def test_long_terms_are_refused_with_parameter_limit_and_length(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await start_conversation(stage, client, "hello")
    term = "x" * (LIMIT + 1)
    for method, params in {
        "thread/search": {"searchTerm": term},
        "thread/list": {"searchTerm": term},
        "thread/searchOccurrences": {"searchTerm": term, "threadId": thread_id},
    }.items():
        refused = await client.refusal(method, params)
        assert (
            refused.message == f"searchTerm must have at most {LIMIT} characters, not {LIMIT + 1}"
        )
        assert (refused.kind, refused.data["path"]) == ("invalidParams", "searchTerm")


@pytest.mark.parametrize("field", ["cwd", "modelProviders", "originators", "excludedThreadIds"])
async def test_long_filters_are_refused_and_do_no_harm(stage: Stage, field: str) -> None:
    """More values than an SQL statement can have would look like damage."""
    client = await stage.client()
    thread_id = await start_conversation(stage, client, "hello")
    refused = await client.refusal("thread/list", {field: [f"v{n}" for n in range(40_000)]})
    assert refused.message == f"{field} must have at most 1000 entries, not 40000"
    listing = await client.request("thread/list", {})
    assert [thread["id"] for thread in listing["data"]] == [thread_id]
    assert list(stage.home.glob("treadle.sqlite.damaged*")) == []


@pytest.mark.parametrize("length", [2, 3, 31, 32, 33, 200, LIMIT])
async def test_terms_of_every_length_find_what_was_said(stage: Stage, length: int) -> None:
    client = await stage.client()
    text = "".join(f"Word{number:05}é" for number in range(600))
    thread_id = await start_conversation(stage, client, text)
    await start_conversation(stage, client, text[:30] + "something else")
    term = text[10 : 10 + length]

    hits = await search_hits(client, term.upper())
    assert thread_id in [hit["thread"]["id"] for hit in hits]
    assert all(term.lower() in hit["snippet"].lower() for hit in hits)
    if length > 32:
        assert [hit["thread"]["id"] for hit in hits] == [thread_id]
        assert await search_hits(client, term[:-1] + "#") == []
    listing = await client.request("thread/list", {"searchTerm": term})
    # A list searches titles and previews, and previews are cut.
    is_in_preview = 10 + length <= MAX_PREVIEW_CHARACTERS
    assert (thread_id in [thread["id"] for thread in listing["data"]]) is is_in_preview


@pytest.mark.parametrize(
    "term", ['"""', "\0\0\0", "\0a\0b\0c", "***", "NEAR(", "%_\\", "AND OR NOT", "ab*"]
)
async def test_terms_are_not_parsed_as_syntax(stage: Stage, term: str) -> None:
    client = await stage.client()
    thread_id = await start_conversation(stage, client, f"before {term} after")
    await search_hits(client, term)
    await client.request("thread/list", {"searchTerm": term})
    hits = await search_hits(client, "before")
    assert [hit["thread"]["id"] for hit in hits] == [thread_id]
    assert list(stage.home.glob("treadle.sqlite.damaged*")) == []


async def test_the_worst_term_in_the_worst_message_is_cheap(stage: Stage) -> None:
    client = await stage.client()
    for _ in range(3):
        await start_conversation(stage, client, "a" * 1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert len(await search_hits(client, "a" * LIMIT)) == 3
    assert await search_hits(client, "a" * (LIMIT - 1) + "b") == []

    # In kilobytes: the messages themselves are read, but no table of term times message is built.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


async def test_unlimited_occurrences_are_returned_in_pages(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await start_conversation(stage, client, "Aa" * 300_000)
    search = {"threadId": thread_id, "searchTerm": "a", "limit": 4_000_000_000}
    tracemalloc.start()
    try:
        answer = await client.request("thread/searchOccurrences", search)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (len(answer["data"]), answer["nextCursor"]) == (1000, "1000")
    assert max(len(each["snippet"]) for each in answer["data"]) <= 161
    assert peak < 40_000_000
    search |= {"cursor": "599999"}
    rest = await client.request("thread/searchOccurrences", search)
    assert (len(rest["data"]), rest.get("nextCursor")) == (1, None)
    refused = await client.refusal("thread/searchOccurrences", {**search, "cursor": "700000"})
    assert refused.message == "cursor 700000 exceeds total matches 600000"


async def test_nearly_matching_terms_take_linear_time(stage: Stage) -> None:
    """A search that restarts after each character would take minutes."""
    client = await stage.client()
    thread_id = await start_conversation(stage, client, "ab" * 500_000)
    search = {"threadId": thread_id, "searchTerm": "ab" * (LIMIT // 2 - 1) + "aa"}
    answer = await client.request("thread/searchOccurrences", search)
    assert answer["data"] == []


def test_the_indexed_text_of_a_message_and_of_a_thread_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech, "MAX_CHARS", 1000)
    monkeypatch.setattr(speech, "MAX_THREAD_CHARS", 5000)
    clock = Clock()
    store = Store(tmp_path / "threads", clock=clock)
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    writer.turn("early " + "x" * 2000 + " beyond", "ok")
    for _ in range(10):
        writer.turn("y" * 1000, "ok")
    writer.turn("late", "ok")

    def hits(term: str) -> int:
        return len(store.search(ThreadQuery(mentions=term)).page.data)

    assert [hits(term) for term in ("early", "beyond", "yyyy", "late")] == [1, 0, 1, 0]
    journal.close()
    store.close()
