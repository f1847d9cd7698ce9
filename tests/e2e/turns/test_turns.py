"""Plain turns: text, reasoning, plan, web search, image, output schema (upstream's steps)."""

from __future__ import annotations

import base64

import pytest

from tests.harness.items import untimed
from tests.harness.model_server import Reply, added, calls, completed, created, done, message, says
from tests.harness.threads import (
    ANSWER,
    EPILOGUE,
    PROLOGUE,
    Stage,
    keys,
    outline,
    params_of,
    text_input,
)
from treadle.protocol.base import JsonValue

REASONING: list[JsonValue] = [
    added({"type": "reasoning", "id": "rs-1", "summary": []}),
    {"type": "response.reasoning_summary_part.added", "item_id": "rs-1", "summary_index": 0},
    {
        "type": "response.reasoning_summary_text.delta",
        "item_id": "rs-1",
        "summary_index": 0,
        "delta": "**Think",
    },
    {
        "type": "response.reasoning_summary_text.delta",
        "item_id": "rs-1",
        "summary_index": 0,
        "delta": "ing** a",
    },
    {"type": "response.reasoning_summary_part.added", "item_id": "rs-1", "summary_index": 1},
    {
        "type": "response.reasoning_summary_text.delta",
        "item_id": "rs-1",
        "summary_index": 1,
        "delta": "second",
    },
    {
        "type": "response.reasoning_text.delta",
        "item_id": "rs-1",
        "content_index": 0,
        "delta": "raw thoughts",
    },
    done(
        {
            "type": "reasoning",
            "id": "rs-1",
            "summary": [
                {"type": "summary_text", "text": "**Thinking** a"},
                {"type": "summary_text", "text": "second"},
            ],
            "content": [{"type": "reasoning_text", "text": "raw thoughts"}],
            "encrypted_content": "enc==",
        }
    ),
]
SCHEMA: JsonValue = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


async def test_a_turn_publishes_its_status_items_and_end_in_the_documented_order(
    stage: Stage,
) -> None:
    """Upstream: reasoning and a streamed message."""
    answer = message("Hello world", "m1", ["Hello", " world"])
    stage.model.plays(Reply([created(), *REASONING, *answer, completed()]))
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))

    messages = await client.run(thread_id, "say hello")

    assert outline(messages) == [
        *PROLOGUE,
        "item/started reasoning",
        "item/reasoning/summaryPartAdded",
        "item/reasoning/summaryTextDelta",
        "item/reasoning/summaryTextDelta",
        "item/reasoning/summaryPartAdded",
        "item/reasoning/summaryTextDelta",
        "item/reasoning/textDelta",
        "item/completed reasoning",
        "item/started agentMessage",
        "item/agentMessage/delta",
        "item/agentMessage/delta",
        "item/completed agentMessage",
        "thread/tokenUsage/updated",
        *EPILOGUE,
    ]
    items = [untimed(params["item"]) for params in params_of(messages, "item/completed")]
    assert items[1:] == [
        {
            "type": "reasoning",
            "id": "rs-1",
            "summary": ["**Thinking** a", "second"],
            "content": ["raw thoughts"],
        },
        {
            "type": "agentMessage",
            "id": "m1",
            "text": "Hello world",
            "phase": None,
            "memoryCitation": None,
            "delivery": None,
            "questions": None,
        },
    ]
    usage = params_of(messages, "thread/tokenUsage/updated")[0]["tokenUsage"]
    spent = {
        "totalTokens": 15,
        "inputTokens": 10,
        "cachedInputTokens": 0,
        "cacheWriteInputTokens": 0,
        "outputTokens": 5,
        "reasoningOutputTokens": 0,
    }
    assert usage == {"total": spent, "last": spent, "modelContextWindow": 258_400}


