"""An index that another process keeps locked delays only the index."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.harness.model_server import says
from tests.harness.stalls import stalled
from tests.harness.threads import Client, Stage, words
from treadle.protocol.base import JsonValue
from treadle.store.index import catalog, database, scanner
from treadle.store.index.database import IndexBusy
from treadle.store.index.writer import IndexWriter
from treadle.store.store import Store
from treadle.store.stored_thread import ThreadQuery

SECONDS = 30


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the lock that every change of the index needs."""
    connection = sqlite3.connect(home / "treadle.sqlite", isolation_level=None)
    connection.execute("begin immediate")
    try:
        yield
    finally:
        connection.execute("rollback")
        connection.close()


async def ids(client: Client) -> list[str]:
    answer = await client.request("thread/list", {})
    return [thread["id"] for thread in answer["data"]]


async def order_of_answers(client: Client, *requests: tuple[str, JsonValue]) -> list[str]:
    """Send requests at once, and return their methods in the order of the answers."""
    sent = {f"order-{number}": method for number, (method, _) in enumerate(requests)}
    await client.peer.send(
        *(
            {"id": id_, "method": method, "params": params}
            for id_, (method, params) in zip(sent, requests, strict=True)
        )
    )
    answered: list[str] = []
    async with asyncio.timeout(SECONDS):
        while len(answered) < len(sent):
            message = await client.peer.receive()
            if message.get("id") in sent and "method" not in message:
                assert "error" not in message, message
                answered.append(sent[message["id"]])
    return answered


async def test_threads_continue_while_the_index_is_locked(stage: Stage) -> None:
    client = await stage.client()
    stage.model.plays(says("one"), says("two"), says("three"))
    known = await client.start()
    await client.run(known, "first")
    assert await ids(client) == [known]
    await client.request("thread/unsubscribe", {"threadId": known})

    with locked(stage.home):
        async with asyncio.timeout(SECONDS):
            added = await client.start()
            await client.run(added, "second")
            assert words(await client.read(added)) == [["second", "two"]]
            await client.request("thread/resume", {"threadId": known})
            await client.run(known, "third")
            assert words(await client.read(known)) == [["first", "one"], ["third", "three"]]
            # A list shows what the index has, because nothing can be added to it.
            assert await ids(client) == [known]
    assert set(await ids(client)) == {known, added}


async def test_a_list_that_waits_delays_no_other_request(stage: Stage) -> None:
    client = await stage.client()
    stage.model.plays(says("one"))
    thread_id = await client.start()
    await client.run(thread_id, "first")
    await ids(client)

    with locked(stage.home):
        await client.start()
        order = await order_of_answers(
            client,
            ("thread/list", {}),
            ("thread/search", {"searchTerm": "first"}),
            ("thread/start", {}),
            ("thread/loaded/list", {}),
        )
    assert set(order[:2]) == {"thread/start", "thread/loaded/list"}
    assert set(order[2:]) == {"thread/list", "thread/search"}


async def test_threads_are_moved_named_and_removed_while_the_index_is_locked(stage: Stage) -> None:
    client = await stage.client()
    stage.model.plays(*(says("ok", number=number) for number in range(3)))
    threads = [await client.start() for _ in range(3)]
    for thread_id in threads:
        await client.run(thread_id, "hello")
    assert set(await ids(client)) == set(threads)

    with locked(stage.home):
        async with asyncio.timeout(SECONDS):
            await client.request("thread/archive", {"threadId": threads[0]})
            await client.request("thread/delete", {"threadId": threads[1]})
            await client.request("thread/name/set", {"threadId": threads[2], "name": "named"})
    (left,) = (await client.request("thread/list", {}))["data"]
    assert (left["id"], left["name"]) == (threads[2], "named")
    archived = await client.request("thread/list", {"archived": True})
    assert [thread["id"] for thread in archived["data"]] == [threads[0]]


async def test_a_thread_that_the_index_has_at_its_old_place_is_found(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await stage.client()
    stage.model.plays(*(says("ok", number=number) for number in range(2)))
    threads = [await client.start() for _ in range(2)]
    for thread_id in threads:
        await client.run(thread_id, "hello")
    await ids(client)

    with locked(stage.home), monkeypatch.context() as patched:
        patched.setattr(database, "BUSY_SECONDS", 0.05)
        patched.setattr(catalog, "SETTLE_SECONDS", 0.05)
        async with asyncio.timeout(SECONDS):
            for thread_id in threads:
                await client.request("thread/archive", {"threadId": thread_id})
            await client.request("thread/delete", {"threadId": threads[1]})
            await client.request("thread/unarchive", {"threadId": threads[0]})
    assert await ids(client) == [threads[0]]
    archived = await client.request("thread/list", {"archived": True})
    assert archived["data"] == []


async def test_a_thread_is_archived_while_the_files_are_scanned(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change waited for the scan, which waited to write: until one of them gave up."""
    monkeypatch.setattr(catalog, "SETTLE_SECONDS", 10 * SECONDS)
    client, other = await stage.client(), await stage.client()
    stage.model.plays(says("one"))
    thread_id = await client.start()
    await client.run(thread_id, "first")
    await client.request("thread/unsubscribe", {"threadId": thread_id})
    assert await ids(client) == [thread_id]

    async with asyncio.TaskGroup() as tasks:
        with stalled(scanner, "newest_first") as stall:
            listing = tasks.create_task(ids(other))
            await stall.reached()
            async with asyncio.timeout(SECONDS):
                await client.request("thread/archive", {"threadId": thread_id})
    assert listing.result() == []


async def test_a_thread_is_listed_as_soon_as_its_message_is_accepted(stage: Stage) -> None:
    """The index is written in the background, but a list waits for it."""
    client = await stage.client()
    for _ in range(20):
        gate = asyncio.Event()
        stage.model.plays(says("late", None, (), gate))
        thread_id = await client.start()
        turn_id = await client.start_turn(thread_id)
        assert (await ids(client))[0] == thread_id
        gate.set()
        await client.end_of(turn_id)


def test_a_stopped_process_that_opens_the_index_is_not_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for the lock that serializes opening has a timeout."""
    monkeypatch.setattr(database, "OPEN_SECONDS", 0.05)
    pid = os.fork()
    if pid == 0:
        import fcntl

        descriptor = os.open(home / "treadle.sqlite.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    try:
        os.waitpid(pid, os.WUNTRACED)
        store = Store(home)
        assert store.list(ThreadQuery()).data == []
        store.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_the_changes_that_wait_for_the_index_are_bounded() -> None:
    lost: list[int] = []
    numbers = count()

    def busy(_changes: object) -> None:
        raise IndexBusy

    writer = IndexWriter(busy, lambda: lost.append(1))
    for _ in range(25_000):
        writer.put(next(numbers), lambda: None)
    assert len(lost) == 2
    assert not writer.flush(0.01)
    writer.close(0.01)
