"""Refusals that end too early, headers, and results of tools that failed repeat no key."""

from __future__ import annotations

import asyncio
import base64
import json
import re

import pytest

from tests.attack.test_keys_in_errors import (
    HEADER,
    KEY,
    PARAMETER,
    json_answer,
    leaked_parts,
    mcp_server,
    service,
)
from tests.harness.mcp import settled, table
from tests.harness.model_server import calls, says
from tests.harness.threads import Stage
from tests.model.double import collect
from treadle.engine.mcp.connection.failures import redact_failure
from treadle.model.base import ModelError, Rerouted
from treadle.model.provider import ProviderConfig, build_model
from treadle.protocol.base import JsonValue
from treadle.support.text.secrets import Secrets


async def test_refusal_that_stops_within_a_key_shows_no_part_of_it() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 X\r\ncontent-length: 99\r\n\r\nbad key " + KEY[:10].encode())
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        config = ProviderConfig(base_url=url, env_key="KEY", stream_idle_timeout_ms=300)
        model = build_model("pausing", config, environ={"KEY": KEY})
        with pytest.raises(ModelError) as caught:
            await collect(model)
        await model.close()
        ended.set()

    assert caught.value.http_status == 401
    assert "401 X: bad key [redacted]" in caught.value.message
    assert leaked_parts(f"{caught.value.message} {caught.value.details}") == []


async def test_redirect_whose_host_is_a_part_of_a_key_is_not_shown() -> None:
    key = "0123456789abcdef/ghij"
    head = f"HTTP/1.1 307 X\r\nlocation: http://{key}\r\ncontent-length: 0\r\n\r\n"
    async with service(lambda _: head.encode()) as url:
        model = build_model("x", ProviderConfig(base_url=url, env_key="KEY"), environ={"KEY": key})
        with pytest.raises(ModelError, match="to an unknown location was not followed") as caught:
            await collect(model)
        await model.close()

    assert "0123" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_refusal_of_a_proxy_that_quotes_its_login_shows_none(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    async with service(lambda head: b"HTTP/1.1 407 X\r\n\r\n" + head.encode()) as url:
        address = url.removeprefix("http://")
        monkeypatch.setenv("http_proxy", f"{scheme}user:{KEY}@{address}")
        config = ProviderConfig(base_url="http://model.invalid/v1")
        model = build_model("far", config, environ={})
        with pytest.raises(ModelError) as caught:
            await collect(model)
        await model.close()

    shown = f"{caught.value.message} {caught.value.details}"
    assert "proxy-authorization: Basic" in shown
    assert base64.b64encode(f"user:{KEY}".encode()).decode()[12:20] not in shown


async def test_headers_of_a_response_show_no_secret() -> None:
    head = b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nopenai-model: " + KEY.encode()
    head += b"\r\nx-codex-limit-name: " + KEY.encode() + b"\r\n\r\n"
    end = b'data: {"type":"response.completed","response":{}}\n\n'
    async with service(lambda _: head + end) as url:
        model = build_model("x", ProviderConfig(base_url=url, env_key="KEY"), environ={"KEY": KEY})
        events = await collect(model)
        await model.close()

    assert Rerouted("[redacted]") in events
    assert leaked_parts(str(events)) == []


def refusing_tool(request: str) -> bytes:
    """Be an MCP server whose tool fails with the key and the header of the request."""
    if '"tools/call"' not in request:
        return mcp_server(request)
    quoted = re.findall(r"(?im)^(?:authorization|x-custom): .*$", request)
    image: JsonValue = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    content = [{"type": "text", "text": f"upstream refused {quoted}"}, image]
    return json_answer(
        request, {"isError": True, "content": content, "structuredContent": {"sent": quoted}}
    )


async def test_failed_tool_that_quotes_its_request_shows_no_secret(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", KEY)
    async with service(refusing_tool) as url:
        settings = {"bearer_token_env_var": "KEY", "http_headers": {"x-custom": HEADER}}
        stage.configure(table("web", url=f"{url}/mcp?code={PARAMETER}", **settings))
        client = await stage.client()
        thread = await client.start()
        await settled(client, "web")
        stage.model.plays(calls("mcp__web__t0", {}), says("ok"))
        published = await client.run(thread)

    item = [each["params"]["item"] for each in published if each["method"] == "item/completed"][1]
    assert item["status"] == "failed"
    assert item["result"]["content"][0]["text"].startswith("upstream refused [")
    assert item["result"]["content"][1]["data"] == "AAAA", "the rest stays"
    stored = [each.read_text("utf-8") for each in stage.home.rglob("*.jsonl")]
    asked = json.dumps(stage.model.requests[-1].body)
    assert leaked_parts("".join([json.dumps(published), *stored, asked])) == []


def test_failure_that_is_too_long_to_search_keeps_the_beginning_of_its_text() -> None:
    content: JsonValue = [
        {"type": "text", "text": f"first {KEY}"},
        {"type": "text", "text": "x" * 99_999},
    ]
    short = redact_failure({"isError": True, "content": content}, Secrets([KEY]))["content"]

    assert len(short) == 1
    assert short[0]["text"].startswith("first [redacted]\nxxx")
    assert len(short[0]["text"]) < 70_000


def test_answer_of_a_tool_that_succeeded_stays() -> None:
    result: dict[str, JsonValue] = {"content": [{"type": "text", "text": KEY}]}
    assert redact_failure(result, Secrets([KEY])) is result
