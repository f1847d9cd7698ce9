"""The metadata that a client stores with a thread, and what a fork takes over."""

from __future__ import annotations

from pathlib import Path

from tests.harness.scripted import client_of, playing
from tests.harness.threads import outline, words
from treadle.model.scripted.script import AnyStep, calls, says

TAGS = {"ticket": "T-1", "labels": ["a", "b"]}


async def test_metadata_is_returned_with_the_thread_and_copied_to_forks(home: Path) -> None:
    async with playing(home, ["hello"]) as server, client_of(server) as client:
        started = await client.request("thread/start", {"metadata": TAGS})
        thread_id = started["thread"]["id"]
        assert started["thread"]["metadata"] == TAGS
        await client.run(thread_id)
        fork = await client.request("thread/fork", {"threadId": thread_id})
        assert fork["thread"]["metadata"] == TAGS
        plain = await client.request("thread/start", {})
        assert "metadata" not in plain["thread"]
    async with playing(home, []) as server, client_of(server) as client:
        assert (await client.read(thread_id))["metadata"] == TAGS
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        assert resumed["thread"]["metadata"] == TAGS


async def test_a_fork_continues_under_the_budget_of_its_source(home: Path) -> None:
    async with playing(home, ["one", "two"]) as server, client_of(server) as client:
        thread_id = await client.start(budget={"maxModelRequests": 1})
        assert outline(await client.run(thread_id))[-1] == "turn/completed completed"
        fork = (await client.request("thread/fork", {"threadId": thread_id}))["thread"]["id"]
        assert outline(await client.run(fork))[-1] == "turn/completed completed"
        assert outline(await client.run(fork))[-1] == "turn/completed failed"


async def test_commands_are_kept_whether_or_not_the_longer_history_is_asked_for(home: Path) -> None:
    """Upstream: persistExtendedHistory; 0.118 drops them without it."""
    ids = []
    for wish in (True, False):
        command = calls("exec_command", {"cmd": "echo hi", "login": False})
        script: list[list[AnyStep]] = [[command], [says("done")]]
        async with playing(home, script) as server, client_of(server) as client:
            ids.append(await client.start(persistExtendedHistory=wish))
            await client.run(ids[-1], "go")
    async with playing(home, []) as server, client_of(server) as client:
        for thread_id in ids:
            assert words(await client.read(thread_id)) == [["go", "commandExecution", "done"]]
