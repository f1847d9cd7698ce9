"""Many turns and clients leave nothing behind in a server."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import pytest

from tests.harness.scripted import client_of, over, playing
from tests.harness.soak import rounds
from tests.harness.threads import Client, text_input
from treadle.engine.events import log as log_module
from treadle.engine.threads import MAX_IDLE
from treadle.model.scripted.script import Response, Script, plan, says, usage, waits_for
from treadle.server.server import Server
from treadle.transport.websocket.listener import WebSocketListener, connect_websocket

ANSWER: Response = [says("It is done.", deltas=2), usage(7, 5)]
SAME = Script(responses=[ANSWER], then="repeat")

# Enough for every buffer that has a limit to be full.
WARM_UP = rounds(500, least=300)
TURNS = rounds(1500)
THREADS = rounds(300, least=100)
# A turn stays in the model context, with its two messages, their parts and ids.
BLOCKS_PER_TURN = 30


@pytest.fixture(autouse=True)
def _few_announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the number of broadcasts that are kept, so that it is reached soon."""
    monkeypatch.setattr(log_module, "MAX_ANNOUNCED", 256)


def blocks() -> int:
    """The number of memory blocks that Python has allocated."""
    gc.collect()
    return sys.getallocatedblocks()


def watchers(server: Server) -> int:
    """The number of watchers of loaded threads."""
    loaded = [server.threads.get(id_) for id_ in server.threads.loaded_ids()]
    return sum(thread.log.watchers for thread in loaded)


async def run_turns(client: Client, thread_id: str, count: int) -> None:
    for _ in range(count):
        await client.run(thread_id)
        client.received.clear()


async def run_threads(client: Client, count: int) -> None:
    """Run a turn each, in threads that are unloaded afterwards."""
    for _ in range(count):
        thread_id = await client.start()
        await client.run(thread_id)
        await client.request("thread/unsubscribe", {"threadId": thread_id})
        await client.until("thread/closed")
        client.received.clear()


async def test_many_turns_in_one_thread_cost_only_the_model_context(
    home: Path,
) -> None:
    async with playing(home, SAME) as server, client_of(server) as client:
        thread_id = await client.start()
        await run_turns(client, thread_id, WARM_UP)
        tasks = len(asyncio.all_tasks())
        before = blocks()
        await run_turns(client, thread_id, TURNS)
        assert (blocks() - before) / TURNS < BLOCKS_PER_TURN
        assert len(asyncio.all_tasks()) == tasks
        assert watchers(server) == 1


async def test_many_unloaded_threads_leave_nothing(home: Path) -> None:
    async with playing(home, SAME) as server, client_of(server) as client:
        await run_threads(client, 150)
        tasks = len(asyncio.all_tasks())
        before = blocks()
        await run_threads(client, THREADS)
        assert (blocks() - before) / THREADS < 4
        assert len(asyncio.all_tasks()) == tasks
        assert server.threads.loaded_ids() == []


async def test_threads_whose_turns_end_without_subscribers_are_unloaded(home: Path) -> None:
    """All but a few, which may soon be requested again."""
    go_on = asyncio.Event()
    script = Script(responses=[[waits_for(go_on), says("done")]], then="repeat")
    async with playing(home, script) as server:
        async with client_of(server) as client:
            for _ in range(MAX_IDLE + 20):
                await client.start_turn(await client.start())
        assert len(server.threads.loaded_ids()) == MAX_IDLE + 20
        go_on.set()
        await settled_tasks(server)
        assert len(server.threads.loaded_ids()) == MAX_IDLE
        assert watchers(server) == 0


async def test_many_short_lived_clients_leave_nothing(home: Path) -> None:
    """Each subscribes and leaves during its own requests, some without closing."""
    script = Script(responses=[[plan("go"), says("x")], ANSWER], then="repeat")
    async with playing(home, script) as server, client_of(server) as keeper:
        thread_id = await keeper.start()
        listener = WebSocketListener("127.0.0.1", 0)
        await listener.start()
        url = "ws://{}:{}".format(*listener.address)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve(listener))
            # The first ones open the index for reading and for writing, and the thread's file.
            await come_and_go(url, thread_id, 5)
            before = await settled_tasks(server)
            files = open_files()
            await come_and_go(url, thread_id, rounds(200))
            assert await settled_tasks(server) == before
            assert len(server.sessions) == 1
            assert watchers(server) == 1
            assert server.threads.services.broadcasts.watchers == 1
            # Each thread that reads the index opens it; there are few of them.
            assert open_files() - files < 20
            serving.cancel()


async def come_and_go(url: str, thread_id: str, count: int) -> None:
    for number in range(count):
        async with over(await connect_websocket(url)) as client:
            await client.request("thread/resume", {"threadId": thread_id, "afterSeq": 0})
            if number % 3:
                params = {"threadId": thread_id, "input": [text_input("go")]}
                await client.request("turn/start", params)


def open_files() -> int:
    """The number of open descriptors of this process, where the system reports it."""
    folder = Path("/proc/self/fd")
    return sum(1 for _ in folder.iterdir()) if folder.exists() else 0


async def settled_tasks(server: Server) -> int:
    """The number of tasks after all turns have ended and all clients have left."""
    while len(server.sessions) > 1 or is_busy(server):  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)
    # The tasks of disconnected clients end by themselves after a moment.
    for _ in range(10):
        await asyncio.sleep(0)
    return len(asyncio.all_tasks())


def is_busy(server: Server) -> bool:
    return any(server.threads.get(id_).turn is not None for id_ in server.threads.loaded_ids())
