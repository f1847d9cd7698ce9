"""Elicitations that end without an answer, or that belong to no turn."""

from __future__ import annotations

import pytest

from tests.harness.mcp import item_of, settled, stdio, text_of
from tests.harness.mcp_plain import FORM
from tests.harness.model_server import calls
from tests.harness.questions import answer, question
from tests.harness.threads import Client, Stage, line_of, params_of
from treadle.protocol.base import JsonValue

ASK = "mcpServer/elicitation/request"
RESOLVED = "serverRequest/resolved"
WAITING = {"type": "active", "activeFlags": ["waitingOnApproval"]}
BUSY: JsonValue = {"type": "active", "activeFlags": []}
IDLE = {"type": "idle"}
CALL = "call"


async def ready(stage: Stage, more: str = "") -> tuple[Client, str]:
    """A thread whose one MCP server is ready, and whose user can be asked."""
    stage.configure(more + stdio())
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="on-request")
    await settled(client, "mini")
    return client, thread_id


async def asked(stage: Stage, client: Client, thread_id: str, tool: str, **given: bool) -> str:
    """Have the model call a tool that asks, and give the id of the turn."""
    stage.model.plays(calls(f"mcp__mini__{tool}", given))
    turn_id = await client.start_turn(thread_id)
    await question(client, ASK)
    return turn_id


def calling(thread_id: str, tool: str) -> JsonValue:
    """A call that a client makes itself."""
    return {"threadId": thread_id, "server": "mini", "tool": tool, "arguments": {}}


async def until_answered(client: Client) -> list[JsonValue]:
    """Everything up to the answer to the client's own call, and that as the last."""
    messages, client.unread = client.unread, []
    while not messages or messages[-1].get("id") != CALL:
        messages.append(await client.peer.receive())
    return messages


def statuses(messages: list[JsonValue]) -> list[JsonValue]:
    """The published statuses of the thread."""
    return [params["status"] for params in params_of(messages, "thread/status/changed")]


async def test_a_withdrawn_elicitation_is_resolved_while_the_turn_continues(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    turn_id = await asked(stage, client, thread_id, "ask_in_vain", withdraws=True)
    await client.request("mcpServer/tool/call", calling(thread_id, "go_on"))
    messages = await client.until(RESOLVED)
    messages += await client.end_of(turn_id)

    assert params_of(messages, RESOLVED) == [{"threadId": thread_id, "requestId": 0}]
    assert statuses(messages) == [BUSY, IDLE]
    assert text_of(stage.model.requests[-1].outputs()["call-1"]) == "never mind"


async def test_an_elicitation_ends_with_its_mcp_server(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    turn_id = await asked(stage, client, thread_id, "ask")
    await client.refusal("mcpServer/tool/call", calling(thread_id, "die"))
    messages = await client.until(RESOLVED)
    messages += await client.end_of(turn_id)

    assert params_of(messages, RESOLVED) == [{"threadId": thread_id, "requestId": 0}]
    assert statuses(messages) == [BUSY, IDLE]
    assert item_of(messages)["status"] == "failed"
    assert messages[-1]["params"]["turn"]["status"] == "completed"


async def test_an_abandoned_elicitation_ends_with_the_turn(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    await asked(stage, client, thread_id, "ask_in_vain")
    await client.request("mcpServer/tool/call", calling(thread_id, "go_on"))
    messages = await client.until(RESOLVED)
    late = await stage.client()
    await late.request("thread/resume", {"threadId": thread_id})

    lines = [line_of(message) for message in messages]
    assert lines[-3:] == ["thread/status/changed idle", "turn/completed completed", RESOLVED]
    assert params_of(await late.settled(), ASK) == []


async def test_an_elicitation_ends_with_an_interrupted_turn(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    turn_id = await asked(stage, client, thread_id, "ask")
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    messages = await client.until(RESOLVED)

    lines = [line_of(message) for message in messages]
    assert lines[-3:] == ["thread/status/changed idle", "turn/completed interrupted", RESOLVED]


async def test_an_elicitation_of_a_clients_own_call_has_no_turn(
    stage: Stage,
) -> None:
    """Upstream: `turnId` is null when no turn is behind it."""
    client, thread_id = await ready(stage)
    asks = calling(thread_id, "ask")
    await client.peer.send({"id": CALL, "method": "mcpServer/tool/call", "params": asks})
    before = await client.until(ASK)
    await answer(client, before[-1], {"action": "accept", "content": {"name": "Bob"}})
    after = await until_answered(client)

    assert before[-1]["params"] == {
        "threadId": thread_id,
        "turnId": None,
        "serverName": "mini",
        "mode": "form",
        "_meta": None,
        "message": "Name?",
        "requestedSchema": FORM,
    }
    assert statuses(before) == [WAITING]
    assert [message.get("method") for message in after] == [
        RESOLVED,
        "thread/status/changed",
        None,
    ]
    assert statuses(after) == [IDLE]
    assert after[-1]["result"] == {"content": [{"type": "text", "text": "accept Bob"}]}


async def test_an_elicitation_without_a_turn_has_the_usual_deadline(stage: Stage) -> None:
    client, thread_id = await ready(stage, "[asks]\ndeadline_ms = 50\n")
    result = await client.request("mcpServer/tool/call", calling(thread_id, "ask"))

    assert result["content"] == [{"type": "text", "text": "decline"}]


@pytest.mark.parametrize("method", ["thread/unsubscribe", "thread/archive"])
async def test_an_elicitation_without_a_turn_ends_with_its_thread(
    stage: Stage, method: str
) -> None:
    client, thread_id = await ready(stage)
    await client.run(thread_id)
    asks = calling(thread_id, "ask")
    await client.peer.send({"id": CALL, "method": "mcpServer/tool/call", "params": asks})
    await question(client, ASK)
    await client.request(method, {"threadId": thread_id})
    messages = await until_answered(client)

    assert messages[-1]["error"]["message"].startswith("the MCP server 'mini' ended")
