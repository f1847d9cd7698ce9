"""Minimal clients of the protocol: a slow client would measure itself."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Final, NamedTuple, Protocol

from benchmarks.servers import Server

READ_BYTES: Final = 256 * 1024
OPEN_SECONDS: Final = 30.0
_HANDSHAKE: Final = (
    b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"bench","version":"1"},'
    b'"capabilities":{"experimentalApi":true}}}'
)
_INITIALIZED: Final = b'{"method":"initialized"}'
_UPGRADE: Final = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ECHOED: Final = b'"echoed"'
"""A text in every answer to `request`, and in no other message of a server."""


class Wire(Protocol):
    """A blocking connection to a server."""

    def frame(self, message: bytes) -> bytes:
        """Return the bytes of one message."""

    def send(self, data: bytes | memoryview) -> None:
        """Write all the data."""

    def receive(self) -> bytes:
        """Wait for the next bytes; empty at the end of the stream."""


class PipeWire:
    """A server's stdin and stdout."""

    def __init__(self, server: Server) -> None:
        stdin, stdout = server.process.stdin, server.process.stdout
        assert stdin is not None
        assert stdout is not None
        self.input, self.output = stdin.fileno(), stdout.fileno()

    def frame(self, message: bytes) -> bytes:
        return message + b"\n"

    def send(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.input, rest) :]

    def receive(self) -> bytes:
        return os.read(self.output, READ_BYTES)


class WebSocketWire:
    """A WebSocket that does not parse incoming frames: a server does not mask them."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(_UPGRADE)
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = connection.recv(READ_BYTES)
            if not chunk:
                raise ConnectionError("the server hung up during the upgrade")
            head += chunk
        assert head.startswith(b"HTTP/1.1 101 ")

    def frame(self, message: bytes) -> bytes:
        size = len(message)
        length = bytes([0x80 | size]) if size < 126 else struct.pack("!BH", 0x80 | 126, size)
        key = os.urandom(4)
        pad = int.from_bytes((key * (size // 4 + 1))[:size])
        masked = (int.from_bytes(message) ^ pad).to_bytes(size)
        return b"\x81" + length + key + masked

    def send(self, data: bytes | memoryview) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        return self._socket.recv(READ_BYTES)


@contextmanager
def open_websocket(server: Server) -> Iterator[WebSocketWire]:
    """Connect to a listening server."""
    with socket.create_connection(("127.0.0.1", server.port()), OPEN_SECONDS) as connection:
        connection.settimeout(None)
        yield WebSocketWire(connection)


@contextmanager
def limited(server: Server, seconds: float) -> Iterator[None]:
    """Kill a server that has not answered in time: a timer costs nothing per read."""
    timer = Timer(seconds, server.kill)
    timer.start()
    try:
        yield
    except (ConnectionError, EOFError) as error:
        raise server.failure(f"hung up, or took more than {seconds:g} s") from error
    finally:
        timer.cancel()
        timer.join()


def request(number: int) -> bytes:
    """Return the cheapest request for a server: an echo. All have the same length."""
    return b'{"id":%d,"method":"mock/experimentalMethod","params":{"value":"x"}}' % (
        1_000_000 + number
    )


def initialize(wire: Wire) -> None:
    """Send `initialize`, and wait for the answer."""
    wire.send(wire.frame(_HANDSHAKE))
    wait_for(wire, b'"userAgent"')
    wire.send(wire.frame(_INITIALIZED))


def ask(wire: Wire) -> None:
    """Send one request and wait for its answer."""
    wire.send(wire.frame(request(0)))
    wait_for(wire, ECHOED)


def wait_for(wire: Wire, token: bytes) -> None:
    """Read until the token arrives."""
    data = b""
    while token not in data:
        chunk = wire.receive()
        if not chunk:
            raise EOFError
        data += chunk


class Tally:
    """Counts a token in a stream, including one that is split between chunks."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._tail = b""
        self.total = 0

    def add(self, chunk: bytes) -> int:
        """Add the next bytes, and return how many tokens ended in them."""
        data = self._tail + chunk
        fresh = data.count(self._token)
        self._tail = data[1 - len(self._token) :]
        self.total += fresh
        return fresh


class LoopRun(NamedTuple):
    """The number of answers, the elapsed time and the processor time of the client."""

    answers: int
    seconds: float
    client_seconds: float


def run_loop(wire: Wire, total: int, *, in_flight: int, seconds: float) -> LoopRun:
    """Keep this many requests in flight until all are answered or the time is up."""
    size = len(wire.frame(request(0)))
    stream = memoryview(b"".join(wire.frame(request(number)) for number in range(total)))
    sent, tally = min(in_flight, total), Tally(ECHOED)
    began, began_client = time.perf_counter(), time.process_time()
    deadline = began + seconds
    wire.send(stream[: sent * size])
    while tally.total < sent:
        chunk = wire.receive()
        if not chunk:
            raise EOFError
        fresh = tally.add(chunk)
        if fresh and sent < total and time.perf_counter() < deadline:
            until = min(sent + fresh, total)
            wire.send(stream[sent * size : until * size])
            sent = until
    took, took_client = time.perf_counter() - began, time.process_time() - began_client
    return LoopRun(tally.total, took, took_client)


def pour(wire: PipeWire, data: bytes, *, answers: int, seconds: float, quiet: float) -> bytes:
    """Write everything as fast as the server reads, while reading its output.

    Ends after this many answers or seconds, or when nothing has moved for `quiet` seconds.
    """
    rest, received, tally = memoryview(data), bytearray(), Tally(b'"id":')
    os.set_blocking(wire.input, False)
    deadline = time.monotonic() + seconds
    while tally.total < answers and (remaining := deadline - time.monotonic()) > 0:
        readable, writable, _ = select.select(
            [wire.output], [wire.input] if rest else [], [], min(remaining, quiet)
        )
        if writable:
            rest = rest[os.write(wire.input, rest) :]
        chunk = wire.receive() if readable else b""
        if not chunk and not writable:
            break
        tally.add(chunk)
        received += chunk
    return bytes(received)
