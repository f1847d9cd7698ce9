"""Client tools: offered to the model, called through the clients, and never blocking a turn."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.harness.items import untimed
from tests.harness.model_server import Reply, calls, completed, created, done
from tests.harness.questions import answer, question, refuse
from tests.harness.threads import EPILOGUE, PROLOGUE, Client, Stage, outline, params_of
from treadle.protocol.base import JsonValue

CALL = "item/tool/call"
SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
LOOKUP = {"name": "lookup_ticket", "description": "Fetch a ticket", "inputSchema": SCHEMA}
PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
OPEN = {"contentItems": [{"type": "inputText", "text": "Ticket is open."}], "success": True}


def text(words: str) -> JsonValue:
    """Text in a tool's answer."""
    return {"type": "inputText", "text": words}


async def call_once(
    stage: Stage, client: Client, thread_id: str, reply: JsonValue, call_id: str
) -> tuple[list[JsonValue], JsonValue]:
    """Let the model call the tool and the client answer; return the messages and the output."""
    stage.model.plays(calls("lookup_ticket", {"id": "X"}, call_id))
    turn_id = await client.start_turn(thread_id)
    asked = await question(client, CALL)
    await answer(client, asked, reply)
    messages = await client.end_of(turn_id)
    return messages, stage.model.requests[-1].outputs()[call_id]


def completed_item(messages: list[JsonValue]) -> JsonValue:
    """The dynamic tool call as it ended, without its duration and times."""
    items = [params["item"] for params in params_of(messages, "item/completed")]
    item = next(item for item in items if item["type"] == "dynamicToolCall")
    assert item.pop("durationMs") >= 0
    return untimed(item)


def item(status: str, content: JsonValue, **changes: JsonValue) -> JsonValue:
    """A dynamic tool call as clients receive it."""
    return {
        "type": "dynamicToolCall",
        "id": "call-1",
        "namespace": None,
        "tool": "lookup_ticket",
        "arguments": {"id": "X"},
        "status": status,
        "contentItems": content,
        "success": status == "completed",
        **changes,
    }


async def test_the_tool_of_a_client_is_offered_called_and_its_answer_reaches_the_model(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[LOOKUP])
    stage.model.plays(calls("lookup_ticket", {"id": "X"}))

    turn_id = await client.start_turn(thread_id)
    before = await client.until(CALL)
    asked = before[-1]
    parts = [text("Ticket is open."), {"type": "inputImage", "imageUrl": PNG}]
    await answer(client, asked, {"contentItems": parts, "success": True})
    after = await client.end_of(turn_id)

    started = params_of(before, "item/started")[-1]["item"]
    assert untimed(started) == item("inProgress", None, success=None, durationMs=None)
    assert asked["params"] == {
        "threadId": thread_id,
        "turnId": turn_id,
        "callId": "call-1",
        "namespace": None,
        "tool": "lookup_ticket",
        "arguments": {"id": "X"},
    }
    assert outline(before)[-2:] == ["item/started dynamicToolCall", CALL]
    assert [line for line in outline(after) if line != "thread/tokenUsage/updated"] == [
        "serverRequest/resolved",
        "item/completed dynamicToolCall",
        "item/started agentMessage",
        "item/completed agentMessage",
        *EPILOGUE,
    ]
    assert completed_item(after) == item("completed", parts)
    first, second = stage.model.requests
    offered = [tool for tool in first.body["tools"] if tool.get("name") == "lookup_ticket"]
    assert offered == [
        {
            "type": "function",
            "name": "lookup_ticket",
            "description": "Fetch a ticket",
            "strict": False,
            "parameters": SCHEMA,
        }
    ]
    assert second.outputs()["call-1"] == [
        {"type": "input_text", "text": "Ticket is open."},
        {"type": "input_image", "image_url": PNG, "detail": "high"},
    ]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ([text("one")], "one"),
        ([], ""),
        (
            [text("one"), text("two")],
            [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}],
        ),
        (
            [{"type": "inputImage", "imageUrl": "data:image/png;base64,AAAA"}],
            [
                {
                    "type": "input_text",
                    "text": "image content omitted because it could not be processed",
                }
            ],
        ),
        (
            [{"type": "inputAudio", "audioUrl": "data:audio/wav;base64,AAAA"}],
            [
                {
                    "type": "input_text",
                    "text": "audio content omitted because you do not support audio input",
                }
            ],
        ),
    ],
)
async def test_each_kind_of_content_reaches_the_model_in_a_form_it_can_take(
    stage: Stage, content: JsonValue, output: JsonValue
) -> None:
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[LOOKUP])

    messages, given = await call_once(
        stage, client, thread_id, {"contentItems": content, "success": True}, "call-1"
    )

    assert completed_item(messages) == item("completed", content)
    assert given == output


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"contentItems": [text("no such ticket")], "success": False}, "no such ticket"),
        ({"bad": 1}, "dynamic tool response was invalid"),
        ("text", "dynamic tool response was invalid"),
        ({"contentItems": [{"type": "wat"}], "success": True}, "dynamic tool response was invalid"),
        (
            {
                "contentItems": [{"type": "inputImage", "imageUrl": "https://e.com/a.png"}],
                "success": True,
            },
            "remote image URLs are not supported; use an inline data URL instead",
        ),
    ],
)
async def test_a_failed_or_invalid_tool_answer_is_reported_to_the_model_and_the_turn_continues(
    stage: Stage, reply: JsonValue, words: str
) -> None:
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[LOOKUP])

    messages, given = await call_once(stage, client, thread_id, reply, "call-1")

    assert completed_item(messages) == item("failed", [text(words)])
    assert given == words
    assert outline(messages)[-2:] == EPILOGUE


