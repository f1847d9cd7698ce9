"""A request that waits while its thread is unloaded starts no turn of it."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.model_server import says
from tests.harness.stalls import stalled
from tests.harness.threads import Refused, Stage
from treadle.config.configuration import Configuration


async def test_a_review_of_a_thread_that_was_archived_meanwhile_is_refused(stage: Stage) -> None:
    """It ran to its end without being stored, and no client received its events."""
    client, other = await stage.client(), await stage.client()
    stage.model.plays(says("ok"), says("a review", number=1))
    thread_id = await client.start()
    await client.run(thread_id)
    target = {"type": "custom", "instructions": "review it"}
    async with asyncio.TaskGroup() as tasks:
        with stalled(Configuration, "effective") as stall:
            params = {"threadId": thread_id, "target": target}
            review = tasks.create_task(client.refusal("review/start", params))
            await stall.reached()
            await other.request("thread/archive", {"threadId": thread_id})
    assert review.result().message == f"thread not found: {thread_id}"
    assert len(stage.model.requests) == 1


async def test_an_unloaded_thread_starts_no_turn_for_its_goal(stage: Stage) -> None:
    client = await stage.client()
    stage.model.plays(says("ok"))
    thread_id = await client.start()
    await client.run(thread_id)
    goal = {"threadId": thread_id, "objective": "all", "status": "paused"}
    await client.request("thread/goal/set", goal)
    thread = stage.server.threads.get(thread_id)
    await client.request("thread/archive", {"threadId": thread_id})
    thread.pursue_goal()
    assert thread.turn is None
    with pytest.raises(Refused, match="not found"):
        await client.request("thread/compact/start", {"threadId": thread_id})
