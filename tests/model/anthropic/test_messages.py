"""Anthropic's Messages API."""

from __future__ import annotations

import pytest

from tests.model.double import collect, events, model_of, provider_double, request, user
from treadle.model.anthropic.request import body_of
from treadle.model.base import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelTextDelta,
    ReasoningPartAdded,
    ReasoningSummaryDelta,
    ResponseUsage,
    ServerModel,
    ToolInputDelta,
)
from treadle.model.tools import Functions
from treadle.protocol.base import JsonValue

TOOLS: JsonValue = [
    {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}},
    {"type": "custom", "name": "apply_patch", "description": "Edit."},
]
CACHED: JsonValue = {"cache_control": {"type": "ephemeral"}}
START: JsonValue = {
    "type": "message_start",
    "message": {
        "id": "msg_x",
        "model": "claude-x",
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 5,
            "output_tokens": 1,
        },
    },
}
STOP: JsonValue = {"type": "message_stop"}


def ending(reason: str) -> JsonValue:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason},
        "usage": {"output_tokens": 7},
    }


def block(index: int, content: JsonValue, *deltas: JsonValue) -> list[JsonValue]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


async def played(*data: JsonValue, into: list[ModelEvent] | None = None) -> list[ModelEvent]:
    settings: JsonValue = {"wire_api": "anthropic"}
    async with (
        provider_double(events(*data)) as double,
        model_of(double, **settings) as model,
    ):
        return await collect(model, request(tools=TOOLS), into=into)


def body(*history: JsonValue, tools: JsonValue = (), **settings: JsonValue) -> JsonValue:
    return body_of(request(*history, tools=tools, **settings), Functions(tools))


async def test_a_message_with_thinking_text_and_a_call_becomes_events() -> None:
    found = await played(
        START,
        {"type": "ping"},
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "thinking_delta", "thinking": "m"},
            {"type": "signature_delta", "signature": "SIG"},
        ),
        *block(1, {"type": "redacted_thinking", "data": "DATA"}),
        *block(
            2,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "Hel"},
            {"type": "text_delta", "text": "lo"},
        ),
        *block(
            3,
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"a":'},
            {"type": "input_json_delta", "partial_json": "1}"},
        ),
        *block(
            4, {"type": "tool_use", "id": "toolu_2", "name": "apply_patch", "input": {"input": "P"}}
        ),
        *block(5, {"type": "never_heard_of"}),
        ending("tool_use"),
        STOP,
    )
    thought, sealed, assistant_message, called, patched = (
        event.item["id"] for event in found if isinstance(event, ItemStarted)
    )
    message = {"type": "message", "id": assistant_message, "role": "assistant"}
    function = {"type": "function_call", "id": called, "call_id": "toolu_1", "name": "f"}
    patch = {
        "type": "custom_tool_call",
        "id": patched,
        "call_id": "toolu_2",
        "name": "apply_patch",
    }
    assert found == [
        Created("msg_x"),
        ServerModel("claude-x"),
        ItemStarted({"type": "reasoning", "id": thought, "summary": []}),
        ReasoningPartAdded(thought, 0),
        ReasoningSummaryDelta(thought, 0, "hm"),
        ReasoningSummaryDelta(thought, 0, "m"),
        ItemDone(
            {
                "type": "reasoning",
                "id": thought,
                "summary": [{"type": "summary_text", "text": "hmm"}],
                "encrypted_content": "treadle:anthropic:thinking:SIG",
            }
        ),
        ItemStarted({"type": "reasoning", "id": sealed, "summary": []}),
        ItemDone(
            {
                "type": "reasoning",
                "id": sealed,
                "summary": [],
                "encrypted_content": "treadle:anthropic:redacted:DATA",
            }
        ),
        ItemStarted({**message, "status": "in_progress", "content": []}),
        ModelTextDelta(assistant_message, "Hel"),
        ModelTextDelta(assistant_message, "lo"),
        ItemDone(
            {
                **message,
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello"}],
            }
        ),
        ItemStarted({**function, "arguments": "", "status": "in_progress"}),
        ToolInputDelta(called, "toolu_1", '{"a":'),
        ToolInputDelta(called, "toolu_1", "1}"),
        ItemDone({**function, "arguments": '{"a":1}', "status": "completed"}),
        ItemStarted({**patch, "input": "", "status": "in_progress"}),
        ItemDone({**patch, "input": "P", "status": "completed"}),
        Completed("msg_x", ResponseUsage(115, 100, 5, 7, 0, 122)),
    ]


async def test_content_is_sent_back_with_its_signature() -> None:
    found = await played(
        START,
        *block(
            0,
            {"type": "thinking", "thinking": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "SIG"},
        ),
        *block(1, {"type": "redacted_thinking", "data": "DATA"}),
        *block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello "}),
        *block(3, {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}),
        *block(4, {"type": "tool_use", "id": "t2", "name": "apply_patch", "input": {"input": "P"}}),
        ending("tool_use"),
        STOP,
    )
    items = [event.item for event in found if isinstance(event, ItemDone)]
    pictured = [
        {"type": "input_text", "text": "seen"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
    ]
    sent = body(
        user("hi"), *items, {"type": "function_call_output", "call_id": "t1", "output": pictured}
    )
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "SIG"},
                {"type": "redacted_thinking", "data": "DATA"},
                {"type": "text", "text": "Hello"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "apply_patch", "input": {"input": "P"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "AA==",
                            },
                        },
                        {"type": "text", "text": "seen"},
                    ],
                },
                {"type": "tool_result", "tool_use_id": "t2", "content": "aborted", **CACHED},
            ],
        },
    ]