async def test_a_turn_has_the_same_ids_and_keys_from_its_answer_to_its_end(
    stage: Stage,
) -> None:
    """Upstream: the answer has no times, the start one, the end both and the last message."""
    client = await stage.client()
    thread_id = await client.start()
    asked = {"threadId": thread_id, "input": [text_input("hi")]}

    promised = (await client.request("turn/start", asked))["turn"]
    messages = await client.end_of(promised["id"])

    begun, ended = (
        params_of(messages, method)[0]["turn"] for method in ("turn/started", "turn/completed")
    )
    assert promised == {
        "id": promised["id"],
        "rootTurnId": promised["id"],
        "items": [],
        "itemsView": "notLoaded",
        "status": "inProgress",
        "error": None,
        "startedAt": None,
        "completedAt": None,
        "durationMs": None,
    }
    assert begun == {**promised, "startedAt": begun["startedAt"]}
    assert isinstance(begun["startedAt"], int)
    assert ended["itemsView"] == "summary"
    assert [item["text"] for item in ended["items"]] == ["done"]
    assert ended["durationMs"] >= 0
    assert {".params.item.clientId", ".params.startedAtMs", ".emittedAtMs"} <= keys(messages[3])
    assert {params["turnId"] for params in params_of(messages, "item/completed")} == {
        promised["id"]
    }


async def test_the_model_receives_its_environment_before_the_users_message(stage: Stage) -> None:
    """Upstream: developer message, environment, then the user's own words."""
    (stage.workspace / "AGENTS.md").write_text("Be kind.", "utf-8")
    client = await stage.client()
    thread_id = await client.start(
        cwd=str(stage.workspace), baseInstructions="BASETEXT", developerInstructions="DEVTEXT"
    )
    await client.run(thread_id, "hi")

    asked = stage.model.requests[0]

    developer, surroundings, user = asked.body["input"]
    assert asked.path == "/v1/responses"
    assert asked.headers["originator"] == "probe"
    assert asked.headers["user-agent"].startswith("probe/0.163.0 (")
    assert asked.headers["session_id"] == asked.headers["x-client-request-id"] == thread_id
    assert asked.body["instructions"] == "BASETEXT"
    assert asked.body["prompt_cache_key"] == thread_id
    assert (asked.body["store"], asked.body["stream"]) == (False, True)
    assert developer["role"] == "developer"
    assert developer["content"][0]["text"].startswith("<permissions instructions>")
    assert developer["content"][1]["text"] == "DEVTEXT"
    assert surroundings["content"][0]["text"] == (
        f"# AGENTS.md instructions for {stage.workspace}\n\n"
        "<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>"
    )
    assert f"<cwd>{stage.workspace}</cwd>" in surroundings["content"][1]["text"]
    assert user == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hi"}],
    }


