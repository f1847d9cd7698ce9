"""Peers that connect to a listener and do not behave: bytes and frames written by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from treadle.protocol.base import JsonValue
from treadle.transport.websocket.frames import Decoder, Encoder, Event

UPGRADE = (
    "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
)
INITIALIZE: JsonValue = {
    "id": 0,
    "method": "initialize",
    "params": {"clientInfo": {"name": "stranger", "version": "1"}},
}


class RawConnection:
    """A connection over which a test sends arbitrary bytes and frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder = Encoder(lambda: b"\x11\x22\x33\x44")
        self._decoder = Decoder(masked=False)
        self._events: list[Event] = []

    async def upgrade(self, more: str = "") -> str:
        """Ask for a WebSocket; return the status line of the answer."""
        self.writer.write(UPGRADE.format(more=more).encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        return head.decode().splitlines()[0]

    def send(self, *documents: JsonValue) -> None:
        """Write one frame per document."""
        for document in documents:
            self.writer.writelines(self.encoder.text(json.dumps(document).encode()))

    async def event(self) -> Event | None:
        """Return the next event, None when the connection has ended."""
        while not self._events:
            try:
                data = await self.reader.read(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._events = self._decoder.feed(data)
        return self._events.pop(0)

    async def answer(self) -> JsonValue:
        """Return the next message."""
        event = await self.event()
        while event is not None and not isinstance(event, bytes):
            event = await self.event()
        assert event is not None, "the server closed the connection"
        return json.loads(event)

    async def wait_until_cut(self) -> None:
        """Wait for the end of the connection."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def close(self) -> None:
        """Abort the connection without a Close frame."""
        self.writer.transport.abort()


async def dial(where: str | Path) -> RawConnection:
    """Connect to a `ws://` URL or to a unix socket, and do nothing yet."""
    if isinstance(where, Path):
        return RawConnection(*await asyncio.open_unix_connection(str(where)))
    parts = urlsplit(where)
    return RawConnection(*await asyncio.open_connection(parts.hostname, parts.port))


@asynccontextmanager
async def stranger(where: str | Path) -> AsyncIterator[RawConnection]:
    """Connect until the block ends."""
    line = await dial(where)
    try:
        yield line
    finally:
        line.close()
