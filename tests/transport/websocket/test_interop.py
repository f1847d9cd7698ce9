"""The `websockets` library as the other end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from treadle.transport.auth import CapabilityToken
from treadle.transport.base import Transport, TransportError
from treadle.transport.websocket.listener import WebSocketListener, connect_websocket

MESSAGES = ["", "x", "ü" * 70, "y" * 70_000, "z" * (17 * 1024 * 1024), "end"]


async def echo(transport: Transport) -> None:
    while batch := await transport.receive():
        await transport.send([frame for frame in batch if isinstance(frame, bytes)])


@contextlib.asynccontextmanager
async def running(listener: WebSocketListener) -> AsyncIterator[str]:
    await listener.start()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        serving = group.create_task(listener.serve(echo))
        yield "ws://{}:{}".format(*listener.address)
        serving.cancel()


@contextlib.asynccontextmanager
async def library_server() -> AsyncIterator[str]:
    async def answer(connection: ServerConnection) -> None:
        async for message in connection:
            if message == "close":
                await connection.close(4000, "enough")
            elif message == "ping":
                await (await connection.ping(b"are you there"))
                await connection.send("pong came")
            else:
                await connection.send(message)

    async with asyncio.timeout(30), serve(answer, "127.0.0.1", 0, max_size=None) as server:
        _, port = server.sockets[0].getsockname()
        yield f"ws://127.0.0.1:{port}"


@pytest.mark.parametrize("compression", ["deflate", None])
async def test_the_librarys_client_talks_to_our_server(compression: str | None) -> None:
    async with (
        running(WebSocketListener("127.0.0.1", 0)) as url,
        connect(url, compression=compression, max_size=None, proxy=None) as client,
    ):
        for message in MESSAGES:
            await client.send(message)
        assert [await client.recv() for _ in MESSAGES] == MESSAGES
        await client.send(["frag", "men", "ted"])
        assert await client.recv() == "fragmented"
        await (await client.ping(b"hi"))
        await client.close(1000, "bye")

        assert (client.close_code, client.close_reason) == (1000, "")


async def test_the_librarys_client_is_refused_when_its_token_is_wrong(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret")
    auth = CapabilityToken.from_file(token_file)
    async with running(WebSocketListener("127.0.0.1", 0, auth=auth)) as url:
        with pytest.raises(InvalidStatus) as caught:
            async with connect(url, proxy=None):
                pass
        async with connect(
            url, additional_headers={"Authorization": "Bearer s3cret"}, proxy=None
        ) as client:
            await client.send("in")
            assert await client.recv() == "in"

    assert (caught.value.response.status_code, caught.value.response.body) == (
        401,
        b"missing websocket bearer token",
    )


async def test_the_librarys_client_sees_that_we_go_away() -> None:
    listener = WebSocketListener("127.0.0.1", 0)
    await listener.start()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        serving = group.create_task(listener.serve(echo))
        async with connect("ws://{}:{}".format(*listener.address), proxy=None) as client:
            await client.send("x")
            await client.recv()
            serving.cancel()
            with contextlib.suppress(Exception):
                await client.recv()

            assert client.close_code == 1001


async def test_our_client_talks_to_the_librarys_server() -> None:
    async with library_server() as url:
        client = await connect_websocket(url)
        try:
            for message in MESSAGES:
                await client.send([message.encode()])
                received = b""
                while not received and message:
                    (received,) = await client.receive()  # type: ignore[assignment]  # none is oversized
                if message:
                    assert received == message.encode()
                else:
                    assert await client.receive() == [b""]
            await client.send([b"ping"])
            assert await client.receive() == [b"pong came"]
        finally:
            await client.close()


async def test_our_client_raises_when_the_librarys_server_closes_with_an_error() -> None:
    async with library_server() as url:
        client = await connect_websocket(url)
        await client.send([b"close"])
        with pytest.raises(TransportError, match="the peer closed with 4000: 'enough'"):
            await client.receive()
        await client.close()


async def test_a_violation_is_understood_by_the_library() -> None:
    async with (
        running(WebSocketListener("127.0.0.1", 0)) as url,
        connect(url, proxy=None) as client,
    ):
        client.transport.write(b"\x81\x01x")
        with pytest.raises(ConnectionClosedError) as caught:
            await client.recv()

    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1002, "client frame not masked")
