"""Listening sockets for `FakeAppServer`; they can freeze or cut a connection below WebSocket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.testing.fake.wires import SocketWire, Wire
from treadle.transport.base import Transport
from treadle.transport.websocket.handshake import Upgrades, serve_upgrades
from treadle.transport.websocket.http import answer_control_request, answer_request


@asynccontextmanager
async def listening(
    serve: Callable[[Wire], Awaitable[None]], path: Path | None = None
) -> AsyncIterator[str]:
    """Listen on a unix socket or the loopback until the block ends; yield the URL."""
    sockets: dict[str, asyncio.Transport] = {}
    wires: list[SocketWire] = []
    numbers = count(1)

    def name(sock: asyncio.Transport) -> str:
        peer = f"fake {next(numbers)}"
        sockets[peer] = sock
        return peer

    async def accept(transport: Transport) -> None:
        wire = SocketWire(transport, sockets.pop(transport.peer))
        wires.append(wire)
        await serve(wire)

    answer = partial(answer_request, check=lambda _header: None)
    upgrades = Upgrades(
        answer=answer_control_request if path else answer,
        refuse=lambda _fault: None,
        name_peer=name,
        keepalive=None,
    )
    server = _bind(path)
    host, port = ("", 0) if path else server.getsockname()
    # Not a TaskGroup: it would wrap the block's exceptions in a group.
    tasks = BackgroundTasks()
    tasks.spawn(serve_upgrades(server, accept, upgrades), "fake listener")
    try:
        yield f"unix://{path}" if path else f"ws://{host}:{port}"
    finally:
        # A frozen connection would never complete the closing handshake.
        for wire in wires:
            wire.drop()
        await tasks.close()


def _bind(path: Path | None) -> socket.socket:
    if path is None:
        server = socket.create_server(("127.0.0.1", 0))
    else:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()
    server.settimeout(0)
    return server
