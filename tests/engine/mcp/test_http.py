"""MCP servers at an address: headers, tokens, and servers that go away and come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.harness.mcp import call, http_server, settled, table, text_of
from tests.harness.mcp_plain import READS
from tests.harness.model_server import calls
from tests.harness.questions import answer, question
from tests.harness.threads import Client, Stage
from treadle.protocol.base import JsonValue


async def ready(stage: Stage, url: str) -> tuple[Client, str]:
    """A thread whose one MCP server, at this address, is ready."""
    stage.configure(table("web", url=url))
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="on-request")
    assert (await settled(client, "web"))["web"]["error"] is None
    return client, thread_id


async def test_a_tool_is_called_over_http(stage: Stage) -> None:
    async with http_server() as url:
        client, thread_id = await ready(stage, url)
        item, output = await call(stage.model, client, thread_id, "mcp__web__echo", {"text": "a"})

    assert (item["status"], text_of(output)) == ("completed", "echo: a")


async def test_a_server_asks_the_user_over_http(stage: Stage) -> None:
    async with http_server() as url:
        client, thread_id = await ready(stage, url)
        stage.model.plays(calls("mcp__web__ask", {}))
        await client.start_turn(thread_id)
        asked = await question(client, "mcpServer/elicitation/request")
        await answer(client, asked, {"action": "accept", "content": {"name": "Eve"}})
        await client.until("turn/completed")

    assert text_of(stage.model.requests[-1].outputs()["call-1"]) == "accept Eve"


async def test_a_restarted_server_gets_a_new_handshake(stage: Stage) -> None:
    """It does not know the old session, and so has not carried out what it was asked in it."""
    async with http_server() as url:
        client, thread_id = await ready(stage, url)
    async with http_server(port=urlsplit(url).port or 0):
        item, output = await call(stage.model, client, thread_id, "mcp__web__echo", {"text": "b"})

    assert (item["status"], text_of(output)) == ("completed", "echo: b")


async def test_parallel_calls_to_a_restarted_server_are_all_answered(stage: Stage) -> None:
    async with http_server() as url:
        client, thread_id = await ready(stage, url)
        others = [await stage.client() for _ in range(3)]
    asked = {"threadId": thread_id, "server": "web", "tool": "echo", "arguments": {"text": "c"}}
    async with http_server(port=urlsplit(url).port or 0), asyncio.TaskGroup() as tasks:
        answers = [
            tasks.create_task(each.request("mcpServer/tool/call", asked))
            for each in (client, *others)
        ]

    texts = [task.result()["content"][0]["text"] for task in answers]
    assert texts == ["echo: c"] * 4


async def test_calls_to_an_unreachable_server_fail_until_it_returns(stage: Stage) -> None:
    async with http_server() as url:
        client, thread_id = await ready(stage, url)
    away, output = await call(stage.model, client, thread_id, "mcp__web__echo")
    async with http_server(port=urlsplit(url).port or 0):
        back, _ = await call(stage.model, client, thread_id, "mcp__web__echo")

    assert (away["status"], back["status"]) == ("failed", "completed")
    assert "tool call failed for `web/echo`" in text_of(output)


async def test_a_server_that_dies_in_a_call_fails_it(stage: Stage) -> None:
    async with http_server() as url:
        client, thread_id = await ready(stage, url)
        item, _ = await call(stage.model, client, thread_id, "mcp__web__die")

    assert item["status"] == "failed"


@asynccontextmanager
async def garbling(answer: str) -> AsyncIterator[str]:
    """A server that is greeted as any other, and answers calls with this; gives its address."""
    about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
    about["serverInfo"] = {"name": "garbler", "version": "1"}
    echo = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": READS}
    results: dict[str, JsonValue] = {"initialize": about, "tools/list": {"tools": [echo]}}

    async def serve(request: web.Request) -> web.Response:
        asked = json.loads(await request.read() or "{}")
        if "id" not in asked:
            return web.Response(status=202 if asked else 405)
        if asked["method"] not in results:
            return web.Response(text=answer, content_type="application/json")
        result = results[asked["method"]]
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    app = web.Application()
    app.router.add_route("*", "/mcp", serve)
    async with TestServer(app) as server:
        yield str(server.make_url("/mcp"))


@pytest.mark.parametrize("answer", ["<html>oops</html>", '{"hello": 1}', "", "[]"])
async def test_an_invalid_answer_fails_the_call_with_a_short_message(
    stage: Stage, answer: str
) -> None:
    async with garbling(answer) as url:
        client, thread_id = await ready(stage, url)
        item, output = await call(stage.model, client, thread_id, "mcp__web__echo")

    why = "tool call error: tool call failed for `web/echo`\n\nCaused by:\n"
    why += "    the answer to tools/call does not fit the protocol"
    assert (item["status"], item["error"], text_of(output)) == ("failed", {"message": why}, why)


async def test_headers_and_tokens_come_from_the_configuration_and_the_environment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t0ken")
    monkeypatch.setenv("TENANT", "acme")
    settings = {
        "url": stage.model.base_url,
        "bearer_token_env_var": "TOKEN",
        "http_headers": {"X-Plain": "yes"},
        "env_http_headers": {"X-Tenant": "TENANT", "X-Absent": "NO_SUCH"},
    }
    stage.configure(table("web", **settings))
    client = await stage.client()
    await client.start()
    # The model's own server stands in: it is not an MCP server, but it keeps what it received.
    sent = (await stage.model.wait_for_request(1)).headers

    names = ("authorization", "x-plain", "x-tenant", "x-absent")
    assert [sent.get(name) for name in names] == ["Bearer t0ken", "yes", "acme", None]
