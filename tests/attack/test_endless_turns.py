"""A service that answers for ever, with nothing or with ever more, does not keep a turn busy."""

from __future__ import annotations

import json

import pytest

from tests.harness.model_server import Reply, calls, completed, created, done, says
from tests.harness.threads import EPILOGUE, Stage, outline, params_of
from treadle.engine import turn_limits
from treadle.engine.accounting import goals
from treadle.engine.conversation import model_context
from treadle.engine.turn_limits import MAX_EMPTY_RESPONSES
from treadle.protocol.base import JsonValue

KIB = 1024
LIMIT = 256 * KIB


def asks_to_continue(*items: JsonValue) -> Reply:
    """A reply that wants another request, as `pause_turn` of other providers."""
    end: JsonValue = {"type": "response.completed", "response": {"id": "r", "end_turn": False}}
    return Reply([created(), *map(done, items), end])


def grows(number: int) -> Reply:
    """A reply that adds as much to the model context as it may have, and a call."""
    reasoning = {"type": "reasoning", "id": f"rs{number}", "encrypted_content": "x" * LIMIT}
    call = {"type": "function_call", "call_id": f"c{number}", "name": "no", "arguments": "{}"}
    return Reply([created(), done({**reasoning, "summary": []}), done(call), completed()])


@pytest.fixture
def small_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits of a model context, which are 64 and 128 MiB."""
    monkeypatch.setattr(model_context, "MAX_HISTORY_BYTES", LIMIT // 2)
    monkeypatch.setattr(turn_limits, "MAX_CONTEXT_BYTES", LIMIT)


async def test_a_service_that_only_asks_to_continue_fails_the_turn(stage: Stage) -> None:
    """It made 780 requests per second, without an event for the client, until an interrupt."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(*[asks_to_continue()] * 2 * MAX_EMPTY_RESPONSES)
    failed = await client.run(thread_id)

    turn = params_of(failed, "turn/completed")[-1]["turn"]
    assert turn["status"] == "failed"
    assert turn["error"]["message"] == (
        f"the model asked to continue after {MAX_EMPTY_RESPONSES + 1} responses without an item"
    )
    assert len(stage.model.requests) == MAX_EMPTY_RESPONSES + 1


async def test_a_service_may_ask_to_continue_between_items(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    item = {"type": "message", "role": "assistant", "content": []}
    pauses = [asks_to_continue()] * MAX_EMPTY_RESPONSES
    stage.model.plays(*pauses, asks_to_continue({**item, "id": "m"}), *pauses, says("ok"))
    assert outline(await client.run(thread_id))[-2:] == EPILOGUE


@pytest.mark.usefixtures("small_context")
async def test_a_context_that_grows_by_responses_is_compacted_whatever_the_service_counts(
    stage: Stage,
) -> None:
    """Thirty responses of 15 MB, with zero tokens each, made requests of 450 MB and took 1 GB."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(grows(1), says("A summary."), grows(2), says("A summary."), says("ok"))
    assert outline(await client.run(thread_id))[-2:] == EPILOGUE

    sizes = [len(json.dumps(request.body["input"])) for request in stage.model.requests]
    assert [size < LIMIT // 2 for size in sizes] == [True, False, True, False, True]
    # The second response made the context too large for the output of its call.
    assert [request.outputs() for request in stage.model.requests[1::2]] == [
        {"c1": turn_limits.LEFT_OUT},
        {"c2": turn_limits.LEFT_OUT},
    ]


@pytest.mark.usefixtures("small_context")
async def test_a_side_conversation_that_grows_too_large_fails(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(grows(1), says("Not reached."))
    target = {"type": "custom", "instructions": "Read a.py"}
    await client.request("review/start", {"threadId": thread_id, "target": target})
    messages = await client.until("turn/completed")

    turn = params_of(messages, "turn/completed")[-1]["turn"]
    assert turn["status"] == "failed"
    assert turn["error"]["message"].startswith("the model context has ")
    assert turn["error"]["codexErrorInfo"] == "contextWindowExceeded"
    assert len(stage.model.requests) == 1


async def test_a_model_that_sets_goal_after_goal_stops(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new goal allowed as many turns as the one before, without a user."""
    monkeypatch.setattr(goals, "MAX_CONTINUATIONS", 2)
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    for number in range(6):
        create = calls("create_goal", {"objective": "more"}, f"c{number}")
        end = calls("update_goal", {"status": "complete"}, f"u{number}")
        stage.model.plays(create, end, create, says("ok", f"m{number}"))
    await client.start_turn(thread_id)
    await client.until(
        "thread/goal/updated", lambda params: params["goal"]["status"] == "budgetLimited"
    )

    assert len((await client.read(thread_id))["turns"]) == 3
    # The user takes part again.
    messages = await client.run(thread_id, "go on")
    assert outline(messages)[-1] == EPILOGUE[-1]
    await client.until("turn/started")


@pytest.mark.parametrize("budget", ["-5", "0", "1000000000001", "1" + "0" * 300])
async def test_a_goal_has_a_budget_that_every_client_can_read(stage: Stage, budget: str) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(calls("create_goal", f'{{"objective": "x", "token_budget": {budget}}}'))
    await client.run(thread_id)

    refused = "tokenBudget must be between 1 and 1000000000000"
    assert refused in stage.model.requests[-1].outputs()["call-1"]
    assert (await client.request("thread/goal/get", {"threadId": thread_id}))["goal"] is None
