"""The fake's end of a line: a transport, and the ways in which a line of its kind can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from treadle.jsonrpc.framing import Frame, LineSplitter
from treadle.transport.base import Transport, TransportError
from treadle.transport.websocket.frames import Encoder

_READ_BYTES: Final = 256 * 1024
_MISSING: Final = b" " * 64


class Wire(Protocol):
    """One client's line."""

    @property
    def transport(self) -> Transport:
        """Moves whole messages."""
        ...

    async def tear(self, part: bytes) -> None:
        """Begin a message, and end the line inside it."""
        ...

    async def exit(self, code: int, stderr: str) -> None:
        """End as a process does; where there is none, break the line."""
        ...

    def freeze(self) -> None:
        """Read nothing more, and keep the line open."""
        ...


class MemoryWire:
    """A line inside the process: it is there or it is not."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def tear(self, part: bytes) -> None:  # noqa: ARG002 - there are no parts in memory
        """End the line."""
        await self.transport.close()

    async def exit(self, code: int, stderr: str) -> None:  # noqa: ARG002 - there is no process
        """End the line."""
        await self.transport.close()

    def freeze(self) -> None:
        """Nothing is to be done: the fake stops answering by itself."""


class SocketWire:
    """A WebSocket, over TCP or over a unix socket."""

    def __init__(self, transport: Transport, line: asyncio.Transport) -> None:
        self.transport = transport
        self._line = line

    async def tear(self, part: bytes) -> None:
        """Send a frame that promises more than there is."""
        frame = b"".join(Encoder(None).text(part + _MISSING))
        self._line.write(frame.removesuffix(_MISSING))
        self._line.close()

    async def exit(self, code: int, stderr: str) -> None:  # noqa: ARG002 - nobody would see them
        """Reset the connection."""
        self.drop()

    def freeze(self) -> None:
        """Leave the connection open and deaf: not even pings are answered."""
        if not self._line.is_closing():
            self._line.pause_reading()

    def drop(self) -> None:
        """Reset the connection."""
        self._line.abort()


class PipeWire:
    """The pipes of a process that the client started, by way of `relay.py`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._splitter = LineSplitter()
        self.peer = "fake process"

    @property
    def transport(self) -> Transport:
        """The wire is its own transport."""
        return self

    async def receive(self) -> Sequence[Frame]:
        """Wait for the client's next lines."""
        while chunk := await self._read():
            if frames := self._splitter.feed(chunk):
                return frames
        return self._splitter.finish()

    async def send(self, frames: Sequence[bytes]) -> None:
        """Write lines to the process's stdout."""
        for frame in frames:
            await self._order(b"o", frame + b"\n")

    async def close(self) -> None:
        """Let the process end."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def tear(self, part: bytes) -> None:
        """Write a line without its end, and exit."""
        await self._order(b"o", part)
        await self.exit(0, "")

    async def exit(self, code: int, stderr: str) -> None:
        """Let the process write to stderr and end with this code."""
        await self._order(b"e", stderr.encode())
        await self._order(b"x", str(code).encode())

    def freeze(self) -> None:
        """Let the process live on and read nothing."""
        self._writer.write(b"f\0\0\0\0")

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_READ_BYTES)
        except OSError:
            return b""

    async def _order(self, letter: bytes, payload: bytes) -> None:
        try:
            self._writer.write(letter + len(payload).to_bytes(4, "big") + payload)
            await self._writer.drain()
        except OSError as error:
            raise TransportError(f"the process is gone: {error}") from error
