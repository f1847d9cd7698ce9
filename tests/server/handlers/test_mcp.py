"""Requests of clients about MCP servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.mcp import http_server, settled, stdio, table
from tests.harness.threads import UNKNOWN_THREAD, Stage, staged
from treadle.protocol.base import JsonValue


@pytest.fixture
async def stage(home: Path) -> AsyncIterator[Stage]:
    """Provide a server in this process and a model on the loopback interface."""
    async with staged(home) as stage:
        yield stage


def plainly(status: JsonValue) -> JsonValue:
    """Return a status with only the names of what a server offers."""
    names = {"tools": sorted(status["tools"])}
    for key in ("resources", "resourceTemplates"):
        names[key] = [each["name"] for each in status[key]]
    return {**status, **names}


OFF: JsonValue = {
    "name": "off",
    "runtimeStatus": None,
    "pluginId": None,
    "httpOrigin": None,
    "serverInfo": None,
    "serverCapabilities": None,
    "tools": [],
    "toolsError": None,
    "resources": [],
    "resourceTemplates": [],
    "authStatus": "unsupported",
}
ABOUT: JsonValue = {
    "name": "harness",
    "title": None,
    "version": "1.0",
    "description": None,
    "icons": None,
    "websiteUrl": None,
}


async def test_configured_servers_are_listed_with_what_they_offer(stage: Stage) -> None:
    off = table("off", command="sh", enabled=False)
    bad = table("bad", command="/no/such/program")
    stage.configure(off + bad + stdio(enabled_tools=["echo", "add"]))
    client = await stage.client()
    listed = await client.request("mcpServerStatus/list", {})

    broken, mini, disabled = map(plainly, listed["data"])
    failed = "MCP startup failed: No such file or directory (os error 2)"
    assert broken == {**OFF, "name": "bad", "toolsError": failed}
    assert disabled == OFF
    assert mini == {
        **OFF,
        "name": "mini",
        "serverCapabilities": {"resources": {}, "tools": {"listChanged": True}},
        "serverInfo": ABOUT,
        "tools": ["add", "echo"],
        "resources": ["first"],
        "resourceTemplates": ["by author"],
    }
    assert listed["nextCursor"] is None


async def test_the_servers_of_a_thread_are_listed_with_their_state(stage: Stage) -> None:
    stage.configure(stdio() + table("off", command="sh", enabled=False))
    client = await stage.client()
    thread_id = await client.start()
    params = {"threadId": thread_id, "detail": "toolsAndAuthOnly"}
    listed = await client.request("mcpServerStatus/list", params)

    seen = [(each["name"], each["runtimeStatus"], each["resources"]) for each in listed["data"]]
    assert seen == [("mini", "connected", []), ("off", "disabled", [])]
    assert listed["data"][0]["tools"]["echo"] == {
        "name": "echo",
        "description": "Say it again.",
        "annotations": {"readOnlyHint": True},
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
        },
    }


async def test_the_list_is_paged(stage: Stage) -> None:
    names = ("a", "b", "c")
    stage.configure("".join(table(name, command="sh", enabled=False) for name in names))
    client = await stage.client()
    pages = []
    cursor = None
    for _ in range(2):
        page = await client.request("mcpServerStatus/list", {"limit": 2, "cursor": cursor})
        pages.append([each["name"] for each in page["data"]])
        cursor = page["nextCursor"]
    one = await client.request("mcpServerStatus/list", {"serverName": "b"})
    refusal = await client.refusal("mcpServerStatus/list", {"cursor": "zz"})

    assert (pages, cursor) == ([["a", "b"], ["c"]], None)
    assert [each["name"] for each in one["data"]] == ["b"]
    assert (refusal.code, refusal.message) == (-32600, "invalid cursor: zz")


async def test_the_origin_of_a_server_is_shown_without_its_password(stage: Stage) -> None:
    async with http_server() as url:
        address = url.replace("http://", "http://user:secret@")
        stage.configure(table("web", url=address))
        client = await stage.client()
        listed = await client.request("mcpServerStatus/list", {})

    (status,) = listed["data"]
    assert (status["httpOrigin"], status["authStatus"], status["toolsError"]) == (
        url.removesuffix("/mcp"),
        "unsupported",
        None,
    )


async def test_a_client_calls_a_tool_itself(stage: Stage) -> None:
    stage.configure(stdio())
    client = await stage.client()
    thread_id = await client.start()

    async def call(tool: str, **arguments: JsonValue) -> JsonValue:
        params = {"threadId": thread_id, "server": "mini", "tool": tool, "arguments": arguments}
        return await client.request("mcpServer/tool/call", params)

    assert await call("echo", text="hi") == {
        "content": [{"type": "text", "text": "echo: hi"}],
    }
    assert await call("fail") == {
        "content": [{"type": "text", "text": "it broke"}],
        "isError": True,
    }
    added = await call("add", a=1, b=2)
    assert added["structuredContent"] == {"total": 3}


@pytest.mark.parametrize(
    "settings", [{"disabled_tools": ["danger"]}, {"enabled_tools": ["echo"]}], ids=str
)
async def test_a_client_cannot_call_a_tool_that_is_disabled(
    stage: Stage, settings: dict[str, JsonValue]
) -> None:
    """Upstream's text and code."""
    stage.configure(stdio(**settings))
    client = await stage.client()
    params = {"threadId": await client.start(), "server": "mini", "tool": "danger"}
    refused = await client.refusal("mcpServer/tool/call", params)

    assert (refused.code, refused.message) == (
        -32603,
        "tool 'danger' is disabled for MCP server 'mini'",
    )


