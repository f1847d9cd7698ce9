"""Two servers on one home: one list of threads, and one writer for each thread."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.harness.processes import spawn_server
from tests.harness.scripted import over, write_script
from tests.harness.threads import Client, Refused, words
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import SubprocessTransport

SECONDS = 30
SLOW = [["one"], [{"type": "says", "text": "so far"}, {"type": "waits", "seconds": 60}]]


def server(home: Path) -> SubprocessTransport:
    script = write_script(home.parent / "script.json", SLOW, then="repeat")
    return spawn_server(home, TREADLE_SCRIPT=str(script))


async def listed(client: Client) -> list[JsonValue]:
    answer = await client.request("thread/list", {})
    return [(thread["id"], thread["preview"]) for thread in answer["data"]]


async def test_a_thread_in_use_is_listed_by_both_and_rejected_with_the_name_of_its_owner(
    home: Path,
) -> None:
    """Ours: the error names the process, so that the user can end it."""
    owner = server(home)
    async with asyncio.timeout(SECONDS), over(owner) as one, over(server(home)) as two:
        thread_id = await one.start()
        await one.run(thread_id, "first")
        other_id = await two.start()
        await two.run(other_id, "second")
        refused = await two.refusal("thread/resume", {"threadId": thread_id})
        assert refused.code == -32600
        assert refused.kind == "threadLocked"
        assert refused.data["pid"] == owner.pid
        assert str(owner.pid) in refused.message
        assert words(await two.read(thread_id)) == [["first", "one"]]
        both = {(thread_id, "first"), (other_id, "second")}
        assert set(await listed(one)) == set(await listed(two)) == both
        # Forking needs no lease: the source is only read.
        answer = await two.request("thread/fork", {"threadId": thread_id})
        assert words(answer["thread"]) == [["first", "one"]]


async def test_threads_of_a_killed_server_are_taken_over_at_once(home: Path) -> None:
    """Ours: including its running turn, which is published as ended."""
    owner = server(home)
    async with asyncio.timeout(SECONDS), over(server(home)) as heir:
        async with over(owner) as one:
            thread_id = await one.start()
            await one.run(thread_id, "first")
            turn_id = await one.start_turn(thread_id, "second")
            await one.until("item/completed", lambda params: params["item"].get("text") == "so far")
            assert (await heir.refusal("thread/resume", {"threadId": thread_id})).kind == (
                "threadLocked"
            )
            os.kill(owner.pid, signal.SIGKILL)
            answer = await resumed(heir, thread_id)
        first, second = answer["thread"]["turns"]
        assert (first["status"], second["id"], second["status"]) == (
            "completed",
            turn_id,
            "interrupted",
        )
        assert "the server ended" in second["error"]["message"]
        assert words(answer["thread"]) == [["first", "one"], ["second", "so far"]]
        assert words(await heir.read(thread_id)) == words(answer["thread"])
        await heir.run(thread_id, "third")


async def resumed(client: Client, thread_id: str) -> JsonValue:
    """Resume as soon as the killed process is gone, which may take a moment."""
    while True:
        try:
            return await client.request("thread/resume", {"threadId": thread_id})
        except Refused as refused:
            if refused.kind != "threadLocked":
                raise


async def test_an_unloaded_thread_is_free_for_the_other_server(home: Path) -> None:
    async with asyncio.timeout(SECONDS), over(server(home)) as one, over(server(home)) as two:
        thread_id = await one.start()
        await one.run(thread_id, "first")
        await one.request("thread/unsubscribe", {"threadId": thread_id})
        await one.until("thread/closed")
        answer = await two.request("thread/resume", {"threadId": thread_id})
        assert words(answer["thread"]) == [["first", "one"]]
        await two.run(thread_id, "second")
        refused = await one.refusal("thread/resume", {"threadId": thread_id})
        assert refused.kind == "threadLocked"
        assert len((await one.read(thread_id))["turns"]) == 2


async def test_a_rejected_resume_leaves_the_thread_free(home: Path) -> None:
    async with asyncio.timeout(SECONDS), over(server(home)) as one:
        thread_id = await one.start()
        await one.run(thread_id, "first")
        await one.request("thread/unsubscribe", {"threadId": thread_id})
        await one.until("thread/closed")
        params = {"threadId": thread_id, "modelProvider": "missing", "afterSeq": 2**50}
        await one.refusal("thread/resume", params)
        async with over(server(home)) as two:
            await two.request("thread/resume", {"threadId": thread_id})
