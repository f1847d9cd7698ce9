"""A first message that was acknowledged is visible after kill -9, without a resume."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.kills import watching_writes
from tests.harness.processes import spawn_server
from tests.harness.scripted import client_of, over, playing, write_script
from tests.harness.threads import Client, words
from treadle.model.scripted.script import says
from treadle.protocol.base import JsonValue
from treadle.store.lease import Lease
from treadle.transport.subprocess import SubprocessTransport

SECONDS = 50
WORDS = "first words"
MOMENTS = ("reply", "turn/started", "item/started", "item/completed", "turn/completed")


def killable(home: Path) -> SubprocessTransport:
    script = write_script(home.parent / "script.json", [[{"type": "says", "text": "ok"}]])
    return spawn_server(home, TREADLE_SCRIPT=str(script))


async def shown(client: Client) -> tuple[list[str], list[str]]:
    """Return the threads that a list and a search show."""
    listing = await client.request("thread/list", {})
    search = await client.request("thread/search", {"searchTerm": WORDS})
    return (
        [thread["id"] for thread in listing["data"] if thread["preview"] == WORDS],
        [hit["thread"]["id"] for hit in search["data"]],
    )


async def kill_after(home: Path, moment: str) -> str:
    """Send a message to a new thread, and kill the server at this moment."""
    transport = killable(home)
    async with asyncio.timeout(SECONDS), over(transport) as client:
        thread_id = await client.start()
        await client.start_turn(thread_id, WORDS)
        if moment != "reply":
            await client.until(moment)
        os.kill(transport.pid, signal.SIGKILL)
    return thread_id


def first_message(thread: JsonValue) -> Sequence[str]:
    return words(thread)[0][:1]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_next_server_shows_it(home: Path, moment: str) -> None:
    thread_id = await kill_after(home, moment)
    async with playing(home, [says("ok")]) as server, client_of(server) as client:
        assert await shown(client) == ([thread_id], [thread_id])
        thread = await client.read(thread_id)
        assert first_message(thread) == [WORDS]
        assert thread["turns"][0]["status"] in ("interrupted", "completed")
        turns = await client.request("thread/turns/list", {"threadId": thread_id})
        assert [turn["id"] for turn in turns["data"]] == [thread["turns"][0]["id"]]

        resumed = await client.request("thread/resume", {"threadId": thread_id})
        assert words(resumed["thread"]) == words(thread)
        ids = [[item["id"] for item in t["turns"][0]["items"]] for t in (thread, resumed["thread"])]
        assert ids[0] == ids[1]


async def test_another_server_on_the_same_home_shows_it(home: Path) -> None:
    async with playing(home, [says("ok")]) as server, client_of(server) as client:
        transport = killable(home)
        async with asyncio.timeout(SECONDS), over(transport) as other:
            thread_id = await other.start()
            # This server knows the thread as empty before the first message arrives.
            assert await shown(client) == ([], [])
            await other.start_turn(thread_id, WORDS)
            os.kill(transport.pid, signal.SIGKILL)

        assert await shown(client) == ([thread_id], [thread_id])
        assert first_message(await client.read(thread_id)) == [WORDS]


async def test_every_prefix_of_the_file_that_holds_the_message_shows_it(home: Path) -> None:
    """A kill leaves what was written until then: this tries each state that holds the message."""
    with watching_writes() as sizes:
        async with playing(home, [says("ok")]) as server, client_of(server) as client:
            thread_id = await client.start()
            await client.run(thread_id, WORDS)
    path, whole = rollout_in(home)
    states = [whole[:size] for size in sizes[path.stat().st_ino] if WORDS.encode() in whole[:size]]
    assert len(states) > 5

    for state in states:
        path.write_bytes(state + whole[len(state) : len(state) + 20])
        async with playing(home, [says("ok")]) as server, client_of(server) as client:
            # The server that is killed may still hold the thread, as a child of it may.
            lease = Lease.acquire(home, thread_id, 0)
            assert await shown(client) == ([thread_id], [thread_id])
            assert first_message(await client.read(thread_id)) == [WORDS]
            lease.release()
            assert await shown(client) == ([thread_id], [thread_id])
            assert first_message(await client.read(thread_id)) == [WORDS]


def rollout_in(home: Path) -> tuple[Path, bytes]:
    (path,) = home.rglob("rollout-*")
    return path, path.read_bytes()
