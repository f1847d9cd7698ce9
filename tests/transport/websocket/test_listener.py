"""WebSocket connections over TCP: messages, limits, backpressure, pings and closing."""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from treadle.jsonrpc.framing import HEAD_BYTES, Frame, Oversized
from treadle.transport.base import MAX_INBOX_FRAMES, Transport, TransportError
from treadle.transport.websocket.frames import Close, Decoder, Encoder, Event, Ping, Pong
from treadle.transport.websocket.listener import Keepalive, WebSocketListener, connect_websocket

MIB = 1024 * 1024
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
Accept = Callable[[Transport], Awaitable[None]]


async def echo(transport: Transport) -> None:
    while batch := await transport.receive():
        await transport.send([frame for frame in batch if isinstance(frame, bytes)])


@contextlib.asynccontextmanager
async def running(
    accept: Accept = echo, keepalive: Keepalive | None = None
) -> AsyncIterator[tuple[int, asyncio.Task[None]]]:
    listener = WebSocketListener("127.0.0.1", 0, keepalive=keepalive)
    await listener.start()
    with contextlib.closing(listener):
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            serving = group.create_task(listener.serve(accept))
            yield listener.address[1], serving
            serving.cancel()


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Transport]:
    transport = await connect_websocket(f"ws://127.0.0.1:{port}")
    try:
        yield transport
    finally:
        await transport.close()


