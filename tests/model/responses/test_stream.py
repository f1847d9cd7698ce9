"""The stream of the Responses API, and streams of servers that implement it loosely."""

from __future__ import annotations

import pytest

from tests.model.double import (
    Answer,
    collect,
    event,
    events,
    model_of,
    provider_double,
)
from treadle.model.base import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelTextDelta,
    RateLimits,
    ReasoningPartAdded,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    Rerouted,
    ResponseUsage,
    ServerModel,
    ToolInputDelta,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo, CodexErrorInfoDetail, HttpStatus

MESSAGE: JsonValue = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello world", "annotations": []}],
}
COMPLETED: JsonValue = {
    "type": "response.completed",
    "response": {
        "id": "resp_1",
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 15,
        },
    },
}
NO_LIMITS = RateLimits(
    {
        "limitId": "codex",
        "limitName": None,
        "normalModelSlug": None,
        "primary": None,
        "secondary": None,
        "credits": None,
        "individualLimit": None,
        "spendControlReached": None,
        "planType": None,
        "rateLimitReachedType": None,
    }
)


def added(item: JsonValue, index: int = 0) -> JsonValue:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(item: JsonValue, index: int = 0) -> JsonValue:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


async def played(*data: JsonValue) -> list[ModelEvent]:
    """Return the events of a stream, without those from the headers."""
    async with provider_double(events(*data)) as double, model_of(double) as model:
        model_events = await collect(model)
    assert model_events[0] == NO_LIMITS
    return model_events[1:]


async def failed(*data: JsonValue) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await played(*data)
    return caught.value


async def test_a_full_stream_becomes_events() -> None:
    """Upstream: the order and the indices of a turn with reasoning, a message and calls."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": ""}
    custom = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "p", "input": ""}
    search = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
    model_events = await played(
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.in_progress"},
        added(reasoning),
        {"type": "response.reasoning_summary_part.added", "item_id": "rs_1", "summary_index": 0},
        {
            "type": "response.reasoning_summary_text.delta",
            "item_id": "rs_1",
            "summary_index": 1,
            "delta": "hm",
        },
        {
            "type": "response.reasoning_text.delta",
            "item_id": "rs_1",
            "content_index": 2,
            "delta": "raw",
        },
        done({**reasoning, "encrypted_content": "e"}),
        added({**MESSAGE, "content": []}, 1),
        {"type": "response.content_part.added", "item_id": "msg_1", "part": {}},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hello"},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": " world"},
        {"type": "response.output_text.done", "item_id": "msg_1", "text": "Hello world"},
        done(MESSAGE, 1),
        added(call, 2),
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"},
        done({**call, "arguments": "{}"}, 2),
        added(custom, 3),
        {"type": "response.custom_tool_call_input.delta", "item_id": "ctc_1", "delta": "x"},
        done({**custom, "input": "x"}, 3),
        added(search, 4),
        done({**search, "status": "completed"}, 4),
        COMPLETED,
    )
    assert model_events == [
        Created("resp_1"),
        ItemStarted(reasoning),
        ReasoningPartAdded("rs_1", 0),
        ReasoningSummaryDelta("rs_1", 1, "hm"),
        ReasoningTextDelta("rs_1", 2, "raw"),
        ItemDone({**reasoning, "encrypted_content": "e"}),
        ItemStarted({**MESSAGE, "content": []}),
        ModelTextDelta("msg_1", "Hello"),
        ModelTextDelta("msg_1", " world"),
        ItemDone(MESSAGE),
        ItemStarted(call),
        ToolInputDelta("fc_1", "c1", "{}"),
        ItemDone({**call, "arguments": "{}"}),
        ItemStarted(custom),
        ToolInputDelta("ctc_1", "c2", "x"),
        ItemDone({**custom, "input": "x"}),
        ItemStarted(search),
        ItemDone({**search, "status": "completed"}),
        Completed("resp_1", ResponseUsage(10, 4, 0, 5, 2, 15)),
    ]


async def test_the_sparse_stream_of_a_mock_is_understood() -> None:
    """Upstream: the official SDK's mock omits ids and fields, and sends null details."""
    model_events = await played(
        {"type": "response.created"},
        added({"type": "message", "role": "assistant", "content": []}),
        {"type": "response.output_text.delta", "delta": "Hel"},
        {"type": "response.output_text.delta", "delta": "lo"},
        {"type": "response.output_item.done", "item": {**MESSAGE, "id": None}},
        {
            "type": "response.completed",
            "response": {
                "id": "r",
                "usage": {
                    "input_tokens": 1,
                    "input_tokens_details": None,
                    "output_tokens": 2,
                    "output_tokens_details": None,
                    "total_tokens": 3,
                },
            },
        },
    )
    started = model_events[1]
    assert isinstance(started, ItemStarted)
    id_ = started.item["id"]
    assert id_.startswith("msg_")
    assert model_events == [
        Created(None),
        started,
        ModelTextDelta(id_, "Hel"),
        ModelTextDelta(id_, "lo"),
        ItemDone({**MESSAGE, "id": id_}),
        Completed("r", ResponseUsage(1, 0, 0, 2, 0, 3)),
    ]


