"""The stream of Chat Completions, in the dialects of OpenAI, Ollama, vLLM and others."""

from __future__ import annotations

import pytest

from tests.model.double import (
    Answer,
    collect,
    event,
    events,
    model_of,
    provider_double,
    refusal,
    request,
)
from treadle.model.base import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelTextDelta,
    ReasoningTextDelta,
    ResponseUsage,
    ToolInputDelta,
)
from treadle.protocol.base import JsonValue

TOOLS: JsonValue = [
    {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}},
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Edit.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
    },
    {
        "type": "namespace",
        "name": "agents",
        "tools": [{"type": "function", "name": "spawn", "strict": True}],
    },
    {"type": "web_search"},
]


def chunk(finish: str | None = None, **delta: JsonValue) -> JsonValue:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(index: int | None, id_: str | None, name: str | None, arguments: JsonValue) -> JsonValue:
    made: JsonValue = {"type": "function", "function": {"arguments": arguments}}
    if index is not None:
        made["index"] = index
    if id_ is not None:
        made["id"] = id_
    if name is not None:
        made["function"]["name"] = name
    return made


USAGE: JsonValue = {
    "id": "c",
    "choices": [],
    "usage": {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": None,
    },
}


async def played(answer: Answer, **settings: JsonValue) -> list[ModelEvent]:
    async with provider_double(answer) as double, model_of(double, wire_api="chat") as model:
        return await collect(model, request(tools=TOOLS, **settings))


def done_items(model_events: list[ModelEvent]) -> list[JsonValue]:
    return [event.item for event in model_events if isinstance(event, ItemDone)]


def started_ids(model_events: list[ModelEvent]) -> list[str]:
    return [event.item["id"] for event in model_events if isinstance(event, ItemStarted)]


async def test_text_and_reasoning_are_streamed() -> None:
    model_events = await played(
        events(
            chunk(role="assistant", content=""),
            chunk(reasoning_content="hm"),
            chunk(reasoning_content="m"),
            chunk(content="Hel"),
            chunk(content="lo"),
            chunk("stop"),
            USAGE,
        )
    )
    thought, message = started_ids(model_events)
    assert model_events == [
        Created("c"),
        ItemStarted({"type": "reasoning", "id": thought, "summary": []}),
        ReasoningTextDelta(thought, 0, "hm"),
        ReasoningTextDelta(thought, 0, "m"),
        ItemDone(
            {
                "type": "reasoning",
                "id": thought,
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "hmm"}],
                "encrypted_content": "treadle:chat:reasoning_content",
            }
        ),
        ItemStarted(
            {
                "type": "message",
                "id": message,
                "role": "assistant",
                "status": "in_progress",
                "content": [],
            }
        ),
        ModelTextDelta(message, "Hel"),
        ModelTextDelta(message, "lo"),
        ItemDone(
            {
                "type": "message",
                "id": message,
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello"}],
            }
        ),
        Completed("c", ResponseUsage(10, 4, 0, 5, 0, 15)),
    ]


async def test_parallel_calls_are_distinguished_by_index() -> None:
    """VLLM and OpenAI: id and name once, then pieces of the arguments under the index."""
    model_events = await played(
        events(
            chunk(tool_calls=[call(0, "a", "f", "")]),
            chunk(tool_calls=[call(0, None, None, '{"x"')]),
            chunk(tool_calls=[call(1, "b", "apply_patch", '{"inp')]),
            chunk(tool_calls=[call(0, None, None, ":1}"), call(1, None, None, 'ut":"P"}')]),
            chunk(tool_calls=[call(2, "c", "agents__spawn", "")]),
            chunk("tool_calls"),
            USAGE,
        )
    )
    first, second, third = started_ids(model_events)
    assert [event for event in model_events if isinstance(event, ToolInputDelta)] == [
        ToolInputDelta(first, "a", '{"x"'),
        ToolInputDelta(second, "b", '{"inp'),
        ToolInputDelta(first, "a", ":1}"),
        ToolInputDelta(second, "b", 'ut":"P"}'),
    ]
    assert done_items(model_events) == [
        {
            "type": "function_call",
            "id": first,
            "call_id": "a",
            "name": "f",
            "arguments": '{"x":1}',
            "status": "completed",
        },
        {
            "type": "custom_tool_call",
            "id": second,
            "call_id": "b",
            "name": "apply_patch",
            "input": "P",
            "status": "completed",
        },
        {
            "type": "function_call",
            "id": third,
            "call_id": "c",
            "namespace": "agents",
            "name": "spawn",
            "arguments": "{}",
            "status": "completed",
        },
    ]


