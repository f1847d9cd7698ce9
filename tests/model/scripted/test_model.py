"""The scripted model plays its script, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.model.double import collect, request
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
    ToolInputDelta,
)
from treadle.model.scripted.model import (
    ScriptedModel,
    calls,
    custom_call,
    drops,
    ends,
    fails,
    gives,
    limits,
    load_script,
    plan,
    reroutes,
    says,
    searches,
    thinks,
    usage,
    waits,
    waits_for,
)
from treadle.model.scripted.script import Script
from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfoDetail, HttpStatus


def items(found: list[ModelEvent]) -> list[JsonValue]:
    return [event.item for event in found if isinstance(event, ItemDone)]


async def test_every_step_becomes_its_events() -> None:
    model = ScriptedModel(
        [
            [
                limits({"limitId": "codex"}),
                reroutes("other"),
                thinks("one", "two", raw="hm", encrypted="e", id_="rs"),
                says("Hello", deltas=2, id_="m", phase="final_answer"),
                calls("f", {"a": 1}, call_id="c1", deltas=['{"a"', ":1}"], id_="fc"),
                custom_call("p", "text", call_id="c2", id_="ctc"),
                searches("q", id_="ws"),
                gives({"type": "compaction", "id": "x", "encrypted_content": "e"}),
                usage(10, 5, cached=4, cache_write=3, reasoning=2),
                ends(end_turn=True),
            ]
        ]
    )
    found = await collect(model)
    thought: JsonValue = {"type": "reasoning", "id": "rs", "summary": []}
    message = {"type": "message", "id": "m", "role": "assistant", "phase": "final_answer"}
    called = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f"}
    patched = {"type": "custom_tool_call", "id": "ctc", "call_id": "c2", "name": "p"}
    searched = {"type": "web_search_call", "id": "ws"}
    compaction = {"type": "compaction", "id": "x", "encrypted_content": "e"}
    first, last = found[0], found[-1]
    assert isinstance(first, Created)
    assert last == Completed(first.response_id, ResponseUsage(10, 4, 3, 5, 2, 15), True)
    assert found[1:-1] == [
        RateLimits({"limitId": "codex"}),
        Rerouted("other"),
        ItemStarted(thought),
        ReasoningPartAdded("rs", 0),
        ReasoningSummaryDelta("rs", 0, "one"),
        ReasoningPartAdded("rs", 1),
        ReasoningSummaryDelta("rs", 1, "two"),
        ReasoningTextDelta("rs", 0, "hm"),
        ItemDone(
            {
                **thought,
                "summary": [
                    {"type": "summary_text", "text": "one"},
                    {"type": "summary_text", "text": "two"},
                ],
                "content": [{"type": "reasoning_text", "text": "hm"}],
                "encrypted_content": "e",
            }
        ),
        ItemStarted({**message, "status": "in_progress", "content": []}),
        ModelTextDelta("m", "He"),
        ModelTextDelta("m", "ll"),
        ModelTextDelta("m", "o"),
        ItemDone(
            {
                **message,
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
            }
        ),
        ItemStarted({**called, "status": "in_progress", "arguments": ""}),
        ToolInputDelta("fc", "c1", '{"a"'),
        ToolInputDelta("fc", "c1", ":1}"),
        ItemDone({**called, "status": "completed", "arguments": '{"a":1}'}),
        ItemStarted({**patched, "status": "in_progress", "input": ""}),
        ItemDone({**patched, "status": "completed", "input": "text"}),
        ItemStarted({**searched, "status": "in_progress"}),
        ItemDone({**searched, "status": "completed", "action": {"type": "search", "query": "q"}}),
        ItemStarted(compaction),
        ItemDone(compaction),
    ]


async def test_responses_are_played_in_order_and_requests_are_recorded() -> None:
    model = ScriptedModel(["one", says("two"), [calls("f"), "three"]])
    played = [items(await collect(model, request(turn_id=str(turn)))) for turn in range(3)]
    assert [[item.get("content", [{}])[0].get("text") for item in one] for one in played] == [
        ["one"],
        ["two"],
        [None, "three"],
    ]
    assert [model_request.turn_id for model_request in model.requests] == ["0", "1", "2"]


async def test_a_script_may_be_a_function_of_the_request() -> None:
    model = ScriptedModel(lambda model_request: f"you are {model_request.thread_id}")
    assert items(await collect(model))[0]["content"][0]["text"] == "you are thr"


async def test_ids_are_the_same_in_every_run_and_different_everywhere_else() -> None:
    def script() -> ScriptedModel:
        return ScriptedModel([["a", "b"], ["c"]])

    first, second = script(), script()
    runs = [
        [item["id"] for _ in range(2) for item in items(await collect(model))]
        for model in (first, second)
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3
    other = items(await collect(script(), request(turn_id="other")))
    assert other[0]["id"] not in runs[0]


async def test_a_finished_script_fails_repeats_or_demonstrates() -> None:
    with pytest.raises(ModelError, match="1 responses, this is request 2"):
        await _second(ScriptedModel(["only"]))
    repeated = await _second(ScriptedModel(Script(responses=["only"], then="repeat")))
    assert items(repeated)[0]["content"][0]["text"] == "only"
    shown = await _second(ScriptedModel(Script(responses=["only"], then="demonstrate")))
    assert "demonstration model" in items(shown)[0]["content"][0]["text"]


async def _second(model: ScriptedModel) -> list[ModelEvent]:
    await collect(model)
    return await collect(model)


async def test_a_failure_is_raised_at_its_place_in_the_script() -> None:
    model = ScriptedModel(
        [
            fails("busy", info="serverOverloaded", status=503, retry_after=2, is_retryable=True),
            ["hello", drops()],
        ]
    )
    stream = model.stream(request())
    with pytest.raises(ModelError, match="busy") as refused:
        await anext(stream)
    error = refused.value
    assert (error.info, error.http_status, error.retry_after_s) == ("serverOverloaded", 503, 2)
    assert (error.is_retryable, error.emitted, error.phase) == (True, False, "request")
    with pytest.raises(ModelError) as dropped:
        await collect(model)
    error = dropped.value
    assert error.info == CodexErrorInfoDetail(response_stream_disconnected=HttpStatus())
    assert (error.is_retryable, error.emitted, error.phase) == (True, True, "stream")


async def test_waiting_uses_the_sleep_function_of_the_model() -> None:
    slept: list[float] = []
    asleep = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        asleep.set()

    gate = asyncio.Event()
    model = ScriptedModel([[waits(3600), waits_for(gate), "done"]], sleep=sleep)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(collect(model))
        await asleep.wait()
        assert not task.done()
        gate.set()
    assert slept == [3600]
    assert items(task.result())


async def test_a_long_script_lets_other_tasks_run() -> None:
    model = ScriptedModel([says("x" * 10_000, deltas=1)])
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(others())
        await collect(model)
        task.cancel()
    assert turns > 50


async def test_a_plan_is_a_call_of_update_plan() -> None:
    model = ScriptedModel([plan("look", ("report", "completed"), explanation="why")])
    [item] = items(await collect(model))
    assert (item["name"], json.loads(item["arguments"])) == (
        "update_plan",
        {
            "plan": [
                {"step": "look", "status": "pending"},
                {"step": "report", "status": "completed"},
            ],
            "explanation": "why",
        },
    )


async def test_a_script_can_be_read_from_json(tmp_path: Path) -> None:
    responses = [
        "hello",
        {"type": "says", "text": "a", "deltas": ["a"]},
        [
            {"type": "thinks", "summary": ["hm"]},
            {"type": "calls", "tool": "f", "arguments": {"a": 1}, "call_id": "c"},
            {"type": "custom_call", "tool": "p", "input": "x"},
            {"type": "usage", "usage": {"input_tokens": 1}},
            {"type": "waits", "seconds": 0},
        ],
        {
            "type": "fails",
            "info": {"httpConnectionFailed": {"httpStatusCode": 401}},
            "status": 401,
        },
    ]
    text = json.dumps(responses)
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"responses": responses, "then": "repeat"}))
    script = load_script(path)
    assert script.then == "repeat"
    assert script.responses == load_script(text).responses == load_script(text.encode()).responses
    model = ScriptedModel(script)
    found = [item["type"] for _ in range(3) for item in items(await collect(model))]
    assert found == ["message", "message", "reasoning", "function_call", "custom_tool_call"]
    with pytest.raises(ModelError) as caught:
        await collect(model)
    assert caught.value.info == CodexErrorInfoDetail(
        http_connection_failed=HttpStatus(http_status_code=401)
    )


@pytest.mark.parametrize(
    "source", ["[", '[{"type": "sings"}]', '{"replies": []}', "/no/such/script.json"]
)
def test_an_invalid_script_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="not a script"):
        load_script(source)
