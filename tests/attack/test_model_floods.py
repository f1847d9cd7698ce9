"""A model that sends faster than its events can be handled delays only its own turn."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.harness.model_server import Reply, calls, completed, created, done, patches, says
from tests.harness.threads import EPILOGUE, Client, Stage, outline, params_of
from treadle.client._runtime.output import read_output
from treadle.client.errors import OutputInvalid
from treadle.engine.conversation.items import ItemStream
from treadle.engine.tools.call_limits import MAX_CALL_CHARACTERS
from treadle.engine.tools.plan import MAX_STEPS
from treadle.model import errors
from treadle.model.anthropic.stream import AnthropicStream
from treadle.model.base import (
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelItem,
    ModelTextDelta,
    ToolInputDelta,
)
from treadle.model.chat.stream import MAX_CHECKED, ChatStream
from treadle.model.http import idle_timeout, sse
from treadle.model.http.pacing import MAX_DELTA
from treadle.model.http.response_limits import MAX_HIDDEN, MAX_ITEMS, MAX_TEXT, TextMeter
from treadle.model.http.sse import SseParser
from treadle.model.naming import MAX_NAME
from treadle.model.open_items import MAX_OPEN_ITEMS
from treadle.model.responses.stream import MAX_RATE_LIMITS, ResponsesStream
from treadle.model.tools import Functions
from treadle.protocol.base import JsonValue
from treadle.shell.syntax import MAX_SCRIPT
from treadle.support.text.json_text import MAX_VALUES

MIB = 1024 * 1024
EVENTS = 10_000
# A chunk from the socket holds thousands of events; an answer takes a few iterations of the loop.
MAX_GAP = 1_000


def delta(number: int) -> JsonValue:
    kind = "response.reasoning_text.delta"
    return {"type": kind, "item_id": "r", "content_index": 0, "delta": str(number)}


def started(number: int) -> JsonValue:
    item = {"type": "x", "id": f"i{number}"}
    return {"type": "response.output_item.added", "output_index": number, "item": item}


async def test_requests_are_answered_while_the_events_of_a_fast_stream_are_handled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = 0
    take = ItemStream.take

    def counted(items: ItemStream, event: ModelEvent) -> None:
        nonlocal handled
        handled += 1
        take(items, event)

    monkeypatch.setattr(ItemStream, "take", counted)
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(Reply([created(), *map(delta, range(EVENTS)), completed()]))
    answered_at: list[int] = []

    async def keep_asking(other: Client) -> None:
        while True:
            await other.request("thread/loaded/list", {})
            answered_at.append(handled)

    async with asyncio.TaskGroup() as group:
        asking = group.create_task(keep_asking(other))
        messages = await client.run(thread_id)
        asking.cancel()

    assert outline(messages)[-2:] == EPILOGUE
    assert handled > EVENTS
    gaps = [later - earlier for earlier, later in pairwise(answered_at)]
    assert max(gaps) <= MAX_GAP


async def test_a_response_with_too_many_unfinished_items_fails_and_the_thread_continues(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(Reply([created(), *map(started, range(EVENTS)), completed()]))
    failed = await client.run(thread_id)
    stage.model.plays(says("ok"))
    messages = await client.run(thread_id)

    turn = params_of(failed, "turn/completed")[-1]["turn"]
    assert turn["status"] == "failed"
    assert f"more than {MAX_OPEN_ITEMS} unfinished items" in turn["error"]["message"]
    assert outline(messages)[-2:] == EPILOGUE


@pytest.mark.parametrize("has_deltas", [True, False])
async def test_a_response_with_too_much_text_fails_and_the_thread_continues(
    stage: Stage, has_deltas: bool
) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    text = "x" * (MAX_TEXT + 1)
    stage.model.plays(says(text, "m", [text] if has_deltas else []))
    failed = await client.run(thread_id)
    stage.model.plays(says("ok"))
    messages = await client.run(thread_id)

    turn = params_of(failed, "turn/completed")[-1]["turn"]
    assert turn["status"] == "failed"
    assert turn["error"]["message"] == f"the response has more than {MAX_TEXT} characters of text"
    assert outline(messages)[-2:] == EPILOGUE


async def test_others_are_answered_between_the_parts_of_a_long_delta(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[int] = []
    take = ItemStream.take

    def measured(items: ItemStream, event: ModelEvent) -> None:
        if isinstance(event, ModelTextDelta):
            parts.append(len(event.delta))
        take(items, event)

    monkeypatch.setattr(ItemStream, "take", measured)
    text = "0123456789" * 100_000
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says(text, "m", [text]))
    answered_at: set[int] = set()

    async def keep_asking() -> None:
        while True:
            await other.request("thread/loaded/list", {})
            answered_at.add(len(parts))

    async with asyncio.TaskGroup() as group:
        asking = group.create_task(keep_asking())
        sent = await client.run(thread_id)
        asking.cancel()

    assert max(parts) <= MAX_DELTA
    assert len(answered_at) > len(parts) // 10
    assert "".join(each["delta"] for each in params_of(sent, "item/agentMessage/delta")) == text
    assert params_of(sent, "item/completed")[-1]["item"]["text"] == text


async def test_an_event_of_several_megabytes_is_extracted_off_the_event_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[bool] = []
    shallow = sse._shallow  # noqa: SLF001 - the step that looks at every byte of an event

    def noted(events: list[bytes]) -> list[bytes]:
        if sum(map(len, events)) > 900_000:
            on_loop.append(threading.current_thread() is threading.main_thread())
        return shallow(events)

    monkeypatch.setattr(sse, "_shallow", noted)
    text = "[{\u4e2d" * 300_000
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says(text))
    sent = await client.run(thread_id)

    assert on_loop == [False]
    assert params_of(sent, "item/completed")[-1]["item"]["text"] == text


async def output_of(stage: Stage, reply: Reply) -> tuple[str, list[JsonValue]]:
    """Let the model make one call; return its output and what the client received."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="read-only")
    stage.model.plays(reply, says("ok"))
    sent = await client.run(thread_id)
    assert outline(sent)[-2:] == EPILOGUE
    output: str = stage.model.requests[-1].outputs()["call-1"]
    return output, sent


