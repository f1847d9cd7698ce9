"""A connection through this process to a real server, which a test can cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Relay:
    """Forwards bytes both ways until it is cut; then it refuses connections until `restore`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.url = ""

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def restore(self) -> None:
        """Accept connections again."""
        self._is_cut = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        self._writers.add(writer)
        there, away = await asyncio.open_connection(*self._target)
        self._writers.add(away)
        if self._is_cut:
            self.cut()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pass_on(reader, away))
                tasks.create_task(_pass_on(there, writer))
        finally:
            self._writers -= {writer, away}


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(2**16):
            target.write(data)
            await target.drain()
    target.close()


@asynccontextmanager
async def relay(url: str) -> AsyncIterator[Relay]:
    """Listen on a free port until the block ends."""
    host, _, port = url.removeprefix("ws://").rpartition(":")
    made = Relay(host, int(port))
    async with asyncio.TaskGroup() as lines:

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            lines.create_task(made.serve(reader, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        made.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield made
            made.cut()