async def test_the_second_request_carries_the_whole_conversation_and_the_context_once(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    await client.run(thread_id, "one")
    await client.run(thread_id, "two")

    messages = stage.model.requests[1].messages()

    assert [role for role, _ in messages] == ["developer", "user", "user", "assistant", "user"]
    assert stage.model.requests[1].conversation() == [
        ("user", "one"),
        ("assistant", "done"),
        ("user", "two"),
    ]


async def test_a_plan_of_the_model_is_published_as_a_whole(stage: Stage) -> None:
    """Upstream 0.118: `update_plan` has no item, only `turn/plan/updated`."""
    steps = [{"step": "a", "status": "completed"}, {"step": "b", "status": "in_progress"}]
    stage.model.plays(calls("update_plan", {"explanation": "why", "plan": steps}), says("ok", "m2"))
    client = await stage.client()
    messages = await client.run(await client.start())

    # The tool runs while the rest of the answer arrives, its usage last.
    usage = "thread/tokenUsage/updated"
    lines = [line for line in outline(messages) if line != usage]
    assert lines == [*PROLOGUE, "turn/plan/updated", *ANSWER[:2], *EPILOGUE]
    assert params_of(messages, "turn/plan/updated")[0]["plan"] == [
        {"step": "a", "status": "completed"},
        {"step": "b", "status": "inProgress"},
    ]
    assert stage.model.requests[1].outputs() == {"call-1": "Plan updated"}


async def test_a_web_search_of_the_provider_is_an_item(stage: Stage) -> None:
    """Upstream: started without its query, completed with it."""
    search: JsonValue = {"type": "web_search_call", "id": "ws-1", "status": "in_progress"}
    action = {"type": "search", "query": "weather", "queries": ["weather"]}
    found = {**search, "status": "completed", "action": action}
    steps = [created(), added(search), done(found), *message("ok", "m1"), completed()]
    stage.model.plays(Reply(steps))
    client = await stage.client()
    messages = await client.run(await client.start())

    assert outline(messages) == [
        *PROLOGUE,
        "item/started webSearch",
        "item/completed webSearch",
        *ANSWER,
        *EPILOGUE,
    ]
    started = params_of(messages, "item/started")[1]["item"]
    finished = params_of(messages, "item/completed")[1]["item"]
    blank = {"type": "webSearch", "id": "ws-1", "results": None}
    assert untimed(started) == {**blank, "query": "", "action": {"type": "other"}}
    assert untimed(finished) == {**blank, "query": "weather", "action": action}


async def test_images_and_a_schema_reach_the_model_with_what_else_the_turn_overrides(
    stage: Stage,
) -> None:
    """Upstream 0.118; 0.163 refuses remote images, we pass them on."""
    picture = stage.workspace / "x.png"
    picture.write_bytes(b"\x89PNG")
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says('{"a": "b"}', "m1"))
    input_ = [
        text_input("look"),
        {"type": "image", "url": "https://e.com/a.png"},
        {"type": "localImage", "path": str(picture)},
    ]
    overrides = {"effort": "medium", "summary": "concise", "model": "mock-2"}
    await client.run(thread_id, input=input_, outputSchema=SCHEMA, **overrides)
    await client.run(thread_id, "again")

    first, second = (asked.body for asked in stage.model.requests)

    assert first["input"][-1]["content"][:2] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "https://e.com/a.png"},
    ]
    data = base64.b64encode(b"\x89PNG").decode()
    assert first["input"][-1]["content"][3]["image_url"] == f"data:image/png;base64,{data}"
    assert first["text"]["format"] == {
        "type": "json_schema",
        "strict": True,
        "schema": SCHEMA,
        "name": "codex_output_schema",
    }
    assert first["reasoning"] == {"effort": "medium", "summary": "concise"}
    # The overrides stay, the schema was for one turn only.
    assert (second["model"], second["reasoning"]) == ("mock-2", first["reasoning"])
    assert "format" not in second.get("text", {})


async def test_an_answer_that_violates_its_schema_is_requested_once_more(stage: Stage) -> None:
    """Ours: one repair, then the last answer counts."""
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(says("nonsense", "m1"), says('{"a": "b"}', "m2"))

    messages = await client.run(thread_id, outputSchema=SCHEMA)

    assert [item["text"] for item in messages[-1]["params"]["turn"]["items"]] == ['{"a": "b"}']
    assert len(stage.model.requests) == 2
    stage.model.plays(says("nonsense", "m3"), says("still nonsense", "m4"))
    messages = await client.run(thread_id, outputSchema=SCHEMA)
    assert [item["text"] for item in messages[-1]["params"]["turn"]["items"]] == ["still nonsense"]
    assert len(stage.model.requests) == 4


@pytest.mark.parametrize(
    ("name", "arguments", "output"),
    [
        ("no_such_tool", {}, "unsupported call: no_such_tool"),
        ("update_plan", "{bad", "failed to parse function arguments: "),
        ("update_plan", {"plan": 1}, "failed to parse function arguments: "),
    ],
)
async def test_a_call_that_cannot_be_carried_out_is_reported_to_the_model(
    stage: Stage, name: str, arguments: JsonValue, output: str
) -> None:
    stage.model.plays(calls(name, arguments), says("ok", "m2"))
    client = await stage.client()

    messages = await client.run(await client.start())

    usage = "thread/tokenUsage/updated"
    assert outline(messages) == [*PROLOGUE, usage, *ANSWER, *EPILOGUE]
    assert stage.model.requests[1].outputs()["call-1"].startswith(output)


async def test_empty_input_runs_a_turn_without_a_message(stage: Stage) -> None:
    """Upstream 0.163; 0.118 refused it."""
    client = await stage.client()
    messages = await client.run(await client.start(), input=[])

    assert outline(messages) == [*PROLOGUE[:2], *ANSWER, *EPILOGUE]
