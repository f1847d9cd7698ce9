"""A client that finds a copy of a thread before it is complete waits until it is."""

from __future__ import annotations

import asyncio

from tests.harness.model_server import says
from tests.harness.stalls import stalled
from tests.harness.threads import Client, Stage, words
from treadle.engine.stored import forking

JOIN = "join"
ATTEMPTS = 50
SECONDS = 30


async def is_answered(client: Client) -> bool:
    """Whether the request to join is answered after some others, which are sent later."""
    for _ in range(ATTEMPTS):
        await client.request("thread/loaded/list", {})
        if any(message.get("id") == JOIN for message in client.unread):
            return True
    return False


async def test_a_client_that_joins_a_fork_early_receives_its_later_turns(stage: Stage) -> None:
    """It joined an object that was then replaced: no event of later turns reached it."""
    client, other = await stage.client(), await stage.client()
    stage.model.plays(*(says("ok", number=number) for number in range(2)))
    source = await client.start()
    await client.run(source, "first")

    async with asyncio.TaskGroup() as tasks:
        with stalled(forking, "entries_of") as stall:
            forked = tasks.create_task(client.request("thread/fork", {"threadId": source}))
            await stall.reached()
            (file,) = (
                file for file in stage.home.rglob("rollout-*.jsonl") if source not in file.name
            )
            fork = file.stem[-len(source) :]
            join = {"id": JOIN, "method": "thread/resume", "params": {"threadId": fork}}
            await other.peer.send(join)
            assert not await is_answered(other)
    assert forked.result()["thread"]["id"] == fork
    async with asyncio.timeout(SECONDS):
        while not await is_answered(other):
            pass

    turn_id = await client.start_turn(fork, "second")
    await client.end_of(turn_id)
    await other.end_of(turn_id)
    assert words(await other.read(fork)) == [["first", "ok"], ["second", "ok"]]


async def test_a_fork_whose_client_leaves_can_be_used_by_others(stage: Stage) -> None:
    """Its lease was kept by no thread in memory."""
    client, other = await stage.client(), await stage.client()
    stage.model.plays(*(says("ok", number=number) for number in range(2)))
    source = await client.start()
    await client.run(source, "first")

    with stalled(forking, "entries_of") as stall:
        await client.peer.send({"id": 0, "method": "thread/fork", "params": {"threadId": source}})
        await stall.reached()
        (file,) = (file for file in stage.home.rglob("rollout-*.jsonl") if source not in file.name)
        fork = file.stem[-len(source) :]
        await client.peer.transport.close()
    await other.request("thread/resume", {"threadId": fork})
    await other.run(fork, "second")
    assert words(await other.read(fork)) == [["first", "ok"], ["second", "ok"]]