async def test_an_item_that_never_started_starts_before_it_ends() -> None:
    model_events = await played(done(MESSAGE), {"type": "response.completed", "response": None})
    assert model_events == [ItemStarted(MESSAGE), ItemDone(MESSAGE), Completed()]


async def test_deltas_without_a_start_open_their_item() -> None:
    model_events = await played(
        {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hi"},
        done(MESSAGE),
        COMPLETED,
    )
    thought = model_events[0]
    assert isinstance(thought, ItemStarted)
    assert model_events[1:5] == [
        ReasoningSummaryDelta(thought.item["id"], 0, "hm"),
        ItemStarted({"type": "message", "id": "msg_1", "role": "assistant", "content": []}),
        ModelTextDelta("msg_1", "Hi"),
        ItemDone(MESSAGE),
    ]


async def test_an_item_keeps_its_first_id_when_the_server_changes_it() -> None:
    """Ours: some proxies encrypt ids, differently in each event."""
    model_events = await played(
        added({**MESSAGE, "id": "a", "content": []}),
        {"type": "response.output_text.delta", "item_id": "b", "output_index": 0, "delta": "x"},
        done({**MESSAGE, "id": "c"}),
        COMPLETED,
    )
    assert model_events[1:3] == [ModelTextDelta("a", "x"), ItemDone({**MESSAGE, "id": "a"})]


async def test_items_that_arrive_only_at_the_end_are_not_lost() -> None:
    model_events = await played({"type": "response.completed", "response": {"output": [MESSAGE]}})
    assert model_events == [ItemStarted(MESSAGE), ItemDone(MESSAGE), Completed()]


async def test_a_refusal_is_read_as_text() -> None:
    refused = {**MESSAGE, "content": [{"type": "refusal", "refusal": "no"}]}
    model_events = await played(
        {"type": "response.refusal.delta", "item_id": "msg_1", "delta": "no"},
        done(refused),
        COMPLETED,
    )
    assert model_events[1:3] == [
        ModelTextDelta("msg_1", "no"),
        ItemDone({**MESSAGE, "content": [{"type": "output_text", "text": "no"}]}),
    ]


async def test_unknown_events_are_ignored() -> None:
    stream = Answer(
        pieces=[
            b": keep-alive\n\n",
            b"data: {not json}\n\n",
            b"data: []\n\n",
            b"data: [DONE]\n\n",
            event({"type": "response.never_heard_of", "delta": {"a": 1}}),
            event({"type": "response.function_call_arguments.delta", "delta": "x"}),
            rb'data: {"type":"response.output_text.delta","item_id":"m","delta":"\ud83d!"}',
            b"\n\n",
            event(COMPLETED),
        ]
    )
    async with provider_double(stream) as double, model_of(double) as model:
        model_events = await collect(model)
    assert model_events[2:3] == [ModelTextDelta("m", "\ufffd!")]


async def test_the_headers_hold_rate_limits_and_the_actual_model() -> None:
    headers = {
        "OpenAI-Model": "other-model",
        "x-codex-primary-used-percent": "12.6",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": "1700000000",
        "x-codex-credits-has-credits": "true",
        "x-codex-credits-unlimited": "false",
        "x-codex-credits-balance": "3",
    }
    answer = events(COMPLETED, headers=headers)
    async with provider_double(answer) as double, model_of(double) as model:
        model_events = await collect(model)
    window = {"usedPercent": 13, "windowDurationMins": 300, "resetsAt": 1700000000}
    credit = {"hasCredits": True, "unlimited": False, "balance": "3"}
    assert model_events[:3] == [
        RateLimits({**NO_LIMITS.snapshot, "primary": window, "credits": credit}),
        ServerModel("other-model"),
        Rerouted("other-model"),
    ]


@pytest.mark.parametrize("name", ["mock-model-2026-11-16", "Mock-Model-20261116", "mock-model"])
async def test_a_dated_name_is_the_same_model(name: str) -> None:
    answer = events(COMPLETED, headers={"openai-model": name})
    async with provider_double(answer) as double, model_of(double) as model:
        model_events = await collect(model)
    assert model_events[1:-1] == [ServerModel(name)]


@pytest.mark.parametrize(
    ("error", "info", "is_retryable", "delay"),
    [
        ({"code": "context_length_exceeded"}, "contextWindowExceeded", False, None),
        ({"code": "insufficient_quota"}, "usageLimitExceeded", False, None),
        ({"code": "usage_limit_reached", "resets_in_seconds": 9}, "usageLimitExceeded", False, 9),
        (
            {"code": "rate_limit_exceeded", "message": "try again in 1.5s please"},
            "rateLimitExceeded",
            True,
            1.5,
        ),
        (
            {"code": "rate_limit_exceeded", "message": "Please try again in 250ms."},
            "rateLimitExceeded",
            True,
            0.25,
        ),
        ({"code": "server_is_overloaded"}, "serverOverloaded", True, None),
        ({"code": "slow_down"}, "serverOverloaded", True, None),
        ({"code": "invalid_prompt"}, "badRequest", False, None),
        ({"code": "cyber_policy"}, "cyberPolicy", False, None),
        ({"code": "server_error"}, "internalServerError", True, None),
        ({"code": "never_heard_of", "message": "srv"}, "other", True, None),
    ],
)
async def test_a_failed_response_is_classified_by_its_code(
    error: JsonValue, info: CodexErrorInfo, is_retryable: bool, delay: float | None
) -> None:
    caught = await failed({"type": "response.failed", "response": {"error": error}})
    assert (caught.info, caught.is_retryable, caught.retry_after_s, caught.phase) == (
        info,
        is_retryable,
        delay,
        "stream",
    )
    assert str(error.get("message", "")) in caught.message


@pytest.mark.parametrize(
    "data",
    [
        {"type": "error", "code": "server_is_overloaded", "message": "busy"},
        {"type": "error", "error": {"code": "server_is_overloaded", "message": "busy"}},
        {"error": {"type": "overloaded_error", "message": "busy"}},
    ],
)
async def test_an_error_event_after_http_200_is_classified(data: JsonValue) -> None:
    caught = await failed(data)
    assert (caught.message, caught.info, caught.is_retryable) == ("busy", "serverOverloaded", True)
    assert not caught.emitted


async def test_an_incomplete_response_is_an_error_that_names_the_reason() -> None:
    details = {"incomplete_details": {"reason": "max_output_tokens"}}
    caught = await failed({"type": "response.incomplete", "response": details})
    assert "max_output_tokens" in caught.message
    assert (caught.info, caught.is_retryable) == ("other", False)


async def test_a_stream_that_ends_early_counts_as_disconnected() -> None:
    caught = await failed(added(MESSAGE))
    disconnected = CodexErrorInfoDetail(response_stream_disconnected=HttpStatus())
    assert (caught.info, caught.is_retryable, caught.emitted) == (disconnected, True, True)