@pytest.mark.parametrize(
    ("reply", "name", "left"),
    [
        (calls("exec_command", {"cmd": "x" * MAX_CALL_CHARACTERS}), "arguments", "{}"),
        (calls("nothing", "x" * (MAX_CALL_CHARACTERS + 1)), "arguments", "{}"),
        (patches("x" * (MAX_CALL_CHARACTERS + 1)), "input", ""),
    ],
)
async def test_the_input_of_a_call_that_is_too_large_is_neither_parsed_nor_stored(
    stage: Stage, reply: Reply, name: str, left: str
) -> None:
    output, sent = await output_of(stage, reply)

    assert f"characters of {name}, expected at most {MAX_CALL_CHARACTERS}" in output
    [kept] = [item for item in stage.model.requests[-1].body["input"] if name in item]
    assert kept[name] == left
    assert {line for line in outline(sent) if line.startswith("item/")} == {
        "item/started userMessage",
        "item/completed userMessage",
        "item/started agentMessage",
        "item/completed agentMessage",
    }


async def test_the_input_of_a_call_may_be_as_large_as_the_limit(stage: Stage) -> None:
    output, _sent = await output_of(stage, calls("nothing", "x" * MAX_CALL_CHARACTERS))
    assert output == "unsupported call: nothing"


async def test_a_plan_with_too_many_steps_is_refused(stage: Stage) -> None:
    steps = [{"step": "x", "status": "pending"}] * (MAX_STEPS + 1)
    output, sent = await output_of(stage, calls("update_plan", {"plan": steps}))
    assert output == f"the plan has {MAX_STEPS + 1} steps, expected at most {MAX_STEPS}"
    assert not params_of(sent, "turn/plan/updated")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("exec_command", {"cmd": "x" * MAX_SCRIPT}),
        ("shell_command", {"command": "x" * MAX_SCRIPT}),
        ("shell", {"command": ["echo", "x" * MAX_SCRIPT]}),
    ],
)
async def test_a_command_that_cannot_be_executed_is_refused_before_it_is_judged(
    stage: Stage, name: str, arguments: JsonValue
) -> None:
    output, sent = await output_of(stage, calls(name, arguments))
    expected = f"the command has {MAX_SCRIPT} characters, expected less than {MAX_SCRIPT}"
    assert output.startswith(f"{name} failed: {expected}")
    assert "item/started commandExecution" not in outline(sent)


