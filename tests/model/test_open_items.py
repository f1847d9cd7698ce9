"""Streams with many unfinished items: the work for one event does not grow with their number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from treadle.model.anthropic.stream import AnthropicStream
from treadle.model.base import ItemDone, ModelError, ToolInputDelta
from treadle.model.chat.stream import MAX_CHECKS, ChatStream
from treadle.model.http.pacing import StreamReading
from treadle.model.open_items import MAX_OPEN_ITEMS
from treadle.model.responses.stream import ResponsesStream
from treadle.model.tools import Functions
from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    from _typeshed import TraceFunction


def feed(reading: StreamReading, event: JsonValue) -> list[JsonValue]:
    return list(reading.feed(msgspec.json.encode(event)))


def operations(work: Callable[[], object]) -> int:
    """Count the interpreter operations of some work."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: object) -> TraceFunction:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(previous)
    return count


def responses_started(number: int, kind: str = "function_call", **more: JsonValue) -> JsonValue:
    item = {"type": kind, "id": f"i{number}", "call_id": f"c{number}", **more}
    return {"type": "response.output_item.added", "output_index": number, "item": item}


def responses_done(number: int) -> JsonValue:
    return {**responses_started(number), "type": "response.output_item.done"}


def chat_call(number: int, *, name: str | None = "f", arguments: str = "") -> JsonValue:
    call = {"index": number, "function": {"name": name, "arguments": arguments}}
    return {"choices": [{"delta": {"tool_calls": [call]}}]}


def block_started(number: JsonValue) -> JsonValue:
    block = {"type": "tool_use", "id": f"c{number}", "name": "f"}
    return {"type": "content_block_start", "index": number, "content_block": block}


def responses() -> StreamReading:
    return ResponsesStream("m")


def chat() -> StreamReading:
    return ChatStream(Functions(()))


def anthropic() -> StreamReading:
    return AnthropicStream(Functions(()))


@pytest.mark.parametrize(
    "event",
    [
        responses_done(0),
        {"type": "response.function_call_arguments.delta", "item_id": "i0", "delta": "x"},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "x"},
        {"type": "response.function_call_arguments.delta", "item_id": "new", "delta": "x"},
        {"type": "response.function_call_arguments.delta", "delta": "x"},
    ],
)
def test_an_event_of_responses_takes_the_same_work_among_few_and_many_items(
    event: JsonValue,
) -> None:
    costs = []
    for number in (5, MAX_OPEN_ITEMS):
        reading = responses()
        for each in range(number):
            feed(reading, responses_started(each))
        costs.append(operations(partial(feed, reading, event)))

    assert costs[1] <= 2 * costs[0]


def test_a_delta_of_a_chat_call_takes_the_same_work_among_few_and_many_calls() -> None:
    costs = []
    for number in (5, MAX_OPEN_ITEMS):
        reading = chat()
        for each in range(number):
            feed(reading, chat_call(each))
        piece = chat_call(0, name=None, arguments="x")
        costs.append(operations(partial(feed, reading, piece)))

    assert costs[1] <= 2 * costs[0]


def test_arguments_are_checked_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = 0
    decode = msgspec.json.decode

    def counted(text: str, **options: Any) -> object:  # noqa: ANN401 - those of `decode`
        nonlocal checks
        checks += 1
        return decode(text, **options)

    reading = chat()
    monkeypatch.setattr(msgspec.json, "decode", counted)
    for _ in range(10 * MAX_CHECKS):
        feed(reading, chat_call(0, arguments='["'))

    assert checks == MAX_CHECKS


@pytest.mark.parametrize(
    ("make", "started"),
    [(responses, responses_started), (chat, chat_call), (anthropic, block_started)],
)
def test_too_many_unfinished_items_fail_the_stream(
    make: Callable[[], StreamReading], started: Callable[[int], JsonValue]
) -> None:
    reading = make()
    for number in range(MAX_OPEN_ITEMS):
        feed(reading, started(number))

    with pytest.raises(ModelError, match=f"more than {MAX_OPEN_ITEMS} unfinished items") as caught:
        feed(reading, started(MAX_OPEN_ITEMS))
    assert not caught.value.is_retryable


def test_a_response_may_have_any_number_of_consecutive_items() -> None:
    reading = responses()
    for number in range(3 * MAX_OPEN_ITEMS):
        feed(reading, responses_started(number))
        (event,) = feed(reading, responses_done(number))
        assert isinstance(event, ItemDone)


def test_items_that_end_leave_the_newest_of_the_others() -> None:
    reading = responses()
    for number in range(3):
        feed(reading, responses_started(number))
    feed(reading, responses_done(2))

    (event,) = feed(
        reading, {"type": "response.function_call_arguments.delta", "item_id": None, "delta": "x"}
    )

    assert event == ToolInputDelta("i1", "c1", "x")


@pytest.mark.parametrize("index", [[1], {"a": 1}, None])
def test_an_invalid_index_counts_as_none(index: JsonValue) -> None:
    reading = anthropic()
    feed(reading, block_started(index))

    (done,) = feed(reading, {"type": "content_block_stop", "index": index})

    assert isinstance(done, ItemDone)