async def test_a_client_that_answers_with_an_error_fails_the_call_only(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[LOOKUP])
    stage.model.plays(calls("lookup_ticket", {"id": "X"}))

    turn_id = await client.start_turn(thread_id)
    await refuse(client, await question(client, CALL))
    messages = await client.end_of(turn_id)

    assert completed_item(messages) == item("failed", [text("dynamic tool request failed")])
    assert stage.model.requests[-1].outputs() == {"call-1": "dynamic tool request failed"}
    assert outline(messages)[-2:] == EPILOGUE


@pytest.mark.parametrize("arguments", ["{not json", ""])
async def test_arguments_that_are_not_json_never_reach_the_client(
    stage: Stage, arguments: str
) -> None:
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[LOOKUP])
    stage.model.plays(calls("lookup_ticket", arguments))

    messages = await client.run(thread_id)

    assert "dynamicToolCall" not in str(messages)
    output = stage.model.requests[-1].outputs()["call-1"]
    assert output.startswith("failed to parse function arguments: ")


async def test_an_unknown_tool_is_rejected_by_name(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[LOOKUP])
    stage.model.plays(calls("no_such_tool", {}))

    await client.run(thread_id)

    assert stage.model.requests[-1].outputs() == {"call-1": "unsupported call: no_such_tool"}


async def test_an_interrupted_call_is_completed_as_failed_before_the_turn_ends(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[LOOKUP])
    stage.model.plays(calls("lookup_ticket", {"id": "X"}))

    turn_id = await client.start_turn(thread_id)
    await question(client, CALL)
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    messages = await client.until("serverRequest/resolved")

    assert completed_item(messages) == item("failed", [])
    assert outline(messages)[-4:] == [
        "item/completed dynamicToolCall",
        "thread/status/changed idle",
        "turn/completed interrupted",
        "serverRequest/resolved",
    ]


async def test_calls_that_the_model_makes_together_run_at_the_same_time(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[LOOKUP])
    ids = ["call-1", "call-2", "call-3"]
    steps = [
        done(
            {
                "type": "function_call",
                "call_id": id_,
                "name": "lookup_ticket",
                "arguments": json.dumps({"id": id_}),
            }
        )
        for id_ in ids
    ]
    stage.model.plays(Reply([created(), *steps, completed()]))

    turn_id = await client.start_turn(thread_id)
    questions = {}
    for _ in ids:
        asked = await question(client, CALL)
        questions[asked["params"]["callId"]] = asked
    for id_ in reversed(ids):
        await answer(client, questions[id_], {"contentItems": [text(id_)], "success": True})
    await client.end_of(turn_id)

    assert stage.model.requests[-1].outputs() == {id_: id_ for id_ in ids}


