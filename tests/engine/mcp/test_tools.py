"""How the model uses the tools of a real MCP server, and what clients see of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.items import untimed
from tests.harness.mcp import call, gone, item_of, offered, official, settled, stdio, text_of
from tests.harness.mcp_plain import PIXEL
from tests.harness.model_server import Reply, calls, completed, created, done
from tests.harness.threads import ANSWER, EPILOGUE, PROLOGUE, Client, Stage, outline, params_of
from treadle.protocol.base import JsonValue


async def ready(stage: Stage, **settings: JsonValue) -> tuple[Client, str]:
    """A thread whose one MCP server is ready."""
    stage.configure(stdio(**settings))
    client = await stage.client()
    thread_id = await client.start()
    await settled(client, "mini")
    return client, thread_id


def item(tool: str, **changes: JsonValue) -> JsonValue:
    """A call as clients receive it."""
    return {
        "type": "mcpToolCall",
        "id": "call-1",
        "server": "mini",
        "tool": tool,
        "status": "completed",
        "arguments": {},
        "appContext": None,
        "mcpAppUi": None,
        "pluginId": None,
        "readOnlyHint": True,
        "result": None,
        "error": None,
        **changes,
    }


def timeless(call_item: JsonValue) -> JsonValue:
    """The item without its duration and its times, which it must have."""
    assert isinstance(call_item.pop("durationMs"), int)
    return untimed(call_item)


async def test_a_call_is_published_from_start_to_end_and_answered(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    stage.model.plays(calls("mcp__mini__echo", {"text": "hi"}))
    messages = await client.run(thread_id)

    begun = item("echo", status="inProgress", arguments={"text": "hi"}, durationMs=None)
    assert untimed(item_of(messages, "item/started")) == begun
    content = [{"type": "text", "text": "echo: hi"}]
    result = {"content": content, "structuredContent": None, "_meta": None}
    assert timeless(item_of(messages)) == item("echo", arguments={"text": "hi"}, result=result)
    assert outline(messages) == [
        *PROLOGUE,
        "thread/tokenUsage/updated",
        "item/started mcpToolCall",
        "item/completed mcpToolCall",
        *ANSWER,
        *EPILOGUE,
    ]
    assert text_of(stage.model.requests[-1].outputs()["call-1"]) == "echo: hi"


async def test_a_server_of_the_official_sdk_works_too(stage: Stage) -> None:
    stage.configure(official())
    client = await stage.client()
    thread_id = await client.start()
    await settled(client, "mini")
    outputs = []
    for tool, arguments in (("echo", {"text": "hi"}), ("fail", {}), ("picture", {})):
        _, output = await call(stage.model, client, thread_id, f"mcp__mini__{tool}", arguments)
        outputs.append(text_of(output))
    asked = {"server": "mini", "uri": "memo://by/me"}
    _, document = await call(stage.model, client, thread_id, "read_mcp_resource", asked)

    assert outputs == ["echo: hi", "Error executing tool fail: it broke", "a pixel[picture]"]
    assert json.loads(document)["contents"][0]["text"] == "memos by me"


async def test_tools_are_offered_with_the_name_of_their_server(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    await client.run(thread_id)

    tools = {tool.get("name"): tool for tool in stage.model.requests[-1].body["tools"]}
    assert tools["mcp__mini__echo"] == {
        "type": "function",
        "name": "mcp__mini__echo",
        "description": "Say it again.",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
        },
    }


async def test_a_namespaced_call_in_the_form_of_codex_works(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    namespaced = {
        "type": "function_call",
        "call_id": "call-1",
        "namespace": "mcp__mini",
        "name": "echo",
        "arguments": '{"text":"hi"}',
    }
    stage.model.plays(Reply([created(), done(namespaced), completed()]))
    await client.run(thread_id)

    assert text_of(stage.model.requests[-1].outputs()["call-1"]) == "echo: hi"


async def test_instructions_of_a_server_reach_the_model_once(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    await client.run(thread_id)
    await client.run(thread_id)

    said = [text for _, text in stage.model.requests[-1].messages("developer") if "Be kind" in text]
    tag = "mcp_server_instructions"
    assert said == [f'<{tag} server="mini">\nBe kind to this server.\n</{tag}>']


async def test_only_tools_that_are_enabled_and_not_disabled_are_offered(stage: Stage) -> None:
    client, thread_id = await ready(
        stage, enabled_tools=["echo", "plain"], disabled_tools=["plain"]
    )
    await client.run(thread_id)

    assert [name for name in offered(stage) if name.startswith("mcp__")] == ["mcp__mini__echo"]


async def test_images_reach_the_model_as_images(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    _, output = await call(stage.model, client, thread_id, "mcp__mini__picture")

    assert output[1:] == [
        {"type": "input_text", "text": "a pixel"},
        {
            "type": "input_image",
            "image_url": f"data:image/gif;base64,{PIXEL}",
            "detail": "high",
        },
    ]


async def test_the_model_receives_the_structured_content_of_a_result(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    ended, output = await call(stage.model, client, thread_id, "mcp__mini__add", {"a": 2, "b": 3})

    assert ended["result"]["structuredContent"] == {"total": 5}
    assert output.splitlines()[1:] == ["Output:", '{"total":5}']


async def test_a_tool_that_fails_is_a_failed_item_with_its_result(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    ended, output = await call(stage.model, client, thread_id, "mcp__mini__fail")

    result = {
        "content": [{"type": "text", "text": "it broke"}],
        "structuredContent": None,
        "_meta": None,
    }
    assert timeless(ended) == item("fail", status="failed", result=result)
    assert text_of(output) == "it broke"


async def test_progress_is_published_while_the_tool_works(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    stage.model.plays(calls("mcp__mini__steps", {}))
    turn_id = await client.start_turn(thread_id)
    messages = await client.end_of(turn_id)

    about = {"threadId": thread_id, "turnId": turn_id, "itemId": "call-1"}
    assert params_of(messages, "item/mcpToolCall/progress") == [
        {**about, "message": "step 1"},
        {**about, "message": "step 2"},
    ]


async def test_a_server_receives_only_the_listed_variables(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARED", "shared")
    monkeypatch.setenv("SECRET", "secret")
    client, thread_id = await ready(stage, env={"OWN": "own"}, env_vars=["SHARED"])

    seen = []
    for name in ("OWN", "SHARED", "SECRET"):
        arguments = {"name": name}
        _, output = await call(stage.model, client, thread_id, "mcp__mini__environment", arguments)
        seen.append(text_of(output))
    assert seen == ["own", "shared", "(not set)"]


async def test_a_server_that_dies_in_a_call_fails_it_and_is_restarted_for_the_next(
    stage: Stage,
) -> None:
    client, thread_id = await ready(stage)
    ended, output = await call(stage.model, client, thread_id, "mcp__mini__die")
    again, answer = await call(stage.model, client, thread_id, "mcp__mini__echo", {"text": "again"})

    why = (
        "tool call error: tool call failed for `mini/die`\n\nCaused by:\n"
        "    the MCP server 'mini' ended before it answered: I am dying"
    )
    assert timeless(ended) == item("die", status="failed", error={"message": why})
    assert text_of(output) == why
    assert (again["status"], text_of(answer)) == ("completed", "echo: again")


async def test_a_call_that_takes_too_long_is_abandoned(stage: Stage) -> None:
    client, thread_id = await ready(stage, tool_timeout_sec=0.2)
    ended, output = await call(stage.model, client, thread_id, "mcp__mini__linger")

    assert ended["status"] == "failed"
    assert text_of(output).endswith("timed out awaiting tools/call after 200ms")


async def test_an_interrupted_call_is_a_failed_item(stage: Stage, tmp_path: Path) -> None:
    client, thread_id = await ready(stage)
    stage.model.plays(calls("mcp__mini__linger", {"mark": str(tmp_path / "begun")}))
    turn_id = await client.start_turn(thread_id)
    await client.until("item/started", lambda params: params["item"]["type"] == "mcpToolCall")
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    messages = await client.end_of(turn_id)

    why = {"message": "MCP tool call was interrupted"}
    arguments = {"mark": str(tmp_path / "begun")}
    assert timeless(item_of(messages)) == item(
        "linger", status="failed", arguments=arguments, error=why
    )
    assert messages[-1]["params"]["turn"]["status"] == "interrupted"


@pytest.mark.parametrize("arguments", ["not json", "[1]", '"text"'])
async def test_arguments_that_are_not_an_object_are_rejected_with_the_reason(
    stage: Stage, arguments: str
) -> None:
    client, thread_id = await ready(stage)
    _, output = await call(stage.model, client, thread_id, "mcp__mini__echo", arguments)

    assert output.startswith("failed to parse function arguments: ")


async def test_a_tool_that_appears_later_is_offered_from_then_on(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    stage.model.plays(calls("mcp__mini__grow", {}))
    await client.start_turn(thread_id)
    await settled(client, "mini")
    await client.run(thread_id)

    assert "mcp__mini__late" in offered(stage)


@pytest.mark.parametrize("how", ["silence", "error"])
async def test_a_server_that_does_not_list_its_changed_tools_keeps_them_and_delays_nothing(
    stage: Stage, how: str
) -> None:
    client, thread_id = await ready(stage)
    _, process = await call(stage.model, client, thread_id, "mcp__mini__process")
    _, hushed = await call(stage.model, client, thread_id, "mcp__mini__hush", {"how": how})
    _, output = await call(stage.model, client, thread_id, "mcp__mini__process")
    await client.request("thread/unsubscribe", {"threadId": thread_id})
    await gone(int(text_of(process)))
    await stage.close()

    assert (text_of(hushed), text_of(output)) == ("hushed", text_of(process))


async def test_resources_are_listed_and_read(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    first = {
        "server": "mini",
        "name": "first",
        "uri": "memo://first",
        "description": "The first memo.",
        "mimeType": "text/plain",
    }
    outputs = {}
    for tool, arguments in (
        ("list_mcp_resources", {}),
        ("list_mcp_resource_templates", {"server": "mini"}),
        ("read_mcp_resource", {"server": "mini", "uri": "memo://by/me"}),
    ):
        ended, output = await call(stage.model, client, thread_id, tool, arguments)
        outputs[tool] = (ended["server"], ended["status"], json.loads(output))

    assert outputs["list_mcp_resources"] == ("codex", "completed", {"resources": [first]})
    server, status, templates = outputs["list_mcp_resource_templates"]
    assert (server, status, templates["server"]) == ("mini", "completed", "mini")
    assert [each["uriTemplate"] for each in templates["resourceTemplates"]] == [
        "memo://by/{author}"
    ]
    text = {"uri": "memo://by/me", "mimeType": "text/plain", "text": "memos by me"}
    assert outputs["read_mcp_resource"] == (
        "mini",
        "completed",
        {"server": "mini", "uri": "memo://by/me", "contents": [text]},
    )


async def test_a_missing_resource_fails_with_the_servers_message(
    stage: Stage,
) -> None:
    client, thread_id = await ready(stage)
    asked = {"server": "mini", "uri": "memo://nowhere"}
    ended, output = await call(stage.model, client, thread_id, "read_mcp_resource", asked)
    other, refusal = await call(
        stage.model, client, thread_id, "read_mcp_resource", {**asked, "server": "zip"}
    )

    assert (ended["status"], ended["error"]["message"]) == ("failed", output)
    assert "Unknown resource" in output
    assert (other["status"], refusal) == (
        "failed",
        "resources/read failed: unknown MCP server 'zip'",
    )