def test_a_rate_limit_with_many_digits_is_read_in_linear_time() -> None:
    """A header of 8 KB took two seconds."""
    for _ in range(100):
        assert errors.delay_of_headers({"retry-after": "1" * 8_000 + "x"}) is None


def test_no_more_items_are_read_from_the_end_of_a_response_than_it_may_have() -> None:
    """A document of 100,000 items was converted in one step, before the first was counted."""
    output = [{"type": "function_call"}] * (2 * MAX_ITEMS)
    completed = {"type": "response.completed", "response": {"output": output}}
    read = ResponsesStream("m").feed(json.dumps(completed).encode())
    assert sum(isinstance(event, ItemDone) for event in read) == MAX_ITEMS + 1


@pytest.mark.parametrize("words", ["try again in 5s", "maximum context"])
def test_only_the_beginning_of_an_error_is_searched(words: str) -> None:
    """An error of 16 MiB blocked the event loop for two seconds, with each of six attempts."""
    found = errors.in_stream(errors.Fault(f"{words} {'x' * 100_000}"))
    assert (found.retry_after_s, found.info) != (None, "other")
    ignored = errors.in_stream(errors.Fault(f"{'x' * 100_000} {words}"))
    assert (ignored.retry_after_s, ignored.info) == (None, "other")


def test_an_answer_with_many_empty_lines_is_read_in_linear_time() -> None:
    with pytest.raises(OutputInvalid):
        read_output(dict, "```" + "\n" * 2_000_000)


def test_long_arguments_are_not_checked_for_completeness_with_each_delta() -> None:
    """Sixteen passes over 8 MB of numbers blocked the event loop for six seconds."""
    stream = ChatStream(Functions([]))
    numbers = "[" + "1," * (MAX_CHECKED // 2) + "1]"
    pieces = [{"index": 0, "function": {"name": "f", "arguments": each}} for each in (numbers, "")]
    chunk = {"choices": [{"delta": {"tool_calls": pieces}}]}
    events = stream.feed(json.dumps(chunk).encode())
    assert sum(isinstance(each, ItemStarted) for each in events) == 1


@pytest.mark.parametrize(
    "event",
    [
        ToolInputDelta("i", "c", "x" * MAX_TEXT),
        ItemDone({"type": "reasoning", "encrypted_content": "x" * MAX_TEXT}),
    ],
    ids=["arguments", "encrypted reasoning"],
)
def test_an_endless_answer_that_is_not_text_fails(event: ModelEvent) -> None:
    meter = TextMeter()
    for _ in range(MAX_HIDDEN // MAX_TEXT):
        meter.count(event)
    with pytest.raises(ModelError, match="arguments or encrypted reasoning"):
        meter.count(event)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"type": "function_call", "arguments": "x" * MAX_TEXT}, "arguments"),
        ({"type": "custom_tool_call", "input": "x" * MAX_TEXT}, "arguments"),
        ({"type": "message", "content": "x" * MAX_TEXT}, "characters of text"),
        ({"type": "message", "content": [{"text": ["x" * MAX_TEXT]}]}, "items of the response"),
        ({"type": "web_search_call", "action": {"query": "x" * MAX_TEXT}}, "items of the response"),
        ({"type": "unknown", "data": ["x" * MAX_TEXT]}, "items of the response"),
        ({"type": "reasoning", "x" * MAX_TEXT: None}, "items of the response"),
        ({"type": "message", "content": []}, "more than 4096 items"),
    ],
)
def test_an_endless_answer_of_finished_items_fails(item: ModelItem, message: str) -> None:
    """A provider filled 2 GB of memory and 3 GB of disk in twelve seconds."""
    meter = TextMeter()

    def count_all() -> None:
        for _ in range(MAX_ITEMS + 1):
            meter.count(ItemDone(item))

    with pytest.raises(ModelError, match=message):
        count_all()


def starts(**fields: JsonValue) -> JsonValue:
    item = {"type": "function_call", "name": "f", "call_id": "c", **fields}
    return {"type": "response.output_item.added", "item": item}


