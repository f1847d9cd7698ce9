"""Peers that have not sent `initialize` get little, and do not disturb clients that have."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.harness.descriptors import no_descriptors
from tests.harness.peer import Peer
from tests.harness.processes import ServerProcess, listening
from tests.harness.raw_peers import INITIALIZE, RawConnection, dial, stranger
from tests.harness.threads import Client
from treadle.protocol.base import JsonValue
from treadle.transport.base import TransportError
from treadle.transport.unix import connect_unix
from treadle.transport.websocket.connection import WebSocketTransport
from treadle.transport.websocket.frames import (
    MAX_STRANGER_FRAGMENTS,
    POLICY_VIOLATION,
    Close,
    Decoder,
    Violation,
)
from treadle.transport.websocket.listener import UpgradeRefused, connect_websocket

SECONDS = 30
Where = str | Path
LARGE: JsonValue = {"id": 1, "method": "fs/getMetadata", "params": {"path": "/" + "x" * 200_000}}
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
PING = b"\x89\x80\0\0\0\0"
UNMASKED = b"\x81\x01x"


@pytest.fixture(params=["ws", "unix"])
def kind(request: pytest.FixtureRequest) -> str:
    """Provide each kind of listener in turn."""
    listener_kind: str = request.param
    return listener_kind


@contextmanager
def serving(
    kind: str, folder: Path, *arguments: str, descriptors: int | None = None, **extra: str
) -> Iterator[tuple[ServerProcess, Where]]:
    """Run a real server on a listener of this kind."""
    url = "ws://127.0.0.1:0" if kind == "ws" else f"unix://{folder}/s"
    with listening(
        folder / "h", "--listen", url, *arguments, descriptors=descriptors, **extra
    ) as server:
        yield server, server.websocket_url() if kind == "ws" else server.socket_path(folder / "s")


@asynccontextmanager
async def known(where: Where) -> AsyncIterator[Client]:
    """Connect as an initialized client."""
    transport = await (connect_unix(where) if isinstance(where, Path) else connect_websocket(where))
    try:
        async with asyncio.timeout(SECONDS):
            client = Client(Peer(transport))
            await client.initialize()
            yield client
    finally:
        await transport.close()


async def test_large_message_before_initialize_is_answered_and_ends_the_connection(
    kind: str, short_folder: Path
) -> None:
    async with asyncio.timeout(SECONDS):
        with serving(kind, short_folder) as (_, where):
            async with stranger(where) as line:
                await line.upgrade()
                line.send(LARGE)
                answer = await line.answer()
                assert answer["id"] == 1
                assert "at most 65536 bytes before `initialize`" in answer["error"]["message"]
                assert await line.event() == Close(1009, "")


async def test_large_message_after_initialize_is_served(kind: str, short_folder: Path) -> None:
    """Even when it is sent before the answer to `initialize` arrives."""
    async with asyncio.timeout(SECONDS):
        with serving(kind, short_folder) as (_, where):
            async with stranger(where) as line:
                await line.upgrade()
                line.send(INITIALIZE, {"method": "initialized"}, LARGE, LARGE | {"id": 2})
                answers: dict[int, JsonValue] = {}
                while answers.keys() != {0, 1, 2}:
                    message = await line.answer()
                    if "id" in message:
                        answers[message["id"]] = message
                assert "result" in answers[0]
                for number in (1, 2):
                    assert "File name too long" in answers[number]["error"]["message"]


@pytest.mark.parametrize("first", [b"\x82\xfe\xff\xff", b"\x02\xff" + b"\0\0\0\xff" + b"\xff" * 4])
async def test_large_binary_message_before_initialize_ends_the_connection(
    short_folder: Path, first: bytes
) -> None:
    async with asyncio.timeout(SECONDS):
        with serving("ws", short_folder) as (_, where):
            async with stranger(where) as line:
                await line.upgrade()
                line.writer.write(first + b"\1\2\3\4" + bytes(70_000))
                event = await line.event()
                if first[0] == 0x82:  # 65535 bytes, dropped without an answer
                    assert event is None or isinstance(event, Close)
                else:
                    assert isinstance(event, Close)
                    assert event.code == 1009


async def test_many_uninitialized_peers_do_not_keep_a_client_out(
    kind: str, short_folder: Path
) -> None:
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        limits = ["--max-strangers", "4", "--initialize-timeout-seconds", "12"]
        with serving(kind, short_folder, *limits) as (_, where):
            lines = [await stack.enter_async_context(stranger(where)) for _ in range(8)]
            for line in lines[:2]:
                line.writer.write(b"GET / HT")
            async with known(where) as client:
                await client.request("model/list", {})
                await lines[0].wait_until_cut()
                await client.request("model/list", {})


async def test_connections_beyond_the_limit_are_refused_until_one_ends(
    kind: str, short_folder: Path
) -> None:
    async with asyncio.timeout(SECONDS):
        with serving(kind, short_folder, "--max-connections", "2") as (_, where):
            async with known(where) as client:
                async with known(where), stranger(where) as line:
                    if kind == "ws":
                        assert await line.upgrade() == "HTTP/1.1 503 Service Unavailable"
                    await line.wait_until_cut()
                    await client.request("model/list", {})
                while not await _is_served(where):
                    pass


async def test_uninitialized_peer_that_sends_nothing_is_disconnected(
    kind: str, short_folder: Path
) -> None:
    async with asyncio.timeout(SECONDS):
        with serving(kind, short_folder, "--initialize-timeout-seconds", "1") as (_, where):
            async with known(where) as client, stranger(where) as line:
                await line.upgrade()
                line.send({"id": 7, "method": "thread/list", "params": {}})
                assert (await line.answer())["error"]["message"] == "Not initialized"
                event = await line.event()
                assert event == Close(1008, "no `initialize` in time")
                await client.request("model/list", {})


async def test_uninitialized_peer_that_reads_no_answers_uses_little_memory(
    short_folder: Path,
) -> None:
    """Unknown methods are answered with a list of all methods: 100 times the request."""
    call = json.dumps({"id": 1, "method": "x"}).encode()
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        with serving("ws", short_folder) as (server, where):
            async with known(where) as client:
                before = _resident(server)
                lines = [await stack.enter_async_context(stranger(where)) for _ in range(10)]
                for line in lines:
                    await line.upgrade()
                    line.writer.transport.set_write_buffer_limits(0)
                    line.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's
                    line.writer.write(b"".join(line.encoder.text(call)) * 20_000)
                for _ in range(20):
                    await client.request("model/list", {})
                assert _resident(server) - before < 20 * 1024 * 1024


async def test_flood_of_tiny_frames_does_not_delay_others(short_folder: Path) -> None:
    ping = b"\x89\x80\1\2\3\4"
    fragment = b"\x00\x80\1\2\3\4"
    async with asyncio.timeout(SECONDS):
        with serving("ws", short_folder) as (_, where):
            async with known(where) as client, stranger(where) as line:
                await line.upgrade()
                line.writer.write(ping * 40_000 + b"\x01\x80\1\2\3\4" + fragment * 20_000)
                await client.request("model/list", {})
                line.writer.write(fragment * 50_000)
                event = await line.event()
                pongs = 0
                while event is not None and not isinstance(event, Close):
                    pongs += 1
                    event = await line.event()
                assert isinstance(event, Close)
                assert (event.code, event.reason) == (1008, "too many fragments")
                assert pongs < 1000


async def test_heads_with_many_blanks_do_not_delay_others(kind: str, short_folder: Path) -> None:
    """An expression that searched for the end of a value at each blank took a second for one."""
    head = b"GET / HTTP/1.1\r\nA: x" + b" " * 16_000 + b"y\r\n\r\n"
    async with asyncio.timeout(SECONDS):
        with serving(kind, short_folder) as (_, where):
            async with known(where) as client:
                for _ in range(100):
                    async with stranger(where) as line:
                        line.writer.write(head)
                        await line.wait_until_cut()  # after its answer
                await client.request("model/list", {})


async def test_garbage_from_uninitialized_peers_leaves_few_lines_in_the_log(
    kind: str, short_folder: Path
) -> None:
    async with asyncio.timeout(SECONDS):
        with serving(kind, short_folder, TREADLE_LOG="info") as (server, where):
            for number in range(60):
                async with stranger(where) as line:
                    await _misbehave(line, number)
            async with known(where) as client:
                await client.request("model/list", {})
            lines = [text for text in server.stderr.splitlines() if " treadle." in text]

    assert "Traceback" not in server.stderr
    assert len(lines) < 10, lines


async def test_peer_that_breaks_the_framing_after_a_ping_does_not_end_the_server(
    kind: str, short_folder: Path
) -> None:
    """Both arrive with the head. The answer to the ping is due when our side has already ended."""
    async with asyncio.timeout(SECONDS):
        with serving(kind, short_folder, TREADLE_LOG="info") as (server, where):
            for _ in range(3):
                with _plain_socket(where) as line:
                    line.sendall(UPGRADE + PING + UNMASKED)
                    while line.recv(4096):
                        pass
            async with known(where) as client:
                await client.request("model/list", {})

    assert "Traceback" not in server.stderr


async def test_connection_that_can_no_longer_be_shut_down_is_aborted() -> None:
    """The peer has reset it after its bad frame, so ending our side fails."""
    line = _ResetLine()
    transport = WebSocketTransport("peer", is_client=False, keepalive=None)
    transport.connection_made(line)

    transport.data_received(UNMASKED)

    assert line.is_cut


def test_uninitialized_peer_cannot_send_a_message_in_very_many_pieces() -> None:
    """150 peers that did this delayed each request of a client by seconds."""
    head, piece = b"\x01\x80\0\0\0\0", b"\0\x80\0\0\0\0"

    events = Decoder(masked=True, is_strict=True).feed(head + piece * MAX_STRANGER_FRAGMENTS)

    assert events == [Violation(POLICY_VIOLATION, "too many fragments")]


class _ResetLine(asyncio.Transport):
    """A connection that the peer has reset, before any read has noticed."""

    is_cut = False

    def is_closing(self) -> bool:
        return self.is_cut

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    def abort(self) -> None:
        self.is_cut = True


def _plain_socket(where: Where) -> socket.socket:
    if isinstance(where, str):
        return socket.create_connection(("127.0.0.1", int(where.rpartition(":")[2])), SECONDS)
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(SECONDS)
    line.connect(str(where))
    return line


@pytest.mark.parametrize("token", ["", "Authorization: Bearer right-token\r\n"])
async def test_browser_is_refused_whatever_it_sends(short_folder: Path, token: str) -> None:
    """A page on any site can open a WebSocket to this machine; browsers always send `Origin`."""
    secret = short_folder / "token"
    secret.write_text("right-token")
    options = ["--ws-auth", "capability-token", "--ws-token-file", str(secret)] if token else []
    async with asyncio.timeout(SECONDS):
        with serving("ws", short_folder, *options) as (_, where):
            for origin in ("http://evil.example", "http://127.0.0.1", "null", ""):
                async with stranger(where) as line:
                    status = await line.upgrade(f"{token}Origin: {origin}\r\n")
                    assert status == "HTTP/1.1 403 Forbidden"
            async with stranger(where) as line:
                assert await line.upgrade(token) == "HTTP/1.1 101 Switching Protocols"


async def test_connections_wait_while_descriptors_are_used_up(
    kind: str, short_folder: Path
) -> None:
    async with asyncio.timeout(SECONDS):
        with serving(kind, short_folder) as (server, where):
            async with known(where) as client:
                await client.request("model/list", {})
                with no_descriptors(server.process.pid):
                    waiting = await dial(where)
                    waiting.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                    for _ in range(20):
                        await client.request("model/list", {})
                await waiting.wait_until_cut()  # after its answer
                waiting.close()
                async with known(where) as another:
                    await another.request("model/list", {})
        lines = [text for text in server.stderr.splitlines() if "used up" in text]
        assert len(lines) <= 1, lines
        assert "Traceback" not in server.stderr


async def test_connections_never_use_the_last_descriptors(kind: str, short_folder: Path) -> None:
    script = json.dumps(["hi"] * 3)
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        with serving(kind, short_folder, descriptors=128, TREADLE_SCRIPT=script) as (_, where):
            client = await stack.enter_async_context(known(where))
            for _ in range(150):
                line = await dial(where)
                stack.callback(line.close)
            for _ in range(3):
                published = await client.run(await client.start())
                assert published[-1]["params"]["turn"]["status"] == "completed"
            command = {"command": ["echo", "hi"], "sandboxPolicy": {"type": "dangerFullAccess"}}
            assert (await client.request("command/exec", command))["stdout"] == "hi\n"


async def test_refusal_for_too_many_connections_reaches_the_client(short_folder: Path) -> None:
    with serving("ws", short_folder, "--max-connections", "1") as (_, where):
        assert isinstance(where, str)
        async with known(where):
            with pytest.raises(UpgradeRefused, match="503: 'too many connections'"):
                await connect_websocket(where)


async def _is_served(where: Where) -> bool:
    """Try to connect; a connection that was just closed may still count for a moment."""
    try:
        async with known(where) as client:
            await client.request("model/list", {})
    except TransportError:
        return False
    return True


async def _misbehave(line: RawConnection, number: int) -> None:
    """Do one of several things that no client does, and disconnect."""
    kinds = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(64),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0" * 20_000,
        b"",
    ]
    if number % 6 < 4:
        line.writer.write(kinds[number % 6])
        return
    line.writer.write(b"")
    await line.upgrade()
    if number % 6 == 4:
        line.writer.write(b"\xff" * 100)
        await line.event()
    else:
        line.writer.writelines(line.encoder.text(b"not json"))
        line.send({"no": "request"}, {"id": 3, "method": "nope"})
        await line.answer()


def _resident(server: ServerProcess) -> int:
    """Return the resident memory of a process, in bytes."""
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
