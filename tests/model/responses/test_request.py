"""Requests to the Responses API."""

from __future__ import annotations

from tests.model.double import collect, events, model_of, provider_double, request, user
from treadle.model.responses.request import body_of
from treadle.protocol.base import JsonValue

MESSAGE: JsonValue = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello world", "annotations": []}],
}
COMPLETED: JsonValue = {"type": "response.completed", "response": {"id": "r"}}


async def test_a_request_has_the_keys_and_headers_of_the_reference() -> None:
    async with (
        provider_double(events(COMPLETED)) as double,
        model_of(double, query_params={"v": "1 2"}) as model,
    ):
        await collect(model, request(user("hi"), subagent="review"))
    [received] = double.requests
    assert received.body == {
        "model": "mock-model",
        "instructions": "be brief",
        "input": [user("hi")],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": None,
        "store": False,
        "stream": True,
        "include": [],
        "prompt_cache_key": "thr",
    }
    assert (received.method, received.target) == ("POST", "/v1/responses?v=1+2")
    wanted = {
        "session_id": "thr",
        "session-id": "thr",
        "thread-id": "thr",
        "x-client-request-id": "thr",
        "x-codex-turn-metadata": '{"session_id":"thr","turn_id":"trn"}',
        "x-openai-subagent": "review",
        "originator": "probe",
        "user-agent": "probe/1",
        "accept": "text/event-stream",
        "content-type": "application/json",
        "accept-encoding": "identity",
    }
    assert {name: received.headers.get(name) for name in wanted} == wanted
    assert "authorization" not in received.headers


def test_reasoning_text_and_schema_are_requested_as_by_the_reference() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    body = body_of(
        request(
            effort="high",
            summary="auto",
            verbosity="low",
            output_schema=schema,
            service_tier="fast",
            max_output_tokens=9,
        )
    )
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["text"] == {
        "verbosity": "low",
        "format": {
            "type": "json_schema",
            "strict": True,
            "schema": schema,
            "name": "codex_output_schema",
        },
    }
    assert (body["service_tier"], body["max_output_tokens"]) == ("priority", 9)
    assert body_of(request(summary="none"))["reasoning"] is None


def test_a_schema_without_a_strict_form_is_sent_unchanged() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    wanted = body_of(request(output_schema=schema))["text"]["format"]
    assert (wanted["strict"], wanted["schema"]) == (False, schema)


def test_items_are_sent_back_without_the_fields_that_the_service_refuses() -> None:
    kept = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "x_extra": 1}
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
    history = [
        kept,
        {**MESSAGE, "id": "m1"},
        {**sealed, "content": [{"type": "reasoning_text", "text": "raw"}]},
        {"type": "reasoning", "id": "rs_2", "summary": [], "content": []},
        {"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "treadle:x"},
        {"type": "compaction", "id": "anything", "encrypted_content": "e"},
    ]
    assert body_of(request(*history))["input"] == [
        kept,
        {name: value for name, value in MESSAGE.items() if name != "id"},
        sealed,
        {"type": "reasoning", "summary": []},
        history[5],
    ]