async def test_a_client_that_comes_back_finds_the_call_open_and_answers_it(stage: Stage) -> None:
    first = await stage.client()
    thread_id = await first.start(dynamicTools=[LOOKUP])
    stage.model.plays(calls("lookup_ticket", {"id": "X"}))
    turn_id = await first.start_turn(thread_id)
    asked = await question(first, CALL)
    await first.peer.transport.close()

    second = await stage.client()
    await second.request("thread/resume", {"threadId": thread_id})
    again = await question(second, CALL)
    await answer(second, again, OPEN)
    messages = await second.end_of(turn_id)

    assert again["params"] == asked["params"]
    assert completed_item(messages) == item("completed", OPEN["contentItems"])
    assert stage.model.requests[-1].outputs() == {"call-1": "Ticket is open."}


async def test_a_call_survives_the_server_and_continues_the_same_turn(stage: Stage) -> None:
    first = await stage.client()
    thread_id = await first.start(dynamicTools=[LOOKUP])
    stage.model.plays(calls("lookup_ticket", {"id": "X"}))
    turn_id = await first.start_turn(thread_id)
    await question(first, CALL)
    await stage.restart()

    second = await stage.client()
    await second.request("thread/resume", {"threadId": thread_id})
    await answer(second, await question(second, CALL), OPEN)
    messages = await second.end_of(turn_id)

    assert completed_item(messages) == item("completed", OPEN["contentItems"])
    assert stage.model.requests[-1].outputs() == {"call-1": "Ticket is open."}


async def test_with_a_deadline_the_model_learns_that_no_answer_came(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[{**LOOKUP, "deadlineMs": 1}])
    stage.model.plays(calls("lookup_ticket", {"id": "X"}))

    messages = await client.run(thread_id)

    assert completed_item(messages) == item("failed", [text("no answer came in time")])
    assert stage.model.requests[-1].outputs() == {"call-1": "no answer came in time"}
    assert outline(messages)[: len(PROLOGUE)] == PROLOGUE
    assert outline(messages)[-2:] == EPILOGUE


async def test_a_client_may_replace_its_tools_on_resume_and_they_persist(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[LOOKUP])
    await client.run(thread_id)
    other = {**LOOKUP, "name": "other"}

    await client.request("thread/resume", {"threadId": thread_id, "dynamicTools": [other]})
    await client.run(thread_id)
    await stage.restart()
    later = await stage.client()
    await later.request("thread/resume", {"threadId": thread_id})
    await later.run(thread_id)
    await stage.restart()
    last = await stage.client()
    await last.request("thread/resume", {"threadId": thread_id, "dynamicTools": [LOOKUP]})
    await last.run(thread_id)

    brought = {"lookup_ticket", "other"}
    offered = [
        [tool["name"] for tool in asked.body["tools"] if tool.get("name") in brought]
        for asked in stage.model.requests
    ]
    assert offered == [["lookup_ticket"], ["other"], ["other"], ["lookup_ticket"]]


async def test_two_clients_are_asked_and_the_first_answer_counts(stage: Stage) -> None:
    first, second = await stage.client(), await stage.client()
    thread_id = await first.start(dynamicTools=[LOOKUP])
    await second.request("thread/resume", {"threadId": thread_id})
    stage.model.plays(calls("lookup_ticket", {"id": "X"}))

    turn_id = await first.start_turn(thread_id)
    asked_first, asked_second = await asyncio.gather(  # noqa: TID251 - two who wait, no owner
        question(first, CALL), question(second, CALL)
    )
    await answer(second, asked_second, OPEN)
    resolved = await first.until("serverRequest/resolved")
    await answer(first, asked_first, {"contentItems": [text("late")], "success": True})
    await first.end_of(turn_id)

    assert asked_first == asked_second
    assert resolved[-1]["params"] == {"threadId": thread_id, "requestId": asked_first["id"]}
    assert stage.model.requests[-1].outputs() == {"call-1": "Ticket is open."}


async def test_the_model_reads_both_ends_of_a_long_answer_and_clients_all_of_it(
    stage: Stage,
) -> None:
    stage.configure("tool_output_token_limit = 10")
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[LOOKUP])
    parts = [text("begin" + "x" * 100_000 + "end"), text("more")]

    messages, given = await call_once(
        stage, client, thread_id, {"contentItems": parts, "success": True}, "call-1"
    )

    assert completed_item(messages) == item("completed", parts)
    long = "begin" + "x" * 15 + "…24992 tokens truncated…" + "x" * 17 + "end"
    assert given == [
        {"type": "input_text", "text": long},
        {"type": "input_text", "text": "[omitted 1 text items ...]"},
    ]
