"""Lines over two descriptors: pipes, files and terminals."""

from __future__ import annotations

import asyncio
import os
import pty
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from treadle.jsonrpc.framing import Frame, Oversized
from treadle.transport.base import MAX_INBOX_FRAMES, TransportError
from treadle.transport.fd_streams import READ_BYTES
from treadle.transport.stdio import LineTransport


class Pipes(NamedTuple):
    """A transport, and the ends of its pipes that a client would hold."""

    transport: LineTransport
    to_it: int
    from_it: int


@asynccontextmanager
async def pipes(limit: int = 1000, already_read: bytes = b"") -> AsyncIterator[Pipes]:
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    transport = LineTransport(
        read_in, write_out, peer="test", limit=limit, already_read=already_read
    )
    os.close(read_in)
    os.close(write_out)
    try:
        async with asyncio.timeout(10):
            yield Pipes(transport, write_in, read_out)
    finally:
        await transport.close()
        for fd in (write_in, read_out):
            with_no_error(fd)


def with_no_error(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return  # the test closed it


async def receive(transport: LineTransport, count: int) -> list[Frame]:
    frames: list[Frame] = []
    while len(frames) < count:
        batch: Sequence[Frame] = await transport.receive()
        assert batch, "the input ended"
        frames += batch
    return frames


async def test_lines_arrive_as_they_were_sent() -> None:
    async with pipes() as (transport, to_it, from_it):
        os.write(to_it, b"one\ntw")
        assert await receive(transport, 1) == [b"one"]
        os.write(to_it, b"o\n\n\r\nthree\n")
        assert await receive(transport, 2) == [b"two", b"three"]
        await transport.send([b"a", b"b"])
        assert os.read(from_it, 100) == b"a\nb\n"


async def test_bytes_that_were_already_read_come_first() -> None:
    async with pipes(already_read=b"zero\non") as (transport, to_it, _):
        os.write(to_it, b"e\n")
        assert await receive(transport, 2) == [b"zero", b"one"]


async def test_the_end_of_input_leaves_the_output_open() -> None:
    async with pipes() as (transport, to_it, from_it):
        os.write(to_it, b"last, without a line end")
        os.close(to_it)
        assert await receive(transport, 1) == [b"last, without a line end"]
        assert not await transport.receive()
        assert not await transport.receive()
        await transport.send([b"answer"])
        assert os.read(from_it, 100) == b"answer\n"


async def test_a_line_beyond_the_limit_fails_alone() -> None:
    async with pipes(limit=10) as (transport, to_it, _):
        os.write(to_it, b"x" * 11 + b"\n" + b"y" * 10 + b"\n")
        assert await receive(transport, 2) == [Oversized(11, b"x" * 11), b"y" * 10]


async def test_a_reader_that_disconnects_ends_the_input() -> None:
    async with pipes() as (transport, _, from_it):
        os.close(from_it)
        assert not await transport.receive()
        with pytest.raises(TransportError):
            await transport.send([b"x"])


async def test_sending_waits_while_the_pipe_is_full() -> None:
    async with pipes() as (transport, _, from_it), asyncio.TaskGroup() as tasks:
        payload = b"x" * 1_000_000
        sending = tasks.create_task(transport.send([payload]))
        await asyncio.sleep(0)
        assert not sending.done()
        assert await asyncio.to_thread(read_exactly, from_it, len(payload) + 1) == payload + b"\n"
        await sending


def read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += os.read(fd, size - len(data))
    return data


async def test_closing_ends_a_pending_send() -> None:
    async with pipes() as (transport, _, _from), asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(_refused(transport))
        await asyncio.sleep(0)
        await transport.close()
        await sending
        assert not await transport.receive()


async def _refused(transport: LineTransport) -> None:
    with pytest.raises(TransportError, match="closed"):
        await transport.send([b"x" * 1_000_000])


async def test_reading_pauses_while_nothing_is_received() -> None:
    async with pipes() as (transport, to_it, _), asyncio.TaskGroup() as tasks:
        count = 400_000
        writing = tasks.create_task(asyncio.to_thread(write_all, to_it, b"xx\n" * count))
        first = await receive(transport, MAX_INBOX_FRAMES)
        assert len(first) < count
        assert not writing.done()
        assert len(first + await receive(transport, count - len(first))) == count


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


async def test_a_pipe_shared_with_others_keeps_its_blocking_mode() -> None:
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    transport = LineTransport(read_in, write_out, peer="test")
    await transport.close()
    assert os.get_blocking(read_in)
    assert os.get_blocking(write_out)
    for fd in (read_in, write_in, read_out, write_out):
        os.close(fd)


async def test_regular_files_serve_as_input_and_output(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    lines = [b"%d" % number for number in range(200_000)]
    source.write_bytes(b"\n".join(lines))
    with source.open("rb") as stdin, target.open("wb") as stdout:
        transport = LineTransport(stdin.fileno(), stdout.fileno(), peer="test")
        async with asyncio.timeout(10):
            frames = await receive(transport, len(lines))
            assert frames == lines
            assert not await transport.receive()
            await transport.send([b"a", b"b"])
        await transport.close()
    assert target.read_bytes() == b"a\nb\n"


async def test_a_terminal_serves_as_input_and_output() -> None:
    master, slave = pty.openpty()
    transport = LineTransport(slave, slave, peer="test")
    async with asyncio.timeout(10):
        os.write(master, b"typed\n")
        assert await receive(transport, 1) == [b"typed"]
        await transport.send([b"shown"])
        shown = b""
        while b"shown\r\n" not in shown:
            shown += os.read(master, 1000)
    await transport.close()
    os.close(slave)
    os.close(master)


async def test_sockets_serve_as_input_and_output() -> None:
    """Parents written for Node.js give their children sockets instead of pipes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport = LineTransport(theirs.fileno(), theirs.fileno(), peer="test")
        async with asyncio.timeout(10):
            ours.sendall(b"one\n")
            assert await receive(transport, 1) == [b"one"]
            await transport.send([b"two"])
            assert ours.recv(100) == b"two\n"
        await transport.close()


async def test_a_file_is_not_read_ahead_of_its_receiver(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes((b"x" * 99 + b"\n") * 400_000)
    with source.open("rb") as stdin:
        transport = LineTransport(stdin.fileno(), stdin.fileno(), peer="test")
        async with asyncio.timeout(10):
            await transport.receive()
            place = -1
            while place != (place := os.lseek(stdin.fileno(), 0, os.SEEK_CUR)):
                for _ in range(1000):
                    await asyncio.sleep(0)
            assert place < 4 * READ_BYTES
            assert len(await receive(transport, 100_000)) < 400_000
        await transport.close()
