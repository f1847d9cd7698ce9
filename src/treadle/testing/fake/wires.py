"""The fake's end of a connection: a transport and the failures that it supports."""

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
    """One client's connection."""

    @property
    def transport(self) -> Transport:
        """The transport of whole messages."""
        ...

    async def tear(self, part: bytes) -> None:
        """Send part of a message and close the connection."""
        ...

    async def exit(self, code: int, stderr: str) -> None:
        """End the process; without one, reset the connection."""
        ...

    def freeze(self) -> None:
        """Stop reading and keep the connection open."""
        ...


class MemoryWire:
    """A connection in memory, which can only be open or closed."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def tear(self, part: bytes) -> None:  # noqa: ARG002 - there are no parts in memory
        """Close the connection."""
        await self.transport.close()

    async def exit(self, code: int, stderr: str) -> None:  # noqa: ARG002 - there is no process
        """Close the connection."""
        await self.transport.close()

    def freeze(self) -> None:
        """Do nothing: the fake stops answering by itself."""


class SocketWire:
    """A WebSocket, over TCP or over a unix socket."""

    def __init__(self, transport: Transport, socket: asyncio.Transport) -> None:
        self.transport = transport
        self._socket = socket

    async def tear(self, part: bytes) -> None:
        """Send an incomplete frame."""
        frame = b"".join(Encoder(None).text(part + _MISSING))
        self._socket.write(frame.removesuffix(_MISSING))
        self._socket.close()

    async def exit(self, code: int, stderr: str) -> None:  # noqa: ARG002 - a socket carries neither
        """Reset the connection."""
        self.drop()

    def freeze(self) -> None:
        """Stop reading and keep the connection open; pings are not answered either."""
        if not self._socket.is_closing():
            self._socket.pause_reading()

    def drop(self) -> None:
        """Reset the connection."""
        self._socket.abort()


class PipeWire:
    """The pipes of a process that the client started, through `relay.py`."""

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
            await self._command(b"o", frame + b"\n")

    async def close(self) -> None:
        """Let the process end."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def tear(self, part: bytes) -> None:
        """Write a line without its end, and exit."""
        await self._command(b"o", part)
        await self.exit(0, "")

    async def exit(self, code: int, stderr: str) -> None:
        """Let the process write to stderr and end with this code."""
        await self._command(b"e", stderr.encode())
        await self._command(b"x", str(code).encode())

    def freeze(self) -> None:
        """Make the process stop reading without ending it."""
        self._writer.write(b"f\0\0\0\0")

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_READ_BYTES)
        except OSError:
            return b""

    async def _command(self, letter: bytes, payload: bytes) -> None:
        try:
            self._writer.write(letter + len(payload).to_bytes(4, "big") + payload)
            await self._writer.drain()
        except OSError as error:
            raise TransportError(f"the process is gone: {error}") from error
