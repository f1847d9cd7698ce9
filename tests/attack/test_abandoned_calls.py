"""A call over HTTP that has failed costs nothing more, whatever its MCP server goes on sending."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.harness.mcp import call, settled, table, text_of
from tests.harness.threads import Stage
from treadle.engine.mcp.connection import exchanges
from treadle.protocol.base import JsonValue

EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
DOCUMENT = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
NO_STREAM = b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n"
FORM = {"type": "object"}
READS = {"readOnlyHint": True}
ABOUT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "slow", "version": "1"},
}
TOOLS = [{"name": name, "inputSchema": FORM, "annotations": READS} for name in ("slow", "echo")]
RESULTS: dict[str, JsonValue] = {
    "initialize": ABOUT,
    "tools/list": {"tools": TOOLS},
    "tools/call": {"content": [{"type": "text", "text": "here"}]},
}


async def message_of(reader: asyncio.StreamReader) -> JsonValue:
    """Read one request; return its message, which is empty for another method than POST."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    return json.loads(await reader.readexactly(int(length or 0)) or "{}")


class SlowServer:
    """Begins the answer to the tool `slow`, and waits until the client hangs up."""

    def __init__(self, beginning: bytes, *, accepts_notes: bool = True) -> None:
        self.hung_up = asyncio.Event()
        self._beginning = beginning
        self._accepts_notes = accepts_notes

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while True:
                await self._answer(reader, writer, await message_of(reader))
        except (EOFError, OSError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: JsonValue
    ) -> None:
        method = message.get("method")
        if method == "tools/call" and message["params"]["name"] == "slow":
            writer.write(self._beginning)
            await reader.read()
            self.hung_up.set()
        elif "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[method]}
            body = json.dumps(answer).encode()
            length = b"content-length: %d\r\n\r\n" % len(body)
            writer.write(DOCUMENT.removesuffix(b"\r\n") + length + body)
        elif method == "notifications/cancelled" and not self._accepts_notes:
            await reader.read()
        else:
            writer.write(ACCEPTED if message else NO_STREAM)

    @asynccontextmanager
    async def address(self) -> AsyncIterator[str]:
        """Listen, and yield the address."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        finally:
            server.close()


async def call_in_vain(stage: Stage, slow: SlowServer) -> str:
    """Call the slow tool, which times out; return what the other tool then answers."""
    async with slow.address() as url:
        stage.configure(table("slow", url=url, startup_timeout_sec=25, tool_timeout_sec=0.2))
        client = await stage.client()
        thread_id = await client.start()
        assert (await settled(client, "slow"))["slow"]["error"] is None
        item, _output = await call(stage.model, client, thread_id, "mcp__slow__slow")
        assert "timed out" in item["error"]["message"]
        await slow.hung_up.wait()
        _item, output = await call(stage.model, client, thread_id, "mcp__slow__echo")
        return text_of(output)


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", EVENTS, EVENTS + b"id: 1\ndata:\n\n", DOCUMENT],
)
async def test_the_exchange_of_a_call_ends_with_it(stage: Stage, beginning: bytes) -> None:
    """Each call that timed out kept a connection, and what arrived on it was read for ever."""
    assert await call_in_vain(stage, SlowServer(beginning)) == "here"


async def test_a_server_that_does_not_accept_notifications_gets_later_calls(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are sent in order: the first that is not accepted would hold back all others."""
    monkeypatch.setattr(exchanges, "NOTE_SECONDS", 0.05)
    assert await call_in_vain(stage, SlowServer(b"", accepts_notes=False)) == "here"