def block(number: int, content: JsonValue) -> JsonValue:
    return {"type": "content_block_start", "index": number, "content_block": content}


LONG = "x" * MAX_TEXT
UNFINISHED: dict[str, Callable[[int], JsonValue]] = {
    "text": lambda at: starts(id=f"i{at}", type="message", content=[{"text": LONG}]),
    "fields": lambda at: starts(id=f"i{at}", data=LONG),
    "data": lambda at: block(at, {"type": "redacted_thinking", "data": LONG}),
    "input": lambda at: block(at, {"type": "tool_use", "name": "f", "input": {"a": LONG}}),
}


@pytest.mark.parametrize("kind", UNFINISHED)
def test_an_endless_answer_of_unfinished_items_fails(kind: str) -> None:
    """A provider filled the memory with what it never finished: 1,000 items of 16 MiB each."""
    is_anthropic = kind in ("data", "input")
    stream = AnthropicStream(Functions([])) if is_anthropic else ResponsesStream("m")
    meter = TextMeter()

    def read_all() -> None:
        for number in range(MAX_OPEN_ITEMS):
            for event in stream.feed(json.dumps(UNFINISHED[kind](number)).encode()):
                meter.count(event)

    with pytest.raises(ModelError, match=r"characters of|items of the response"):
        read_all()


def delta_of(**names: JsonValue) -> JsonValue:
    return {"type": "response.output_text.delta", "output_index": 0, "delta": "a", **names}


NAMED: dict[str, Callable[[str], JsonValue]] = {
    "alias": lambda name: delta_of(item_id=name),
    "index": lambda name: delta_of(item_id="m", output_index=name),
    "id": lambda name: starts(id=name),
    "call id": lambda name: starts(call_id=name),
    "name": lambda name: starts(name=name),
    "type": lambda name: starts(type=name),
    "chat id": lambda name: {"choices": [{"delta": {"tool_calls": [chat_call(id=name)]}}]},
    "chat index": lambda name: {"choices": [{"delta": {"tool_calls": [chat_call(index=name)]}}]},
    "chat name": lambda name: {"choices": [{"delta": {"tool_calls": [chat_call(tool=name)]}}]},
    "usage": lambda name: {"type": "message_delta", "usage": {name: 1}},
    "block id": lambda name: block(0, {"type": "tool_use", "name": "f", "id": name}),
    "block name": lambda name: block(0, {"type": "tool_use", "name": name}),
}


def chat_call(tool: str = "f", **names: JsonValue) -> JsonValue:
    return {"id": "c", "index": 0, "function": {"name": tool, "arguments": ""}, **names}


@pytest.mark.parametrize("kind", NAMED)
def test_the_names_that_a_provider_gives_take_little_memory(kind: str) -> None:
    """Each event may have 16 MiB and name something else; a response has a million events."""
    stream: ResponsesStream | ChatStream | AnthropicStream = ResponsesStream("m")
    if kind.startswith("chat"):
        stream = ChatStream(Functions([]))
    elif kind.startswith(("block", "usage")):
        stream = AnthropicStream(Functions([]))
    before = 0
    tracemalloc.start()
    try:
        for number in range(100):
            events = stream.feed(json.dumps(NAMED[kind](f"{number}" + "x" * MIB)).encode())
            assert len(repr(events)) < 10 * MAX_NAME
            before = before or tracemalloc.get_traced_memory()[0]
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 2 * MIB


