"""`thread/sample`: one question to a thread's model that does not become a part of the thread."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.model_server import calls, refuses, says
from tests.harness.threads import Client, Stage, text_input
from treadle.protocol.base import JsonValue


async def talked(stage: Stage) -> tuple[Client, str, str]:
    """Return a client, a thread with one turn, and that turn."""
    client = await stage.client()
    stage.model.plays(says("hello", "m1"))
    thread_id = await client.start()
    messages = await client.run(thread_id, "first")
    return client, thread_id, messages[-1]["params"]["turn"]["id"]


def asked(thread_id: str, turn_id: str, prompt: str = "a title?", **more: JsonValue) -> JsonValue:
    return {"threadId": thread_id, "expectedTurnId": turn_id, "prompt": prompt, **more}


async def test_the_answer_knows_the_thread_and_leaves_no_trace(stage: Stage) -> None:
    """Upstream 0.169."""
    client, thread_id, turn_id = await talked(stage)
    before = await client.request("thread/read", {"threadId": thread_id, "includeTurns": True})
    stage.model.plays(says("A title", "m2"))
    answer = await client.request("thread/sample", asked(thread_id, turn_id))
    after = await client.request("thread/read", {"threadId": thread_id, "includeTurns": True})
    await client.run(thread_id, "second")

    assert answer == {
        "sourceTurnId": turn_id,
        "responseId": "resp-m2",
        "text": "A title",
        "inputTokens": 10,
        "cachedInputTokens": 0,
        "outputTokens": 5,
    }
    assert before == after
    first, sampled, second = stage.model.requests
    assert sampled.conversation() == [
        ("user", "first"),
        ("assistant", "hello"),
        ("user", "a title?"),
    ]
    assert sampled.body["tools"] == first.body["tools"]
    assert second.conversation() == [
        ("user", "first"),
        ("assistant", "hello"),
        ("user", "second"),
    ]


async def test_an_answer_that_calls_a_tool_has_no_text_and_runs_nothing(stage: Stage) -> None:
    client, thread_id, turn_id = await talked(stage)
    stage.model.plays(calls("exec_command", {"cmd": f"touch {stage.workspace}/made"}, "c1"))
    answer = await client.request("thread/sample", asked(thread_id, turn_id))
    assert answer["text"] is None
    assert not (stage.workspace / "made").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expectedTurnId": "other"}, "sample source turn must be the latest finished turn"),
        ({"expectedTurnId": ""}, "thread/sample requires expectedTurnId and a prompt of at most"),
        ({"prompt": ""}, "thread/sample requires expectedTurnId and a prompt of at most"),
        ({"prompt": "é" * 2001}, "thread/sample requires expectedTurnId and a prompt of at most"),
        (
            {"threadId": "0199a213-81c0-7800-8aa1-bbab2a035a53"},
            "thread/sample requires a loaded source",
        ),
    ],
)
async def test_an_invalid_question_is_refused(
    stage: Stage, changes: JsonValue, message: str
) -> None:
    """Upstream's texts."""
    client, thread_id, turn_id = await talked(stage)
    error = await client.refusal("thread/sample", {**asked(thread_id, turn_id), **changes})
    assert (error.code, error.message[: len(message)]) == (-32600, message)
    assert len(stage.model.requests) == 1


async def test_a_thread_in_a_turn_answers_only_on_request(stage: Stage) -> None:
    client, thread_id, _ = await talked(stage)
    fifo = stage.workspace / "fifo"
    command = {"cmd": f"mkfifo {fifo}; read x < {fifo}", "yield_time_ms": 30_000}
    stage.model.plays(calls("exec_command", command, "c1"), says("It runs", "m2"))
    policy = {"approvalPolicy": "never", "sandboxPolicy": {"type": "dangerFullAccess"}}
    turn_id = await client.start_turn(thread_id, "run it", **policy)
    await client.until("item/started", lambda params: params["item"]["type"] == "commandExecution")

    error = await client.refusal("thread/sample", asked(thread_id, turn_id))
    question = asked(thread_id, turn_id, "what happens?", allowInProgressTurn=True)
    answer = await client.request("thread/sample", question)
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)

    assert error.message == "sample source must be idle"
    assert answer["text"] == "It runs"
    assert stage.model.requests[-1].outputs() == {"c1": "still running"}


async def test_a_cancelled_question_is_answered_with_an_error(stage: Stage) -> None:
    client, thread_id, turn_id = await talked(stage)
    stage.model.plays(says("never", "m2", ["part"], asyncio.Event()))
    await client.peer.send(
        {"id": 991, "method": "thread/sample", "params": asked(thread_id, turn_id)}
    )
    await stage.model.wait_for_request(2)
    assert await client.request("thread/sample/cancel", {"requestId": 77}) == {}
    assert await client.request("thread/sample/cancel", {"requestId": 991}) == {}
    while not any(message.get("id") == 991 for message in client.unread):
        client.unread.append(await client.peer.receive())
    (answer,) = [message for message in client.unread if message.get("id") == 991]

    assert (answer["error"]["code"], answer["error"]["message"]) == (-32603, "sample canceled")
    await client.run(thread_id, "the thread still works")


async def test_an_error_of_the_provider_is_returned(stage: Stage) -> None:
    client, thread_id, turn_id = await talked(stage)
    stage.model.plays(refuses(400, {"error": {"message": "no such model"}}))
    error = await client.refusal("thread/sample", asked(thread_id, turn_id))
    assert error.code == -32603
    assert "no such model" in error.message
    assert error.data["codexErrorInfo"] == "badRequest"


async def test_a_question_counts_toward_the_budget_of_the_thread(stage: Stage) -> None:
    """Ours: upstream has no budgets."""
    client = await stage.client()
    thread_id = await client.start(budget={"maxTokens": 25})
    messages = await client.run(thread_id, "first")
    question = asked(thread_id, messages[-1]["params"]["turn"]["id"])
    await client.request("thread/sample", question)
    error = await client.refusal("thread/sample", question)
    assert error.kind == "budgetExceeded"
    (turn,) = [
        message
        for message in await client.run(thread_id, "second", input=[text_input("second")])
        if message.get("method") == "turn/completed"
    ]
    assert turn["params"]["turn"]["error"]["codexErrorInfo"] == "sessionBudgetExceeded"
