"""One way to reach a server per transport; tests that use `connect` run over each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import cached_property
from pathlib import Path

from tests.harness.peer import Peer
from tests.harness.processes import ServerProcess, listening, spawn_server
from tests.harness.sandbox import SANDBOX
from treadle.server.server import Server
from treadle.transport.base import Transport
from treadle.transport.memory import memory_pair
from treadle.transport.unix import connect_unix
from treadle.transport.websocket.listener import connect_websocket

Connect = Callable[[], AbstractAsyncContextManager[Peer]]

TRANSPORTS = ("stdio", "websocket", "unix", "memory")
SECONDS = 40


class SharedServers:
    """Servers that all tests of a run share, as clients do; started when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._running: list[ServerProcess] = []

    @cached_property
    def url(self) -> str:
        """A WebSocket server."""
        return self._start("ws", "--listen", "ws://127.0.0.1:0").websocket_url()

    @cached_property
    def socket(self) -> Path:
        """A unix socket server."""
        path = self._folder / "s"
        return self._start("unix", "--listen", f"unix://{path}").socket_path(path)

    def stop(self) -> None:
        """End them all; none may have failed in any way on its way."""
        with self._stack:
            for server in self._running:
                assert server.stop() == 0
                assert "Traceback" not in server.stderr
                assert "ResourceWarning" not in server.stderr

    def _start(self, name: str, *arguments: str) -> ServerProcess:
        server = self._stack.enter_context(listening(self._folder / name, *arguments))
        self._running.append(server)
        return server


def connector(kind: str, shared: SharedServers, home: Path) -> Connect:
    """Give the function that opens a line of this kind."""
    match kind:
        case "stdio":
            return lambda: _child(home)
        case "websocket":
            return lambda: _dialled(lambda: connect_websocket(shared.url))
        case "unix":
            return lambda: _dialled(lambda: connect_unix(shared.socket))
        case _:
            return lambda: in_memory()  # noqa: PLW0108 - it takes more than a connector gives


@asynccontextmanager
async def _child(home: Path) -> AsyncIterator[Peer]:
    async with asyncio.timeout(SECONDS):
        transport = spawn_server(home)
        try:
            yield Peer(transport)
        finally:
            await transport.close()
        assert transport.exit_code == 0, transport.stderr_tail
        assert "Traceback" not in transport.stderr_tail
        assert "ResourceWarning" not in transport.stderr_tail


@asynccontextmanager
async def _dialled(dial: Callable[[], Awaitable[Transport]]) -> AsyncIterator[Peer]:
    async with asyncio.timeout(SECONDS):
        transport = await dial()
        try:
            yield Peer(transport)
        finally:
            await transport.close()


@asynccontextmanager
async def in_memory(server: Server | None = None) -> AsyncIterator[Peer]:
    """Talk to a server that lives in the test's own process: this one, or a new one."""
    if server is None:
        async with local_server() as new, attached(new) as peer:
            yield peer
    else:
        async with attached(server) as peer:
            yield peer


@asynccontextmanager
async def local_server() -> AsyncIterator[Server]:
    """A server in the test's own process, whose clock stands still."""
    server = Server(sandbox=SANDBOX, clock=lambda: 7)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def attached(server: Server) -> AsyncIterator[Peer]:
    """Talk to a server over a line of memory."""
    ours, theirs = memory_pair()
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(server.attach(theirs))
        try:
            yield Peer(ours)
        finally:
            await ours.close()