@pytest.mark.parametrize(
    "chunks",
    [
        # Ollama: complete calls, all with index 0.
        [
            chunk(tool_calls=[call(0, "a", "f", '{"n":1}')]),
            chunk(tool_calls=[call(0, "b", "f", '{"n":2}')]),
        ],
        # The same without ids, in one chunk.
        [chunk(tool_calls=[call(0, None, "f", '{"n":1}'), call(0, None, "f", '{"n":2}')])],
        # No index either, and arguments that are not a string.
        [chunk(tool_calls=[call(None, None, "f", {"n": 1}), call(None, None, "f", {"n": 2})])],
    ],
)
async def test_complete_calls_in_one_chunk_are_distinguished(chunks: list[JsonValue]) -> None:
    done = done_items(await played(events(*chunks, chunk("tool_calls"), USAGE)))
    assert [item["arguments"] for item in done] == ['{"n":1}', '{"n":2}']
    assert len({item["call_id"] for item in done}) == 2


async def test_a_free_text_tool_called_without_its_wrapper_still_gets_its_text() -> None:
    done = done_items(
        await played(
            events(chunk(tool_calls=[call(0, "a", "apply_patch", "*** Begin")]), chunk("stop"))
        )
    )
    assert done[0]["input"] == "*** Begin"


@pytest.mark.parametrize(
    "ending",
    [
        [event(chunk("stop")), b"data: [DONE]\n\n"],
        [event(chunk("stop"))],
        [b"data: [DONE]\n\n"],
        [event({**chunk("stop"), "usage": {"prompt_tokens": 1}})],
    ],
)
async def test_an_answer_may_end_in_many_ways(ending: list[bytes]) -> None:
    model_events = await played(Answer(pieces=[event(chunk(content="hi")), *ending]))
    assert [item["content"][0]["text"] for item in done_items(model_events)] == ["hi"]
    assert isinstance(model_events[-1], Completed)


async def test_a_server_that_does_not_stream_is_supported() -> None:
    whole = {"id": "c", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    model_events = await played(events(whole))
    assert done_items(model_events)[0]["content"][0]["text"] == "hi"


@pytest.mark.parametrize(
    ("reason", "words"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
async def test_a_truncated_answer_is_an_error_after_its_text(reason: str, words: str) -> None:
    model_events: list[ModelEvent] = []
    answer = events(chunk(content="hal"), chunk(reason), USAGE)
    async with provider_double(answer) as double, model_of(double, wire_api="chat") as model:
        with pytest.raises(ModelError, match=words) as caught:
            await collect(model, into=model_events)
    assert done_items(model_events)[0]["content"][0]["text"] == "hal"
    assert not caught.value.is_retryable


@pytest.mark.parametrize(
    ("error", "info"),
    [
        ({"message": "busy", "code": "server_is_overloaded"}, "serverOverloaded"),
        ({"message": "maximum context length", "code": 400}, "contextWindowExceeded"),
        ("model requires more system memory", "other"),
    ],
)
async def test_an_error_in_the_stream_is_classified(error: JsonValue, info: str) -> None:
    with pytest.raises(ModelError) as caught:
        await played(events({"error": error}))
    assert caught.value.info == info


async def test_a_stream_without_an_end_counts_as_disconnected() -> None:
    with pytest.raises(ModelError, match="disconnected"):
        await played(events(chunk(content="hal")))


async def test_the_request_goes_to_chat_completions() -> None:
    answer = refusal("404 Not Found", {"error": "model 'x' not found"})
    async with provider_double(answer) as double, model_of(double, wire_api="chat") as model:
        with pytest.raises(ModelError, match="model 'x' not found"):
            await collect(model)
    assert double.requests[0].target == "/v1/chat/completions"