class RawClient:
    """A client that encodes its frames by hand and reads every event of the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder = Encoder(lambda: b"\x11\x22\x33\x44")
        self._decoder = Decoder(masked=False)
        self._events: list[Event] = []

    def send(self, *texts: bytes) -> None:
        for text in texts:
            self.writer.writelines(self.encoder.text(text))

    async def event(self) -> Event | None:
        """Return the next event, or None at the end of the connection."""
        while not self._events:
            data = await self.reader.read(65536)
            if not data:
                return None
            self._events = self._decoder.feed(data)
        return self._events.pop(0)

    async def events(self) -> list[Event]:
        """Return every event up to the end."""
        found: list[Event] = []
        while (event := await self.event()) is not None:
            found.append(event)
        return found


@contextlib.asynccontextmanager
async def raw_client(port: int) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def take(transport: Transport, count: int) -> list[Frame]:
    frames: list[Frame] = []
    while len(frames) < count:
        batch = await transport.receive()
        assert batch, f"only {len(frames)} of {count} came"
        frames += batch
    return frames


async def test_messages_are_echoed_whole_and_in_order() -> None:
    sizes = [0, 1, 125, 126, 65535, 65536, 300_000, 7]
    messages = [bytes(i % 256 for i in range(size)) for size in sizes]
    async with running() as (port, _), connected(port) as client:
        await client.send(messages)

        assert await take(client, len(messages)) == messages


async def test_both_ends_name_their_peer() -> None:
    names: list[str] = []

    async def note(transport: Transport) -> None:
        names.append(transport.peer)
        await echo(transport)

    async with running(note) as (port, _), connected(port) as client:
        await client.send([b"x"])
        await take(client, 1)

        assert client.peer == f"ws 127.0.0.1:{port}"
    assert names[0].startswith("ws 127.0.0.1:")


async def test_a_message_of_65_mib_fails_alone_and_the_next_one_passes() -> None:
    received: list[Frame] = []

    async def note(transport: Transport) -> None:
        while batch := await transport.receive():
            received.extend(batch)
            await transport.send([b"seen"] * len(batch))

    async with running(note) as (port, _), connected(port) as client:
        await client.send([b"x" * (65 * MIB), b"normal"])
        await take(client, 2)

    assert received == [Oversized(65 * MIB, b"x" * HEAD_BYTES), b"normal"]


async def test_one_single_frame_of_65_mib_fails_alone_too() -> None:
    received: list[Frame] = []

    async def note(transport: Transport) -> None:
        while batch := await transport.receive():
            received.extend(batch)
            await transport.send([b"seen"] * len(batch))

    async with running(note) as (port, _), raw_client(port) as client:
        client.encoder = Encoder(lambda: b"\0\0\0\0", max_frame=65 * MIB)
        client.send(b"x" * (65 * MIB), b"normal")

        assert [await client.event(), await client.event()] == [b"seen", b"seen"]
    assert received == [Oversized(65 * MIB, b"x" * HEAD_BYTES), b"normal"]


async def test_40_mib_in_fragments_of_1_mib_are_joined() -> None:
    message = b"0123456789abcdef" * (40 * MIB // 16)
    async with running() as (port, _), raw_client(port) as client:
        client.encoder = Encoder(lambda: b"\0\0\0\0", max_frame=MIB)
        client.send(message)

        assert await client.event() == message


async def test_a_slow_reader_delays_only_its_own_sender() -> None:
    started = asyncio.Event()
    sent = 0

    async def flood(transport: Transport) -> None:
        nonlocal sent
        if await transport.receive() != [b"flood"]:
            await transport.send([b"served"])
            return
        started.set()
        with contextlib.suppress(TransportError):
            while True:
                await transport.send([b"x" * MIB])
                sent += 1

    async with running(flood) as (port, _), raw_client(port) as slow:
        slow.send(b"flood")
        await started.wait()
        async with connected(port) as client:
            for _ in range(3):
                async with connected(port) as other:
                    await other.send([b"hello"])
                    assert await other.receive() == [b"served"]
            await client.send([b"hello"])
            assert await client.receive() == [b"served"]
    # What the two kernels buffer, not what a loop without backpressure would send.
    assert sent < 64


async def test_a_server_that_does_not_read_makes_the_client_wait() -> None:
    release = asyncio.Event()
    total = 20_000

    async def late(transport: Transport) -> None:
        await release.wait()
        counts: list[int] = []
        while batch := await transport.receive():
            counts.append(len(batch))
            if sum(counts) == total:
                break
        else:
            return
        await transport.send([str(max(counts)).encode()])

    async with running(late) as (port, _), connected(port) as client, asyncio.TaskGroup() as group:
        sending = group.create_task(client.send([b"y" * 1000] * total))
        async with connected(port):  # one round trip through the listener
            assert not sending.done()
        release.set()
        (largest,) = await take(client, 1)

    assert isinstance(largest, bytes)
    # A batch may exceed the mark by what one read of 256 KiB holds.
    assert int(largest) <= MAX_INBOX_FRAMES + 256 * 1024 // 1000 + 1


async def test_a_ping_is_answered_even_between_fragments() -> None:
    async with running() as (port, _), raw_client(port) as client:
        first, rest = b"\x01\x82\0\0\0\0he", b"\x80\x83\0\0\0\0llo"
        client.writer.write(first + client.encoder.ping(b"hi") + rest)

        assert [await client.event(), await client.event()] == [Pong(b"hi"), b"hello"]


async def test_a_binary_message_is_dropped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as (port, _), raw_client(port) as client:
        client.writer.write(b"\x82\x83\0\0\0\0abc")
        client.send(b"text")

        assert await client.event() == b"text"
    assert [(r.levelno, r.message, r.size) for r in caplog.records if hasattr(r, "size")] == [
        (logging.WARNING, "binary message dropped", 3)
    ]


@pytest.mark.parametrize("close", [b"\x88\x82\0\0\0\0\x03\xe8", b"\x88\x80\0\0\0\0"])
async def test_a_close_is_echoed_after_the_messages_before_it(close: bytes) -> None:
    async with running() as (port, _), raw_client(port) as client:
        client.send(b"last words")
        assert await client.event() == b"last words"
        client.writer.write(close)

        code = 1000 if len(close) > 6 else 1005
        assert await client.events() == [Close(code, "")]


async def test_messages_before_a_close_are_delivered_before_the_end() -> None:
    seen: list[Sequence[Frame]] = []
    done = asyncio.Event()

    async def note(transport: Transport) -> None:
        while batch := await transport.receive():
            seen.append(batch)
        seen.append(await transport.receive())
        done.set()

    async with running(note) as (port, _), raw_client(port) as client:
        client.writer.write(b"".join(client.encoder.text(b"one")) + client.encoder.close())
        await done.wait()

    assert seen == [[b"one"], ()]


async def test_a_violation_closes_with_1002_and_its_reason() -> None:
    failures: list[str] = []

    async def note(transport: Transport) -> None:
        with pytest.raises(TransportError) as caught:
            await echo(transport)
        failures.append(str(caught.value))

    async with running(note) as (port, _), raw_client(port) as client:
        client.writer.write(b"\x81\x01x" + b"more of the same" * 1000)

        assert await client.events() == [Close(1002, "client frame not masked")]
    assert failures == ["the peer violated the framing: client frame not masked"]


async def test_an_idle_peer_is_pinged_and_stays_while_it_answers() -> None:
    keepalive = Keepalive(interval=0.001, timeout=30)
    async with running(keepalive=keepalive) as (port, _), raw_client(port) as client:
        for _ in range(5):
            assert await client.event() == Ping(b"")
            client.writer.write(client.encoder.pong(b""))


async def test_a_peer_that_answers_no_ping_is_disconnected() -> None:
    failures: list[str] = []
    done = asyncio.Event()

    async def note(transport: Transport) -> None:
        with pytest.raises(TransportError) as caught:
            await transport.receive()
        failures.append(str(caught.value).replace(transport.peer, "PEER"))
        done.set()

    keepalive = Keepalive(interval=0.001, timeout=0.001)
    async with running(note, keepalive) as (port, _), raw_client(port):
        await done.wait()

    assert failures == ["no sign of life from PEER after a ping"]


async def test_a_stopping_server_sends_going_away() -> None:
    async with running() as (port, serving), raw_client(port) as client:
        client.send(b"x")
        assert await client.event() == b"x"
        serving.cancel()
        assert await client.event() == Close(1001, "")
        client.writer.write(client.encoder.close(1001))
        assert await client.events() == []
    with pytest.raises(TransportError, match="cannot connect"):
        await connect_websocket(f"ws://127.0.0.1:{port}")


async def test_a_stopping_server_does_not_wait_for_unresponsive_peers() -> None:
    async with running() as (port, serving), raw_client(port) as client:
        client.send(b"x")
        assert await client.event() == b"x"
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving


async def test_a_stopping_server_ends_unfinished_handshakes() -> None:
    async with running() as (port, serving):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with connected(port) as client:  # the listener has accepted the first one by now
            await client.send([b"x"])
            await take(client, 1)
        serving.cancel()
        with contextlib.suppress(OSError):
            assert await reader.read() == b""
        writer.close()


async def test_a_failing_connection_does_not_affect_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fragile(transport: Transport) -> None:
        while batch := await transport.receive():
            if b"fail" in batch:
                raise RuntimeError("a bug of ours")
            await transport.send([b"fine"])

    async with running(fragile) as (port, _), connected(port) as one, connected(port) as two:
        await one.send([b"fail"])
        assert await one.receive() == ()
        await two.send([b"x"])

        assert await two.receive() == [b"fine"]
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "connection failed"
    ]


@pytest.mark.parametrize(
    ("leave", "failure"),
    [
        ("eof", "the peer closed the connection inside a message"),
        ("reset", "the connection broke: [Errno 104] Connection reset by peer"),
    ],
)
async def test_a_reset_connection_is_a_transport_error(leave: str, failure: str) -> None:
    failures: list[str] = []
    done = asyncio.Event()

    async def note(transport: Transport) -> None:
        with pytest.raises(TransportError) as caught:
            await transport.receive()
        failures.append(str(caught.value))
        done.set()

    async with running(note) as (port, _), raw_client(port) as client:
        client.writer.write(b"\x81\xfe\x01")
        if leave == "eof":
            client.writer.write_eof()
        else:
            line = client.writer.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.writer.transport.abort()
        await done.wait()

    assert failures == [failure]


async def test_an_end_without_a_close_is_not_a_failure() -> None:
    """Upstream disconnects like that."""
    ends: list[Sequence[Frame]] = []
    done = asyncio.Event()

    async def note(transport: Transport) -> None:
        ends.append(await transport.receive())
        done.set()

    async with running(note) as (port, _), raw_client(port) as client:
        client.writer.write_eof()
        await done.wait()

    assert ends == [()]