def test_a_request_is_made_of_system_messages_and_tools() -> None:
    developer = {"type": "message", "role": "developer", "content": "D"}
    later = {"type": "message", "role": "developer", "content": "later"}
    picture = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": "https://x/y.png"}],
    }
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    assistant_message = {"type": "message", "role": "assistant", "content": [{"text": "A"}]}
    history = (developer, user("hi"), picture, foreign, assistant_message, later, user("go"))
    sent = body(*history, tools=TOOLS, parallel_tool_calls=False, model="claude-opus-4-8")
    assert sent == {
        "model": "claude-opus-4-8",
        "max_tokens": 64_000,
        "stream": True,
        "system": [{"type": "text", "text": "be brief\n\nD", **CACHED}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "A"}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "later"},
                    {"type": "text", "text": "go", **CACHED},
                ],
            },
        ],
        "tools": [
            {"name": "f", "description": "d", "input_schema": {"type": "object"}},
            {
                "name": "apply_patch",
                "description": "Edit.",
                "input_schema": {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                    "additionalProperties": False,
                },
            },
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    }


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "config"),
    [
        (
            "claude-opus-4-8",
            "max",
            {"type": "adaptive", "display": "summarized"},
            {"effort": "max"},
        ),
        (
            "claude-next",
            "minimal",
            {"type": "adaptive", "display": "summarized"},
            {"effort": "low"},
        ),
        ("claude-sonnet-4-5", "medium", {"type": "enabled", "budget_tokens": 10_000}, None),
        ("claude-sonnet-4-20250514", "low", {"type": "enabled", "budget_tokens": 4096}, None),
        ("claude-haiku-4-5-20251001", "high", {"type": "enabled", "budget_tokens": 20_000}, None),
        ("claude-opus-4-8", "none", None, None),
        ("claude-opus-4-8", None, None, None),
    ],
)
def test_effort_is_translated_for_each_model(
    model: str, effort: str | None, thinking: JsonValue, config: JsonValue
) -> None:
    sent = body(model=model, effort=effort)
    assert (sent.get("thinking"), sent.get("output_config")) == (thinking, config)


def test_a_budget_leaves_room_for_the_answer() -> None:
    sent = body(model="claude-sonnet-4-5", effort="high", max_output_tokens=8000)
    assert sent["thinking"]["budget_tokens"] == 6976
    assert "thinking" not in body(model="claude-3-7", effort="high", max_output_tokens=1500)


def test_a_budget_is_not_set_in_the_middle_of_a_turn_without_thinking() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "not json"}
    output = {"type": "function_call_output", "call_id": "1", "output": "x"}
    sent = body(user("hi"), call, output, model="claude-sonnet-4-5", effort="high")
    assert "thinking" not in sent
    assert sent["messages"][1]["content"][0]["input"] == {"arguments": "not json"}


def test_a_schema_is_enforced_where_the_model_can_and_requested_elsewhere() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 3}}}
    assert body(model="claude-sonnet-4-5", output_schema=schema)["output_config"] == {
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"a": {"type": ["string", "null"]}},
                "required": ["a"],
                "additionalProperties": False,
            },
        }
    }
    request_body = body(model="claude-3-haiku", output_schema=schema)
    assert "output_config" not in request_body
    assert '"minLength":3' in request_body["system"][0]["text"]


@pytest.mark.parametrize(
    ("data", "info", "is_retryable"),
    [
        (
            [{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}],
            "serverOverloaded",
            True,
        ),
        (
            [{"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}],
            "rateLimitExceeded",
            True,
        ),
        ([START, ending("max_tokens"), STOP], "other", False),
        ([START, ending("refusal"), STOP], "other", False),
        ([START, ending("model_context_window_exceeded"), STOP], "contextWindowExceeded", False),
    ],
)
async def test_errors_and_early_stops_are_classified(
    data: list[JsonValue], info: str, is_retryable: bool
) -> None:
    with pytest.raises(ModelError) as caught:
        await played(*data)
    assert (caught.value.info, caught.value.is_retryable) == (info, is_retryable)


async def test_the_text_before_an_early_stop_is_kept() -> None:
    found: list[ModelEvent] = []
    text = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "hal"})
    with pytest.raises(ModelError, match="max_output_tokens"):
        await played(START, *text, ending("max_tokens"), STOP, into=found)
    assert isinstance(found[-1], ItemDone)


async def test_a_paused_turn_is_continued() -> None:
    found = await played(START, ending("pause_turn"), STOP)
    assert isinstance(found[-1], Completed)
    assert found[-1].end_turn is False


async def test_a_stream_without_an_end_counts_as_disconnected() -> None:
    with pytest.raises(ModelError, match="disconnected"):
        await played(START)


async def test_the_key_is_sent_in_the_providers_own_header() -> None:
    settings: JsonValue = {"wire_api": "anthropic", "env_key": "K"}
    async with (
        provider_double(events(START, ending("end_turn"), STOP)) as double,
        model_of(double, environ={"K": "secret"}, **settings) as model,
    ):
        await collect(model)
    [received] = double.requests
    assert received.target == "/v1/messages"
    wanted = {"x-api-key": "secret", "anthropic-version": "2023-06-01"}
    assert {name: received.headers.get(name) for name in wanted} == wanted
    assert "authorization" not in received.headers
