"""Values of a wrong type or size in the response of a provider make nothing else unreadable."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.model_server import Reply, completed, created, done, message, says
from tests.harness.threads import Stage, params_of, text_input
from treadle.model.anthropic.stream import AnthropicStream
from treadle.model.base import MAX_TOKENS, ModelError
from treadle.model.responses.stream import ResponsesStream
from treadle.model.tools import Functions
from treadle.protocol.base import JsonValue
from treadle.support.text.json_text import MAX_REPAIRED

FAILED: JsonValue = {"type": "response.failed", "response": {"error": {"message": "broken"}}}
USAGE = "thread/tokenUsage/updated"


@pytest.mark.parametrize("kind", ["tool_search_call", "function_call_output"])
async def test_call_whose_id_is_no_text_leaves_a_history_that_can_be_sent(
    stage: Stage, kind: str
) -> None:
    steered = asyncio.Event()
    item: JsonValue = {"type": kind, "call_id": [1], "execution": "client", "arguments": {}}
    stage.model.plays(Reply([created(), done(item), steered, FAILED]), says("ok"))
    client = await stage.client()
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    more = {"threadId": thread_id, "expectedTurnId": turn_id, "input": [text_input("and this")]}
    await client.request("turn/steer", more)
    steered.set()
    ended = params_of(await client.end_of(turn_id), "turn/completed")[-1]["turn"]
    await client.run(thread_id, "next")

    request = stage.model.requests[-1]
    assert ended["status"] == "failed"
    assert [text for _role, text in request.messages("user")][-2:] == ["and this", "next"]
    sent = request.body["input"]
    assert all(isinstance(each["call_id"], str) for each in sent if "call_id" in each)
    if kind == "tool_search_call":
        assert len([each for each in sent if "call_id" in each]) == 2, "the call has an output"


async def test_message_with_fields_of_wrong_types_does_not_end_the_turn(stage: Stage) -> None:
    item: JsonValue = {"type": "message", "id": ["m"], "role": "assistant", "phase": {"a": None}}
    content: JsonValue = [{"type": "output_text", "text": "said", "annotations": 5}, 7, None]
    stage.model.plays(Reply([created(), done({**item, "content": content}), completed()]))
    client = await stage.client()
    thread_id = await client.start()
    ended = params_of(await client.run(thread_id), "turn/completed")[-1]["turn"]

    assert ended["status"] == "completed", ended["error"]
    assert (await client.read(thread_id))["turns"][0]["items"][-1]["text"] == "said"


@pytest.mark.parametrize("tokens", [2**63, -(2**63), 10**400])
async def test_impossible_number_of_tokens_leaves_the_usage_of_a_thread_readable(
    stage: Stage, tokens: int
) -> None:
    usage: JsonValue = {"input_tokens": 1, "output_tokens": tokens, "total_tokens": 2}
    end: JsonValue = {"type": "response.completed", "response": {"id": "resp-0", "usage": usage}}
    stage.model.plays(Reply([created("resp-0"), *message("one", "m"), end]), says("two"))
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id)
    total = params_of(await client.run(thread_id), USAGE)[-1]["tokenUsage"]["total"]
    assert all(0 <= count <= 2 * MAX_TOKENS for count in total.values())

    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})
    stage.model.plays(says("three", number=2, tokens=(0, 5)))
    new = params_of(await client.run(thread_id), USAGE)[-1]["tokenUsage"]["total"]
    assert new == total | {name: total[name] + 5 for name in ("outputTokens", "totalTokens")}


async def test_web_search_with_wrong_types_is_stored_as_it_is_published(stage: Stage) -> None:
    action: JsonValue = {"type": "search", "query": 5, "queries": [[1], "kept", None]}
    search = done({"type": "web_search_call", "id": "w", "action": action})
    stage.model.plays(Reply([created(), search, completed()]))
    client = await stage.client()
    thread_id = await client.start()
    published = params_of(await client.run(thread_id), "item/completed")[-1]["item"]
    await stage.restart()
    stored = (await (await stage.client()).read(thread_id))["turns"][0]["items"][-1]

    assert stored == published
    assert (stored["query"], stored["action"]["queries"]) == ("kept", ["kept"])


@pytest.mark.parametrize("namespace", [{"a": 1}, [1], 7])
async def test_call_whose_namespace_is_no_text_does_not_end_the_turn(
    stage: Stage, namespace: JsonValue
) -> None:
    """It failed the turn, and with it the calls beside it."""
    call: JsonValue = {"type": "function_call", "name": "update_plan", "namespace": namespace}
    plan: JsonValue = {"call_id": "c", "arguments": '{"plan": []}'}
    stage.model.plays(Reply([created(), done({**call, **plan}), completed()]), says("ok"))
    client = await stage.client()
    thread_id = await client.start()
    ended = params_of(await client.run(thread_id), "turn/completed")[-1]["turn"]

    assert ended["status"] == "completed", ended["error"]
    assert stage.model.requests[-1].outputs()["c"] == "Plan updated"


@pytest.mark.parametrize("rest", [b'"x":1e999999', b'"x":"%b"' % (b"\xff" * (MAX_REPAIRED + 1))])
def test_event_with_an_invalid_field_is_read_without_it(rest: bytes) -> None:
    """Fields that are not needed are skipped unread, so only a second look finds them invalid."""
    stream = ResponsesStream("m")
    with pytest.raises(ModelError, match="busy"):
        stream.feed(b'{"type":"error","error":{"message":"busy"},%b}' % rest)
    assert len(stream.feed(b'{"type":"codex.rate_limits",%b}' % rest)) == 1
    assert not AnthropicStream(Functions([])).feed(b'{"type":"ping",%b}' % rest)
