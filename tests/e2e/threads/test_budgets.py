"""Limits on tokens, model requests and time, of a turn and of a thread (ours)."""

from __future__ import annotations

import asyncio

from tests.harness.model_server import calls, says
from tests.harness.threads import EPILOGUE, FAILURE, Stage, outline, params_of
from treadle.protocol.base import JsonValue

PLAN: JsonValue = {"plan": []}


async def failure(messages: list[JsonValue]) -> str:
    """Why a turn failed, which must be for lack of budget."""
    assert outline(messages)[-3:] == FAILURE
    error = messages[-1]["params"]["turn"]["error"]
    assert error["codexErrorInfo"] == "sessionBudgetExceeded"
    return str(error["message"])


async def test_a_turn_ends_when_its_model_requests_are_used(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(*[calls("update_plan", PLAN, f"c{number}") for number in range(5)])
    messages = await client.run(thread_id, budget={"maxModelRequests": 2})

    assert await failure(messages) == "the turn's budget of 2 model requests is used"
    assert len(stage.model.requests) == 2
    stage.model.replies.clear()
    # It was the turn's budget: the next one has its own.
    assert outline(await client.run(thread_id))[-2:] == EPILOGUE


async def test_a_turn_ends_when_its_tokens_are_used(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(*[calls("update_plan", PLAN, f"c{number}") for number in range(5)])
    messages = await client.run(thread_id, budget={"maxTokens": 30})

    assert await failure(messages) == "the turn's budget of 30 tokens is used"
    assert len(params_of(messages, "thread/tokenUsage/updated")) == 2


async def test_a_turn_ends_when_its_time_is_up(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(says("never", "m1", ["n"], asyncio.Event()))
    messages = await client.run(thread_id, budget={"maxSeconds": 0.05})

    assert "budget of 0.05 s is used" in await failure(messages)


async def test_the_budget_of_a_thread_holds_for_all_its_turns_and_after_a_restart(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start(budget={"maxTokens": 30})
    await client.run(thread_id, "one")
    await client.run(thread_id, "two")
    spent = await failure(await client.run(thread_id, "three"))
    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})

    assert await failure(await client.run(thread_id, "four")) == spent
    assert spent == "the thread's budget of 30 tokens is used"
    assert len(stage.model.requests) == 2


async def test_the_time_between_turns_is_not_counted(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(budget={"maxSeconds": 30.0, "maxModelRequests": 2})
    await client.run(thread_id, "one")
    meters = stage.server.threads.get(thread_id).usage.meters

    assert [meter.started_at for meter in meters] == [None]
    assert [meter.requests for meter in meters] == [1]


async def test_a_fork_has_the_budget_of_its_source_counted_from_zero(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(budget={"maxModelRequests": 1})
    await client.run(thread_id, "one")
    forked = await client.request("thread/fork", {"threadId": thread_id})
    fork = forked["thread"]["id"]
    assert outline(await client.run(fork, "two"))[-2:] == EPILOGUE

    spent = await failure(await client.run(fork, "three"))
    assert spent == "the thread's budget of 1 model requests is used"
