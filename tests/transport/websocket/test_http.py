"""Plain HTTP answers of a TCP listener, compared with the reference row by row."""

import asyncio
import contextlib
import re
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from treadle.transport.auth import Auth, AuthConfigError, CapabilityToken
from treadle.transport.base import Transport
from treadle.transport.websocket.http import is_response_ready
from treadle.transport.websocket.listener import WebSocketListener

UPGRADE = {
    "Host": "anything",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
SWITCHED = (
    "HTTP/1.1 101 Switching Protocols",
    {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
    },
    "",
)
TEXT = {"content-type": "text/plain; charset=utf-8"}

Answer = tuple[str, dict[str, str], str]


@contextlib.asynccontextmanager
async def running(auth: Auth | None = None, head_timeout: float = 10.0) -> AsyncIterator[int]:
    async def hold(transport: Transport) -> None:
        await transport.receive()

    listener = WebSocketListener("127.0.0.1", 0, auth=auth, head_timeout=head_timeout)
    await listener.start()
    with contextlib.closing(listener):
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(listener.serve(hold))
            yield listener.address[1]
            serving.cancel()


async def exchange(port: int, data: bytes) -> bytes:
    """Send bytes; read one answer, or to the end of the connection."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            answer = b""
            while chunk := await reader.read(65536):
                answer += chunk
                if is_whole(answer, has_body=not data.startswith(b"HEAD")):
                    break
            return answer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def is_whole(answer: bytes, *, has_body: bool) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return bool(end) and (not has_body or len(body) == int(length[1] if length else 0))


def request(line: str, *headers: dict[str, str]) -> bytes:
    fields = [f"{name}: {value}" for each in headers for name, value in each.items()]
    return "\r\n".join([f"{line}", *fields, "", ""]).encode("latin-1")


def read_answer(data: bytes) -> Answer:
    """Split an answer; omits the date, and whether the connection is kept."""
    head, _, body = data.decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers.pop("date"))
    headers.pop("connection") if headers.get("connection") == "close" else None
    return status, headers, body


def empty(status: str, **headers: str) -> Answer:
    return status, {**headers, "content-length": "0"}, ""


def plain(status: str, body: str) -> Answer:
    return status, {**TEXT, "content-length": str(len(body))}, body


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in UPGRADE.items() if key != name}


OK = "HTTP/1.1 200 OK"
BAD = "HTTP/1.1 400 Bad Request"
FORBIDDEN = "HTTP/1.1 403 Forbidden"
NOT_ALLOWED = "HTTP/1.1 405 Method Not Allowed"
NO_CONNECTION = plain(BAD, "Connection header did not include 'upgrade'")
NO_UPGRADE = plain(BAD, "`Upgrade` header did not include 'websocket'")
NO_VERSION = plain(BAD, "`Sec-WebSocket-Version` header did not include '13'")
NO_STATE = "WebSocket request couldn't be upgraded since no upgrade state was present"

ROWS: list[tuple[bytes, Answer]] = [
    (request("GET /readyz HTTP/1.1"), empty(OK)),
    (request("GET /healthz HTTP/1.1"), empty(OK)),
    (request("HEAD /readyz HTTP/1.1"), empty(OK)),
    (request("GET /readyz?x=1 HTTP/1.1"), empty(OK)),
    (request("GET http://x/readyz HTTP/1.1"), empty(OK)),
    (request("GET /readyz HTTP/1.1", UPGRADE), empty(OK)),
    (request("GET /readyz HTTP/1.0"), empty("HTTP/1.0 200 OK")),
    (b"GET /readyz HTTP/1.1\nHost: x\n\n", empty(OK)),
    (request("POST /readyz HTTP/1.1"), empty(NOT_ALLOWED, allow="GET,HEAD")),
    (request("GET /readyz HTTP/1.1", {"Origin": "http://evil"}), empty(FORBIDDEN)),
    (request("GET / HTTP/1.1", UPGRADE, {"Origin": "http://127.0.0.1"}), empty(FORBIDDEN)),
    (request("GET / HTTP/1.1", UPGRADE, {"oRiGiN": "null"}), empty(FORBIDDEN)),
    (request("GET / HTTP/1.1", UPGRADE, {"Origin": ""}), empty(FORBIDDEN)),
    (request("POST / HTTP/1.1", {"Origin": "x"}), empty(FORBIDDEN)),
    (request("GET / HTTP/1.1"), NO_CONNECTION),
    (request("GET /nope HTTP/1.1"), NO_CONNECTION),
    (request("GET /readyz/ HTTP/1.1"), NO_CONNECTION),
    (request("GET / HTTP/1.1", without("Connection")), NO_CONNECTION),
    (request("GET / HTTP/1.1", without("Upgrade")), NO_UPGRADE),
    (request("GET / HTTP/1.1", {**UPGRADE, "Upgrade": "h2c, websocket"}), NO_UPGRADE),
    (request("GET / HTTP/1.1", without("Sec-WebSocket-Version")), NO_VERSION),
    (request("GET / HTTP/1.1", {**UPGRADE, "Sec-WebSocket-Version": "12"}), NO_VERSION),
    (
        request("GET / HTTP/1.1", without("Sec-WebSocket-Key")),
        plain(BAD, "`Sec-WebSocket-Key` header missing"),
    ),
    (request("POST / HTTP/1.1", UPGRADE), plain(NOT_ALLOWED, "Request method must be `GET`")),
    (request("POST / HTTP/1.1"), plain(NOT_ALLOWED, "Request method must be `GET`")),
    (
        request("HEAD / HTTP/1.1"),
        (NOT_ALLOWED, {**TEXT, "content-length": "28"}, ""),
    ),
    (request("GET / HTTP/1.0", UPGRADE), plain("HTTP/1.0 426 Upgrade Required", NO_STATE)),
    (b'{"id":1}\n', empty(BAD)),
    (b"hello\r\n\r\n", empty(BAD)),
    (b"GET / HTTP/1.1\r\nfoo\r\n\r\n", empty(BAD)),
    (request("GET / HTTP/3.0"), empty(BAD)),
    (
        request("GET / HTTP/1.1", {"A": "x" * 900_000}),
        empty("HTTP/1.1 431 Request Header Fields Too Large"),
    ),
    (request("GET / HTTP/1.1", UPGRADE), SWITCHED),
    (request("GET /any/path?x=1 HTTP/1.1", UPGRADE), SWITCHED),
    (request("GET /rpc HTTP/1.1", UPGRADE, {"Authorization": "Bearer unasked"}), SWITCHED),
    (request("GET / HTTP/1.1", {**UPGRADE, "Connection": "keep-alive, UPGRADE"}), SWITCHED),
    (request("GET / HTTP/1.1", {**UPGRADE, "Upgrade": "WebSocket"}), SWITCHED),
    (
        request(
            "GET / HTTP/1.1",
            UPGRADE,
            {"Sec-WebSocket-Protocol": "a", "Sec-WebSocket-Extensions": "permessage-deflate"},
        ),
        SWITCHED,
    ),
]


@pytest.mark.parametrize(("data", "answer"), ROWS, ids=[repr(row[0][:60]) for row in ROWS])
async def test_each_request_gets_the_answer_of_the_reference(data: bytes, answer: Answer) -> None:
    async with running() as port:
        assert read_answer(await exchange(port, data)) == answer


async def test_the_reference_binary_gives_the_same_answers(reference: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        reference,
        *("app-server", "--listen", f"ws://127.0.0.1:{port}"),
        env={"CODEX_HOME": str(tmp_path), "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(30):
            while b"listening on" not in await process.stderr.readline():
                pass
        for data, answer in ROWS:
            assert read_answer(await exchange(port, data)) == answer, data
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (request("GET /readyz HTTP/1.1"), empty(OK)),
        (request("GET / HTTP/1.1"), NO_CONNECTION),
        (
            request("GET /?token=s3cret HTTP/1.1", UPGRADE),
            plain("HTTP/1.1 401 Unauthorized", "missing websocket bearer token"),
        ),
        (
            request("GET / HTTP/1.1", UPGRADE, {"Authorization": "Bearer no"}),
            plain("HTTP/1.1 401 Unauthorized", "invalid websocket bearer token"),
        ),
        (request("GET / HTTP/1.1", UPGRADE, {"authorization": "bearer  s3cret "}), SWITCHED),
        (
            request(
                "GET / HTTP/1.1",
                UPGRADE,
                {"Authorization": "Bearer s3cret", "authorization": "Bearer no"},
            ),
            SWITCHED,
        ),
        (
            request("GET / HTTP/1.1", UPGRADE, {"Authorization": "Bearer s3cret", "Origin": "x"}),
            empty(FORBIDDEN),
        ),
    ],
)
async def test_tokens_are_required_only_at_the_upgrade(
    tmp_path: Path, data: bytes, answer: Answer
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret\n")
    async with running(CapabilityToken.from_file(token_file)) as port:
        assert read_answer(await exchange(port, data)) == answer


async def test_a_request_with_a_body_gets_its_answer() -> None:
    """Ours: unread input must not turn the answer into a connection reset."""
    data = request("POST / HTTP/1.1", {"Content-Length": "300000"}) + b"x" * 300_000
    async with running() as port:
        answer = read_answer(await exchange(port, data))

    assert answer == plain(NOT_ALLOWED, "Request method must be `GET`")


async def test_the_connection_ends_after_an_answer() -> None:
    """Ours: the answer says so; the reference keeps the connection."""
    async with asyncio.timeout(10), running() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("GET /readyz HTTP/1.1"))
        answer = await reader.read()
        writer.close()

    assert b"\r\nconnection: close\r\n" in answer


async def test_a_head_that_never_ends_is_cut_off() -> None:
    async with running(head_timeout=0.01) as port:
        assert await exchange(port, b"GET / HTTP/1.1\r\nHost") == b""


async def test_a_peer_that_disconnects_early_gets_nothing_and_does_no_harm() -> None:
    async with running() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /rea")
        writer.close()
        await writer.wait_closed()

        assert read_answer(await exchange(port, request("GET /readyz HTTP/1.1"))) == empty(OK)


async def test_a_listener_that_others_can_reach_needs_authentication() -> None:
    listener = WebSocketListener("0.0.0.0", 0)  # noqa: S104 - it must be refused

    with pytest.raises(AuthConfigError) as caught:
        await listener.start()

    assert str(caught.value) == (
        "refusing to start non-loopback websocket listener 0.0.0.0:0 without auth; "
        "configure `--ws-auth capability-token` or `--ws-auth signed-bearer-token`"
    )


async def test_a_port_in_use_is_reported_at_the_start() -> None:
    async with running() as port:
        with pytest.raises(OSError, match="in use"):
            await WebSocketListener("127.0.0.1", port).start()


def test_a_length_of_thousands_of_digits_is_only_a_large_one() -> None:
    """Python refuses to convert it, and the connection would end with a traceback in the log."""
    head = f"HTTP/1.1 403 No\r\ncontent-length: {'9' * 6000}\r\n\r\n".encode()

    assert not is_response_ready(head + b"no")
    assert is_response_ready(head + bytes(64 * 1024))
