"""Peers that a listener does not admit."""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio.trsock import TransportSocket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from treadle.transport.base import Admit, Transport
from treadle.transport.unix import UnixListener, connect_unix
from treadle.transport.websocket.handshake import UpgradeRefused
from treadle.transport.websocket.listener import WebSocketListener, connect_websocket

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Door:
    """Refuses while it is closed, and can delay its answer."""

    def __init__(self, reason: str | None) -> None:
        self.reason = reason
        self.opened_at = time.monotonic()
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, line: TransportSocket, *, accepted_at: float) -> str | None:
        """Answer as configured."""
        assert line.fileno() >= 0
        assert self.opened_at < accepted_at < time.monotonic()
        self.asked.set()
        await self.may_answer.wait()
        return self.reason


async def accept(transport: Transport) -> None:
    """Echo all messages."""
    while frames := await transport.receive():
        await transport.send([frame for frame in frames if isinstance(frame, bytes)])


@asynccontextmanager
async def serving(listener: WebSocketListener | UnixListener, admit: Admit) -> AsyncIterator[None]:
    await listener.start()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(listener.serve(accept, admit=admit))
        yield
        task.cancel()


async def test_a_refused_peer_gets_the_reason_and_others_are_served(
    short_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door("not you\n")
    unix, tcp = UnixListener(short_folder / "s"), WebSocketListener("127.0.0.1", 0)
    async with serving(unix, door), serving(tcp, door):
        url = f"ws://127.0.0.1:{tcp.address[1]}"
        for dial in (connect_unix(short_folder / "s"), connect_websocket(url)):
            with pytest.raises(UpgradeRefused) as refused:
                await dial
            assert (refused.value.status, refused.value.body) == (403, "not you\n")
        door.reason = None
        for dial in (connect_unix(short_folder / "s"), connect_websocket(url)):
            transport = await dial
            await transport.send([b"hello"])
            assert await transport.receive() == [b"hello"]
            await transport.close()

    assert [record.message for record in caplog.records] == ["peer refused"] * 2


async def test_refusals_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    listener = WebSocketListener("127.0.0.1", 0)
    with caplog.at_level(logging.INFO):
        async with serving(listener, Door("no")):
            for _time in range(25):
                with suppress(UpgradeRefused):
                    await connect_websocket(f"ws://127.0.0.1:{listener.address[1]}")

    assert [vars(record)["count"] for record in caplog.records] == [1, 10]


async def test_a_peer_that_disconnects_before_the_answer_ends_no_listener() -> None:
    """The answer meets a closed socket, which cannot be shut down either."""
    door, listener = Door("no"), WebSocketListener("127.0.0.1", 0)
    door.may_answer.clear()
    async with serving(listener, door):
        _reader, writer = await asyncio.open_connection("127.0.0.1", listener.address[1])
        writer.write(UPGRADE)
        await door.asked.wait()
        writer.close()
        await writer.wait_closed()
        door.may_answer.set()
        door.reason = None
        transport = await connect_websocket(f"ws://127.0.0.1:{listener.address[1]}")
        await transport.close()
