"""The fake app-server: its plays, its received messages and its transports."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from treadle.jsonrpc.framing import Frame
from treadle.protocol.base import JsonValue
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.testing.fake import relay
from treadle.testing.fake.connection import FakeConnection
from treadle.testing.fake.listeners import listening
from treadle.testing.fake.plays import Play, refuses
from treadle.testing.fake.usual import usual
from treadle.testing.fake.wires import MemoryWire, PipeWire, Wire
from treadle.transport.base import Transport, TransportError

logger = logging.getLogger(__name__)


class FakeAppServer:
    """Runs the plays that a test sets for each method, and keeps every received message.

    In memory the client takes the fake itself: `AsyncClient(server)`. `command()`, `websocket()`
    and `unix()` return what a client needs to reach it over real pipes and sockets.
    """

    def __init__(self) -> None:
        self.messages: list[JsonValue] = []
        """All messages of clients, in order; as bytes if they are not JSON."""
        self.connections: list[FakeConnection] = []
        """The connections of clients, in order."""
        self.errors: list[Exception] = []
        """Exceptions of plays; leaving `command()`, `websocket()` or `unix()` raises the first."""
        self._plays: dict[str, Sequence[Play]] = {name: [play] for name, play in usual().items()}
        self._played: Counter[str] = Counter()
        self._ids: Counter[str] = Counter()
        self._arrived = asyncio.Condition()

    def on(self, method: str, *plays: Play) -> Self:
        """Play these for the first, the second, ... message of a method; the last one repeats."""
        if not plays:
            raise ValueError(f"nothing to play for {method}")
        self._plays[method] = plays
        self._played[method] = 0
        return self

    # -- received messages

    def received(self, method: str) -> list[JsonValue]:
        """Return the params of each request or notification of a method."""
        return [each.get("params") for each in self._documents() if each.get("method") == method]

    @property
    def answers(self) -> dict[str | int, JsonValue]:
        """The answers of clients, by the id of the server request: a `result` or an `error`."""
        responses = [each for each in self._documents() if "method" not in each and "id" in each]
        return {each.pop("id"): each for each in map(dict, responses)}

    async def wait_for(self, method: str, number: int = 1) -> JsonValue:
        """Wait for a message of a method, counted from one, and return its params."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.received(method)) >= number)
        return self.received(method)[number - 1]

    def _documents(self) -> list[JsonValue]:
        return [each for each in self.messages if isinstance(each, dict)]

    # -- transports

    async def attach(self, transport: Transport) -> None:
        """Serve one client in memory until it disconnects."""
        await self.serve(MemoryWire(transport))

    @asynccontextmanager
    async def websocket(self) -> AsyncIterator[str]:
        """Listen on the loopback, and yield the `ws://` URL."""
        async with listening(self.serve) as url:
            yield url
        self._raise()

    @asynccontextmanager
    async def unix(self) -> AsyncIterator[Path]:
        """Listen on a unix socket, and yield its path."""
        with TemporaryDirectory(prefix="treadle-") as folder:
            path = Path(folder) / "s"
            async with listening(self.serve, path):
                yield path
        self._raise()

    @asynccontextmanager
    async def command(self) -> AsyncIterator[list[str]]:
        """Yield a command: each process that it starts is a server on its own pipes.

        The process only relays bytes, so plays run and messages arrive here.
        """
        tasks = BackgroundTasks()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.spawn(self.serve(PipeWire(reader, writer)), "fake process")

        with TemporaryDirectory(prefix="treadle-") as folder:
            path = f"{folder}/s"
            server = await asyncio.start_unix_server(accept, path)
            try:
                yield [sys.executable, "-I", "-S", str(relay.__file__), path]
            finally:
                server.close()
                await tasks.close()
        self._raise()

    def _raise(self) -> None:
        if self.errors:
            raise self.errors[0]

    # -- plays

    async def serve(self, wire: Wire) -> None:
        """Serve one client until it disconnects."""
        connection = FakeConnection(wire, len(self.connections) + 1, self._new_id)
        self.connections.append(connection)
        async with asyncio.TaskGroup() as tasks:
            playing: set[asyncio.Task[None]] = set()
            try:
                while frames := await _receive(wire.transport):
                    for frame in frames:
                        if play := await self._dispatch(connection, frame):
                            playing.add(tasks.create_task(play))
            finally:
                for task in playing:
                    task.cancel()
                await wire.transport.close()

    def _new_id(self, kind: str) -> str:
        self._ids[kind] += 1
        return f"{kind}-{self._ids[kind]}"

    async def _dispatch(self, connection: FakeConnection, frame: Frame) -> JsonValue:
        """Store a message and return the coroutine of its play, if there is one."""
        if connection.is_frozen:
            return None
        message: JsonValue = _decode(frame)
        async with self._arrived:
            self.messages.append(message)
            self._arrived.notify_all()
        if not isinstance(message, dict):
            return None
        method = message.get("method")
        if method is None:
            connection.take_answer(message)
            return None
        play = self._next(method)
        return None if play is None else self._run(play, connection, message)

    def _next(self, method: str) -> Play | None:
        plays = self._plays.get(method)
        if plays is None:
            return refuses(-32601, f"the fake has no {method}: set a play with on()")
        self._played[method] += 1
        return plays[min(self._played[method], len(plays)) - 1]

    async def _run(self, play: Play, connection: FakeConnection, message: JsonValue) -> None:
        try:
            await play(connection, message)
        except TransportError:
            pass  # the client is gone
        except Exception as error:  # a test's own code: raised at the end
            logger.exception("play failed", extra={"method": message["method"]})
            self.errors.append(error)
            with suppress(TransportError):
                await connection.hang_up()


async def _receive(transport: Transport) -> Sequence[Frame]:
    try:
        return await transport.receive()
    except TransportError:
        return ()


def _decode(frame: Frame) -> JsonValue:
    data = frame if isinstance(frame, bytes) else frame.head
    try:
        return json.loads(data)
    except ValueError:
        return data
