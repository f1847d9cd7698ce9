"""An MCP server that answers too much, or unreadably, fails its call and nothing else."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.harness.mcp import ROOT, call, item_of, settled, table, text_of
from tests.harness.model_server import calls
from tests.harness.questions import answer, question
from tests.harness.threads import Client, Stage, params_of
from treadle.engine.mcp.connection import stdio
from treadle.engine.mcp.connection.http_bodies import PARTS_PER_SLICE, Bodies
from treadle.engine.mcp.connection.limits import (
    LONG_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_QUESTIONS,
    MAX_UNREAD,
    MAX_VALUES,
)
from treadle.engine.mcp.connection.requests import error_text
from treadle.engine.mcp.content import MAX_PARTS
from treadle.engine.terminals.output_deltas import TOTAL_BYTES
from treadle.engine.tools.mcp import MAX_PROGRESS_CHARACTERS
from treadle.engine.tools.output import MAX_KEPT_BYTES
from treadle.protocol.base import JsonValue
from treadle.support.text.json_text import MAX_NESTING
from treadle.support.text.secrets import MAX_TEXT

FLOOD = str(ROOT / "tests" / "harness" / "mcp_flood.py")
ASK = "mcpServer/elicitation/request"
# A call that waits for its timeout does not end within the timeout of a test.
FOR_EVER: JsonValue = {"startup_timeout_sec": 25, "tool_timeout_sec": 600}
TOO_LONG = f"exceeds a limit: it has more than {MAX_MESSAGE_BYTES} bytes"
MIB = 1024 * 1024


async def ready(stage: Stage, name: str = "flood", **server: JsonValue) -> tuple[Client, str]:
    """Start a thread with one MCP server, which is ready."""
    settings = server or {"command": sys.executable, "args": [FLOOD]}
    stage.configure(table(name, **settings, **FOR_EVER))
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="on-request")
    assert (await settled(client, name))[name]["error"] is None
    return client, thread_id


async def process_of(stage: Stage, client: Client, thread_id: str) -> str:
    """Call the ordinary tool; return what it reports about its process."""
    item, output = await call(stage.model, client, thread_id, "mcp__flood__echo")
    assert item["status"] == "completed"
    return text_of(output)


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("large", TOO_LONG),
        ("values", f"exceeds a limit: it has more than {MAX_VALUES} values"),
        ("nested", f"exceeds a limit: it is nested deeper than {MAX_NESTING} levels"),
        ("surrogate", "does not fit the protocol"),
        ("digits", "does not fit the protocol"),
    ],
)
async def test_an_answer_that_is_too_large_to_decode_fails_its_call_and_the_server_stays(
    stage: Stage, tool: str, reason: str
) -> None:
    client, thread_id = await ready(stage)
    before = await process_of(stage, client, thread_id)
    item, output = await call(stage.model, client, thread_id, f"mcp__flood__{tool}")

    assert item["status"] == "failed"
    assert item["error"]["message"].endswith(f"the answer to tools/call {reason}")
    assert text_of(output) == item["error"]["message"]
    assert await process_of(stage, client, thread_id) == before


async def test_an_endless_line_ends_its_server_and_the_next_call_starts_another(
    stage: Stage,
) -> None:
    client, thread_id = await ready(stage)
    before = await process_of(stage, client, thread_id)
    item, _output = await call(stage.model, client, thread_id, "mcp__flood__endless")

    assert item["status"] == "failed"
    assert await process_of(stage, client, thread_id) != before


async def test_brackets_and_commas_in_a_string_do_not_count_as_values(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    item, _output = await call(stage.model, client, thread_id, "mcp__flood__marks")

    assert item["result"]["content"][0]["text"] == "[{,}]" * 100_000


async def test_clients_and_the_model_get_the_first_parts_of_a_result_with_many(
    stage: Stage,
) -> None:
    client, thread_id = await ready(stage)
    item, output = await call(stage.model, client, thread_id, "mcp__flood__parts")
    omitted = f"... {1_500 - MAX_PARTS} parts omitted ..."

    texts = [part["text"] for part in item["result"]["content"]]
    assert texts == ["x"] * MAX_PARTS + [omitted]
    assert [part["text"] for part in output[1:]] == texts


@pytest.mark.parametrize("tool", ["long", "long_structure"])
async def test_clients_get_as_much_of_a_result_as_of_command_output(
    stage: Stage, tool: str
) -> None:
    client, thread_id = await ready(stage)
    item, output = await call(stage.model, client, thread_id, f"mcp__flood__{tool}")

    [part] = item["result"]["content"]
    assert MAX_KEPT_BYTES < len(part["text"]) < MAX_KEPT_BYTES + 100
    assert "tokens truncated" in part["text"]
    assert item["result"]["structuredContent"] is None
    assert len(json.dumps(output)) < 50_000


async def test_long_messages_are_decoded_off_the_event_loop_and_stay_in_order(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[bool] = []
    parse = stdio._parse  # noqa: SLF001 - the step that looks at every byte of a message

    def record_line(line: bytes) -> stdio.Incoming | None:
        if len(line) > LONG_MESSAGE_BYTES:
            on_loop.append(threading.current_thread() is threading.main_thread())
        return parse(line)

    monkeypatch.setattr(stdio, "_parse", record_line)
    client, thread_id = await ready(stage)
    stage.model.plays(calls("mcp__flood__progress", {}))
    sent = await client.run(thread_id)

    messages = [each["message"][:6] for each in params_of(sent, "item/mcpToolCall/progress")]
    assert messages == ["xxxxxx", "second", "yyyyyy", "fourth"]
    assert on_loop == [False, False]
    assert item_of(sent)["status"] == "completed"


async def test_progress_of_a_call_is_limited_in_length_and_number(stage: Stage) -> None:
    """Ours: 600 messages of 1 MB took 674 MB, which were kept after the turn."""
    client, thread_id = await ready(stage)
    stage.model.plays(calls("mcp__flood__much_progress", {}))
    sent = await client.run(thread_id)

    lengths = [len(each["message"]) for each in params_of(sent, "item/mcpToolCall/progress")]
    assert set(lengths) == {MAX_PROGRESS_CHARACTERS}
    assert sum(lengths) <= TOTAL_BYTES
    assert item_of(sent)["status"] == "completed"


async def test_an_elicitation_does_not_pose_as_an_approval(stage: Stage) -> None:
    """Clients recognize approvals by a field, and some answer these without the user."""
    client, thread_id = await ready(stage)
    stage.model.plays(calls("mcp__flood__ask", {}))
    await client.start_turn(thread_id)
    asked = await question(client, ASK)

    assert asked["params"]["_meta"] == {"note": "kept"}


async def test_a_long_elicitation_is_declined_and_neither_stored_nor_delivered(
    stage: Stage,
) -> None:
    """Fifty of 15 MB, in one call, took 960 MB of memory and 750 MB of disk."""
    client, thread_id = await ready(stage)
    item, output = await call(stage.model, client, thread_id, "mcp__flood__ask_long")

    assert item["status"] == "completed"
    assert "decline" in text_of(output)
    assert not [each for each in client.received if each.get("method") == ASK]


@pytest.mark.parametrize("tool", ["ask", "ask_at_once"])
async def test_a_call_with_too_many_elicitations_fails(stage: Stage, tool: str) -> None:
    client, thread_id = await ready(stage)
    stage.model.plays(calls(f"mcp__flood__{tool}", {}))
    turn_id = await client.start_turn(thread_id)
    for _question in range(MAX_QUESTIONS):
        await answer(client, await question(client, ASK), {"action": "decline"})
    sent = await client.end_of(turn_id)

    why = f"the MCP server asked more than {MAX_QUESTIONS} questions during tools/call"
    assert item_of(sent)["error"]["message"].endswith(why)
    assert sent[-1]["params"]["turn"]["status"] == "completed"


@pytest.mark.parametrize("tool", ["pings", "roots", "unknown"])
async def test_a_server_that_does_not_read_its_answers_is_closed(stage: Stage, tool: str) -> None:
    """The SDK held a task for each answer: 500 MB after eight seconds."""
    client, thread_id = await ready(stage)
    stage.model.plays(calls(f"mcp__flood__{tool}", {}))
    sent = await client.run(thread_id)

    why = f"it sent requests and left {MAX_UNREAD} answers unread"
    assert item_of(sent)["error"]["message"].endswith(why)
    assert sent[-1]["params"]["turn"]["status"] == "completed"


Body = Callable[[int], web.Response]


def text_body(id_: int, size: int) -> bytes:
    """Return an answer with a text of this many bytes."""
    result = {"content": [{"type": "text", "text": "x" * size}]}
    return json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode()


def as_json(id_: int) -> web.Response:
    return web.Response(body=text_body(id_, 17 * MIB), content_type="application/json")


def as_event(id_: int) -> web.Response:
    body = b"event: message\r\ndata: " + text_body(id_, 17 * MIB) + b"\r\n\r\n"
    return web.Response(body=body, content_type="text/event-stream")


def as_lines(id_: int) -> web.Response:
    body = b"data: " + text_body(id_, 1)[:-1] + b"\ndata:" * 20_000 + b"}\n\n"
    return web.Response(body=body, content_type="text/event-stream")


def as_values(id_: int) -> web.Response:
    result = {"content": [], "structuredContent": {"a": [[]] * (MAX_VALUES + 1)}}
    body = json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode()
    return web.Response(body=b"data: " + body + b"\n\n", content_type="text/event-stream")


def as_gzip(id_: int) -> web.Response:
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    return web.Response(body=gzip.compress(text_body(id_, 100 * MIB), 1), headers=headers)


@asynccontextmanager
async def web_server(body: Body, encodings: list[str | None]) -> AsyncIterator[str]:
    """Serve an MCP server whose tool `bad` answers with this body; yield its address."""
    about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
    about["serverInfo"] = {"name": "flood", "version": "1"}
    form, reads = {"type": "object"}, {"readOnlyHint": True}
    tools = [{"name": n, "inputSchema": form, "annotations": reads} for n in ("bad", "echo")]
    good = {"content": [{"type": "text", "text": "process 1"}]}
    results: dict[str, JsonValue] = {"initialize": about, "tools/list": {"tools": tools}}

    async def serve(request: web.Request) -> web.Response:
        encodings.append(request.headers.get("accept-encoding"))
        message = json.loads(await request.read() or "{}")
        if "id" not in message:
            return web.Response(status=202 if message else 405)
        if message.get("params", {}).get("name") == "bad":
            return body(message["id"])
        result = results.get(message["method"], good)
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    app = web.Application()
    app.router.add_route("*", "/mcp", serve)
    async with TestServer(app) as server:
        yield str(server.make_url("/mcp"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (as_json, TOO_LONG),
        (as_event, TOO_LONG),
        (as_lines, "exceeds a limit: its event has more than 10000 lines"),
        (as_values, f"exceeds a limit: it has more than {MAX_VALUES} values"),
        (as_gzip, "does not fit the protocol: it is compressed, which was not requested"),
    ],
)
async def test_an_http_answer_beyond_a_limit_fails_its_call_and_the_server_stays(
    stage: Stage, body: Body, reason: str
) -> None:
    encodings: list[str | None] = []
    async with web_server(body, encodings) as url:
        client, thread_id = await ready(stage, url=url)
        item, _output = await call(stage.model, client, thread_id, "mcp__flood__bad")
        after = await process_of(stage, client, thread_id)

    assert item["status"] == "failed"
    assert item["error"]["message"].endswith(f"the answer to tools/call {reason}")
    assert after == "process 1"
    assert set(encodings) == {"identity"}


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"id: 1\nretry: 0\ndata: \n\n", b"id: 1\nretry: 1000\ndata: \n\n"),
        (b"retry:999\n\n", b"retry: 1000\n\n"),
        (b"retry: 99999999999999\n\n", b"retry: 1000\n\n"),
        (b"retry: 2000\n\n", b"retry: 2000\n\n"),
        (b"data: retry: 0\n\n", b"data: retry: 0\n\n"),
    ],
)
async def test_a_server_cannot_make_the_sdk_reconnect_without_a_pause(
    sent: bytes, read: bytes
) -> None:
    """It reconnected a thousand times per second, for as long as the server was configured."""
    request = httpx2.Request("GET", "http://localhost/mcp")
    headers = {"content-type": "text/event-stream"}
    stream = httpx2.ByteStream(sent)
    response = httpx2.Response(200, headers=headers, stream=stream, request=request)
    Bodies().bound(response)
    assert b"".join([part async for part in response.aiter_raw()]) == read


class Pieces(httpx2.AsyncByteStream):
    """A body in pieces that have all arrived already."""

    def __init__(self, piece: bytes, count: int) -> None:
        self._piece, self._count = piece, count

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._count):
            yield self._piece


@pytest.mark.parametrize(
    ("kind", "pieces"),
    [
        ("text/event-stream", Pieces(b"\r" * 20_000, 1)),
        ("text/event-stream", Pieces(b":\n\n" * 10_000, 1)),
        ("text/event-stream", Pieces(b"x", 10_000)),
        ("application/json", Pieces(b" ", 10_000)),
    ],
)
async def test_others_run_while_many_small_parts_of_a_body_are_read(
    kind: str, pieces: Pieces
) -> None:
    """Half a megabyte of empty lines per second made each request of a client wait two seconds."""
    request = httpx2.Request("POST", "http://mcp.test/", json={})
    response = httpx2.Response(200, headers={"content-type": kind}, stream=pieces, request=request)
    Bodies().bound(response)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.TaskGroup() as group:
        other = group.create_task(take_turns())
        async for _ in response.aiter_raw():
            pass
        other.cancel()
    assert turns >= 10_000 // PARTS_PER_SLICE - 1


@pytest.mark.parametrize("text", ["x" + " " * 4_000_000 + "y", "[type=" * 1_000_000])
def test_a_long_error_of_a_server_is_read_in_linear_time(text: str) -> None:
    """20 KB of blanks in the answer to `initialize` blocked the server for two seconds."""
    assert error_text(RuntimeError(text)) == text[:MAX_TEXT]


def test_a_document_that_does_not_fit_is_not_quoted() -> None:
    text = "1 error for T\na\n  wrong [type=x, input_value='k', input_type=str]\n"
    text += "    For further information visit u"
    assert error_text(ValueError(text)) == "1 error for T\na\n  wrong"


async def test_a_malformed_notification_is_not_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK logs it with a traceback that quotes it: keys, and as many lines as there are."""
    client, thread_id = await ready(stage)
    item, _output = await call(stage.model, client, thread_id, "mcp__flood__malformed_progress")

    assert item["status"] == "completed"
    assert "quoted" not in caplog.text


def test_the_sdk_logs_no_payloads_of_a_sign_in() -> None:
    """It logs a failed exchange with its traceback, which quotes the service's answer."""
    program = "import logging, treadle.engine.mcp.oauth; print(logging.getLogger('mcp').level)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == logging.CRITICAL