async def test_a_long_id_is_not_repeated_with_each_delta(stage: Stage) -> None:
    """An id of 15 MB and 400 letters became 6 GB of notifications for each client."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    name = "m" * (MAX_NAME + 1)
    stage.model.plays(says("abc", name, ["a", "b", "c"]))
    messages = await client.run(thread_id)

    ids = {each["itemId"] for each in params_of(messages, "item/agentMessage/delta")}
    items = [params_of(messages, f"item/{when}")[-1]["item"] for when in ("started", "completed")]
    assert ids == {item["id"] for item in items}
    assert len(ids) == 1
    assert len(ids.pop()) <= MAX_NAME
    assert items[-1]["text"] == "abc"


async def test_the_output_of_a_call_with_a_long_id_reaches_the_model(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    item = {"type": "function_call", "call_id": "c" * MIB, "name": "n" * MIB, "arguments": "{}"}
    stage.model.plays(Reply([created(), done(item), completed()]), says("ok"))
    assert outline(await client.run(thread_id))[-2:] == EPILOGUE

    [(id_, output)] = stage.model.requests[-1].outputs().items()
    assert len(id_) <= MAX_NAME
    assert output.startswith("unsupported call: long_")


async def test_a_rate_limit_with_a_long_name_disconnects_no_client(stage: Stage) -> None:
    """Each one went to every client: sixty of them left all clients of the server behind."""
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    limits = {"type": "codex.rate_limits", "metered_limit_name": "x" * MIB, "rate_limits": {}}
    stage.model.plays(Reply([created(), *[limits] * 40, completed()]))
    assert outline(await client.run(thread_id))[-2:] == EPILOGUE

    updates = params_of(await other.settled(), "account/rateLimits/updated")
    assert {each["rateLimits"]["limitId"] for each in updates} == {"codex"}


def test_an_event_with_too_many_numbers_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """Counting the values of such an item took 1.2 s of the processor in one step of the loop."""
    numbers = b",".join([b"0"] * (MAX_VALUES + 1))
    event = b'data: {"type":"response.output_item.done","item":{"x":[%b]}}\n\n' % numbers
    assert SseParser().feed(event) == []
    assert "too many parts" in caplog.text


async def test_a_response_with_too_many_items_fails_and_the_thread_continues(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    items = [done({"type": "unknown", "id": f"i{number}"}) for number in range(MAX_ITEMS + 1)]
    stage.model.plays(Reply([created(), *items, completed()]))
    failed = await client.run(thread_id)
    stage.model.plays(says("ok"))
    messages = await client.run(thread_id)

    turn = params_of(failed, "turn/completed")[-1]["turn"]
    assert turn["error"]["message"] == f"the response has more than {MAX_ITEMS} items"
    assert outline(messages)[-2:] == EPILOGUE


async def test_a_stream_without_a_part_of_the_response_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep-alives, empty deltas and unknown events, as fast as they go, kept a turn for hours."""
    monkeypatch.setattr(idle_timeout, "MAX_IDLE_BYTES", 100_000)
    part: JsonValue = {"type": "response.reasoning_summary_part.added", "item_id": "r"}
    empty = {**delta(0), "delta": ""}
    unknown: JsonValue = {"type": "response.unknown"}
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(Reply([created(), *[part, empty, unknown, created()] * 500, completed()]))
    failed = await client.run(thread_id)
    stage.model.plays(says("ok"))
    messages = await client.run(thread_id)

    turn = params_of(failed, "turn/completed")[-1]["turn"]
    assert turn["status"] == "failed"
    assert "100000 bytes without a part of the response" in turn["error"]["message"]
    assert outline(messages)[-2:] == EPILOGUE


def test_a_stream_reports_a_bounded_number_of_rate_limits() -> None:
    """Each goes to every client of the server, which was busy with nothing else."""
    stream = ResponsesStream("m")
    payload = json.dumps({"type": "codex.rate_limits", "rate_limits": {}}).encode()
    assert sum(len(stream.feed(payload)) for _ in range(2 * MAX_RATE_LIMITS)) == MAX_RATE_LIMITS


def test_an_endless_signature_fails() -> None:
    """All of it was once kept in memory, stored, and sent again with every later request."""
    stream = AnthropicStream(Functions([]))

    def feed(**event: JsonValue) -> None:
        stream.feed(json.dumps({"index": 0, **event}).encode())

    feed(type="content_block_start", content_block={"type": "thinking"})
    delta = {"type": "signature_delta", "signature": "x" * MAX_TEXT}
    for _ in range(MAX_HIDDEN // MAX_TEXT):
        feed(type="content_block_delta", delta=delta)
    with pytest.raises(ModelError, match="encrypted reasoning"):
        feed(type="content_block_delta", delta=delta)


def test_a_stream_of_garbage_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    chat, responses, parser = ChatStream(Functions([])), ResponsesStream("m"), SseParser()
    for _ in range(100):
        chat.feed(b"garbage")
        responses.feed(b"garbage")
        parser.feed(b"data: " + b"[" * 10_000 + b"\n\n")
    assert len(caplog.records) == 3