@pytest.mark.parametrize("arguments", [[1], "text", 7], ids=str)
async def test_arguments_that_are_not_an_object_never_reach_the_server(
    stage: Stage, arguments: JsonValue
) -> None:
    stage.configure(stdio())
    client = await stage.client()
    params = {"threadId": await client.start(), "server": "mini", "tool": "echo"}
    refused = await client.refusal("mcpServer/tool/call", {**params, "arguments": arguments})

    assert (refused.code, refused.message) == (
        -32603,
        "tool call failed for `mini/echo`: MCP tool arguments must be a JSON object",
    )


async def test_an_impossible_call_is_refused(stage: Stage) -> None:
    stage.configure(table("bad", command="/no/such/program"))
    client = await stage.client()
    thread_id = await client.start()
    await settled(client, "bad")
    asked = {"threadId": thread_id, "server": "bad", "tool": "echo"}
    broken = await client.refusal("mcpServer/tool/call", asked)
    unknown = await client.refusal("mcpServer/tool/call", {**asked, "server": "zip"})
    nowhere = await client.refusal("mcpServer/tool/call", {**asked, "threadId": UNKNOWN_THREAD})

    assert (broken.code, broken.message) == (
        -32603,
        "MCP startup failed: No such file or directory (os error 2)",
    )
    assert (unknown.code, unknown.message) == (-32603, "unknown MCP server 'zip'")
    assert (nowhere.code, nowhere.message) == (-32600, f"thread not found: {UNKNOWN_THREAD}")


async def test_a_client_reads_a_resource_with_and_without_a_thread(stage: Stage) -> None:
    stage.configure(stdio())
    client = await stage.client()
    thread_id = await client.start()
    params = {"server": "mini", "uri": "memo://first"}
    inside = await client.request("mcpServer/resource/read", {**params, "threadId": thread_id})
    outside = await client.request("mcpServer/resource/read", {**params, "originCallId": "c1"})
    refusal = await client.refusal("mcpServer/resource/read", {**params, "uri": "memo://none"})

    text = {"uri": "memo://first", "mimeType": "text/plain", "text": "buy milk"}
    assert inside == {"contents": [text], "originCallId": None}
    assert outside == {"contents": [text], "originCallId": "c1"}
    assert "Unknown resource" in refusal.message


async def test_streams_of_events_are_for_hosted_apps_only(stage: Stage) -> None:
    client = await stage.client()
    asked = {"arguments": {}, "name": "x", "server": "s", "subscriptionId": "1"}
    refusal = await client.refusal(
        "mcpServer/event/stream/start", {**asked, "threadId": UNKNOWN_THREAD}
    )

    assert refusal.message == "MCP event subscriptions are only supported for hosted apps"
    assert await client.request("mcpServer/event/stream/stop", {"subscriptionId": "1"}) == {}
