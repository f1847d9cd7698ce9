"""A long thread is read off the event loop: other requests are answered meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.model_server import says
from tests.harness.threads import Client, Stage
from tests.store.builders import Clock, Writer, meta
from treadle.protocol.base import JsonValue
from treadle.protocol.item import AgentMessageThreadItem
from treadle.store.journal import Event
from treadle.store.rollout.journal import FileJournal
from treadle.store.store import Store

SECONDS = 30
TURNS = 150


def write_long_thread(home: Path) -> str:
    """Write a thread of several megabytes, all of which every request reads."""
    clock = Clock()
    store = Store(home, clock=clock)
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    for number in range(TURNS):
        big = AgentMessageThreadItem(id=f"big-{number}", text="word " * 4000)
        writer.turn(f"question {number}", "answer", items=[big])
    journal.close()
    store.close()
    return journal.thread_id


async def answered_first(client: Client, method: str, params: JsonValue) -> str:
    """Send a slow request and then a quick one; return the method that is answered first."""
    await client.peer.send(
        {"id": "slow", "method": method, "params": params},
        {"id": "quick", "method": "thread/loaded/list", "params": {}},
    )
    first = ""
    waiting = {"slow": method, "quick": "thread/loaded/list"}
    async with asyncio.timeout(SECONDS):
        while waiting:
            message = await client.peer.receive()
            if message.get("id") in waiting and "method" not in message:
                assert "error" not in message, message
                first = first or waiting[message["id"]]
                del waiting[message["id"]]
    return first


REQUESTS: dict[str, JsonValue] = {
    "thread/read": {"includeTurns": True},
    "thread/turns/list": {"limit": 1},
    "thread/items/list": {"limit": 1},
    "thread/searchOccurrences": {"searchTerm": "question 7"},
    "thread/resume": {"excludeTurns": True},
    "thread/fork": {"excludeTurns": True},
}


@pytest.mark.parametrize("method", REQUESTS)
async def test_a_quick_request_overtakes_one_that_reads_a_long_thread(
    stage: Stage, method: str
) -> None:
    thread_id = await asyncio.to_thread(write_long_thread, stage.home)
    client = await stage.client()
    await client.request("thread/list", {})

    params = {"threadId": thread_id, **REQUESTS[method]}
    assert await answered_first(client, method, params) == "thread/loaded/list"


async def test_two_clients_that_resume_a_long_thread_share_it(stage: Stage) -> None:
    """The second one waits while the first one loads it, instead of being refused."""
    thread_id = await asyncio.to_thread(write_long_thread, stage.home)
    clients = [await stage.client() for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        answers = [
            tasks.create_task(client.request("thread/resume", {"threadId": thread_id}))
            for client in clients
        ]
    assert [len(answer.result()["thread"]["turns"]) for answer in answers] == [TURNS] * 3
    stage.model.plays(says("ok"))
    turn_id = await clients[0].start_turn(thread_id)
    for client in clients:
        await client.end_of(turn_id)


async def test_a_client_that_disconnects_while_a_thread_is_loaded_leaves_no_lease(
    stage: Stage,
) -> None:
    thread_id = await asyncio.to_thread(write_long_thread, stage.home)
    gone = await stage.client()
    await gone.peer.send(
        {"id": "slow", "method": "thread/resume", "params": {"threadId": thread_id}}
    )
    await gone.settled()
    await gone.peer.transport.close()
    client = await stage.client()
    answer = await client.request("thread/resume", {"threadId": thread_id, "excludeTurns": True})
    assert answer["thread"]["id"] == thread_id


async def test_events_that_happened_long_ago_are_read_off_the_event_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread_id = await asyncio.to_thread(write_long_thread, stage.home)
    threads: set[bool] = set()
    read = FileJournal.read

    def noting_read(self: FileJournal, after: int, until: int | None = None) -> Iterator[Event]:
        for event in read(self, after, until):
            threads.add(threading.current_thread() is threading.main_thread())
            yield event

    monkeypatch.setattr(FileJournal, "read", noting_read)
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id, "afterSeq": 0})
    await client.until("item/completed", lambda params: params["item"]["id"] == f"big-{TURNS - 1}")
    assert threads == {False}
