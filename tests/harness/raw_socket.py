"""A WebSocket client of a few lines over a plain socket: nothing of ours is in it."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from treadle.protocol.base import JsonValue

TEXT, BINARY = 0x1, 0x2
SECONDS = 10


class RawSocket:
    """Writes masked frames by hand and reads unmasked ones."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._file = line.makefile("rb")

    def upgrade(self) -> tuple[str, dict[str, str]]:
        """Ask for a WebSocket; gives the status line and the headers."""
        key = base64.b64encode(os.urandom(16)).decode()
        self._line.sendall(
            "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        status = self._file.readline().decode().rstrip()
        headers: dict[str, str] = {}
        while line := self._file.readline().decode().rstrip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    def send(self, payload: bytes, opcode: int = TEXT) -> None:
        """Send one short frame."""
        assert len(payload) < 2**16
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        size = len(payload).to_bytes(2, "big")
        self._line.sendall(bytes([0x80 | opcode, 0x80 | 126]) + size + mask + masked)

    def receive(self) -> JsonValue:
        """Read one text frame."""
        first, second = self._file.read(2)
        assert first == 0x80 | TEXT
        size = {126: 2, 127: 8}.get(second, 0)
        length = int.from_bytes(self._file.read(size), "big") if size else second
        return json.loads(self._file.read(length))

    def close(self) -> None:
        """Hang up without a word."""
        self._file.close()
        self._line.close()


@contextmanager
def raw_socket(where: str | Path) -> Iterator[RawSocket]:
    """Connect to a `ws://` URL or to a unix socket."""
    if isinstance(where, Path):
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(SECONDS)
        line.connect(str(where))
    else:
        parts = urlsplit(where)
        line = socket.create_connection((parts.hostname, parts.port or 80), timeout=SECONDS)
    client = RawSocket(line)
    try:
        yield client
    finally:
        client.close()
