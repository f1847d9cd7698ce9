"""The WebSocket client: connecting, refusals, and what stays usable."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator

import pytest

from treadle.transport.base import Transport, TransportError
from treadle.transport.websocket.listener import (
    UpgradeRefused,
    WebSocketListener,
    connect_websocket,
)


async def echo(transport: Transport) -> None:
    while batch := await transport.receive():
        await transport.send([frame for frame in batch if isinstance(frame, bytes)])


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[int]:
    listener = WebSocketListener("127.0.0.1", 0)
    await listener.start()
    with contextlib.closing(listener):
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            serving = group.create_task(listener.serve(echo))
            yield listener.address[1]
            serving.cancel()


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Transport]:
    transport = await connect_websocket(f"ws://127.0.0.1:{port}")
    try:
        yield transport
    finally:
        await transport.close()


async def test_after_close_nothing_is_received_and_nothing_can_be_sent() -> None:
    async with running() as port, connected(port) as client:
        await client.close()
        await client.close()

        assert await client.receive() == ()
        with pytest.raises(TransportError):
            await client.send([b"x"])


async def test_close_wakes_a_waiting_receive() -> None:
    async with running() as port, connected(port) as client, asyncio.TaskGroup() as group:
        receiving = group.create_task(client.receive())
        await client.send([b""])  # the task waits by the time this returns
        assert await receiving == [b""]
        receiving = group.create_task(client.receive())
        await client.close()

        assert await receiving == ()


async def test_a_cancelled_receive_leaves_the_connection_usable() -> None:
    async with running() as port, connected(port) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await client.receive()
        await client.send([b"still here"])

        assert await client.receive() == [b"still here"]


async def test_a_refused_upgrade_is_raised_with_status_and_body() -> None:
    async with running() as port:
        with pytest.raises(UpgradeRefused) as forbidden:
            await connect_websocket(f"ws://127.0.0.1:{port}", headers={"Origin": "x"})
        with pytest.raises(UpgradeRefused) as probe:
            await connect_websocket(f"ws://127.0.0.1:{port}/readyz")

    assert [(e.value.status, e.value.body) for e in (forbidden, probe)] == [
        (403, ""),
        (200, ""),
    ]


async def test_a_refusal_that_quotes_the_request_does_not_show_the_token() -> None:
    token, key = "a-token-of-many-letters", "a-key-in-the-query"

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 x\r\n\r\n" + head + base64.b64encode(head))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1")
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UpgradeRefused) as refused:
            await connect_websocket(f"ws://127.0.0.1:{port}/?k={key}", token=token)

    encoded = refused.value.body.rpartition("\r\n")[2]
    assert "authorization: [redacted]\r\n" in refused.value.body
    assert key not in refused.value.body
    assert base64.b64encode(b"Bearer ").decode()[:8] not in encoded


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "the server closed the connection during the handshake"),
        (b"SSH-2.0-x\r\n\r\n", "the server's answer is not HTTP: not an HTTP/1 response"),
        (b"HTTP/1.1 101 x\r\n\r\n", "the server's answer is not a WebSocket handshake"),
    ],
)
async def test_an_invalid_answer_is_a_transport_error(answer: bytes, message: str) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TransportError) as caught:
            await connect_websocket(f"ws://127.0.0.1:{port}")

    assert str(caught.value) == message


async def test_a_server_that_never_answers_times_out() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TransportError) as caught:
            await connect_websocket(f"ws://127.0.0.1:{port}", open_timeout=0.01)

    assert str(caught.value) == f"no answer from ws 127.0.0.1:{port} within 0.01 s"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ws://", "127.0.0.1:1"])
async def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected ws://"):
        await connect_websocket(url)


async def test_a_token_cannot_inject_a_header_and_is_not_shown() -> None:
    async with running() as port:
        with pytest.raises(ValueError, match="authorization") as caught:
            await connect_websocket(f"ws://127.0.0.1:{port}", token="s3cret\r\nX: y")

    assert "s3cret" not in str(caught.value)
