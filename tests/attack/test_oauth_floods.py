"""An authorization server that answers too much, or too slowly, fails only its login."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.harness.mcp import settled, table
from tests.harness.threads import Refused, Stage
from treadle.engine.mcp.connection import http_bodies
from treadle.engine.mcp.connection.limits import (
    COMPRESSED,
    MAX_DOCUMENT_BYTES,
    MAX_DOCUMENT_VALUES,
)
from treadle.engine.mcp.tokens import McpLogin, TokenFile
from treadle.protocol.base import JsonValue

MIB = 1024 * 1024
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
REFUSED = (
    b"HTTP/1.1 401 no\r\ncontent-length: 0\r\nconnection: close\r\n"
    b'www-authenticate: Bearer resource_metadata="http://%b/metadata"\r\n\r\n'
)
# A server stops here: a client that reads all of it has no limit.
MOST = 256 * MIB
Send = Callable[[asyncio.StreamWriter], Awaitable[int]]


async def endless(writer: asyncio.StreamWriter) -> int:
    """Send spaces until the client closes the connection; return their number."""
    writer.write(OK + b"\r\n")
    sent = 0
    try:
        while sent < MOST:
            writer.write(b" " * MIB)
            await writer.drain()
            sent += MIB
    except ConnectionError:
        pass
    return sent


def fixed(body: bytes, *headers: bytes) -> Send:
    async def send(writer: asyncio.StreamWriter) -> int:
        more = b"".join(header + b"\r\n" for header in headers)
        writer.write(OK + more + b"content-length: %d\r\n\r\n" % len(body) + body)
        return 0

    return send


async def silent(writer: asyncio.StreamWriter) -> int:
    """Send the beginning of a document."""
    writer.write(OK + b"content-length: 10\r\n\r\n{")
    await writer.drain()
    await asyncio.Event().wait()
    return 0


@asynccontextmanager
async def authorization_server(
    send: Send, *, is_first: bool
) -> AsyncIterator[tuple[str, list[int]]]:
    """Answer every document like this, and if it is the first one also the first request."""
    sent: list[int] = []
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST /mcp") and not is_first:
                host = head.lower().partition(b"\r\nhost:")[2].partition(b"\r\n")[0].strip()
                writer.write(REFUSED % host)
            else:
                sent.append(await send(writer))
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", sent
    finally:
        server.close()
        open_ = [task for task in serving if task is not None and not task.done()]
        for task in open_:
            task.cancel()
        if open_:
            await asyncio.wait(open_)


@pytest.mark.parametrize(
    ("send", "reason"),
    [
        (endless, f"exceeds a limit: it has more than {MAX_DOCUMENT_BYTES} bytes"),
        (fixed(gzip.compress(b" " * MIB), b"content-encoding: gzip"), COMPRESSED),
        (
            fixed(b"[" + b"0," * MAX_DOCUMENT_VALUES + b"0]"),
            f"exceeds a limit: it has more than {MAX_DOCUMENT_VALUES} values",
        ),
        (silent, "exceeds a limit: it took longer than 0.05 s"),
    ],
)
async def test_a_document_over_a_limit_fails_the_login(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, send: Send, reason: str
) -> None:
    if send is silent:
        monkeypatch.setattr(http_bodies, "DOCUMENT_SECONDS", 0.05)
    async with authorization_server(send, is_first=False) as (url, sent):
        stage.configure(table("web", url=url))
        client = await stage.client()
        with pytest.raises(Refused, match="failed to sign in to `web`") as caught:
            await client.request("mcpServer/oauth/login", {"name": "web"})

    assert f"; a document {reason}" in str(caught.value)
    assert max(sent, default=0) < 32 * MIB


async def test_an_endless_first_answer_is_not_read(stage: Stage) -> None:
    async with authorization_server(endless, is_first=True) as (url, sent):
        stage.configure(table("web", url=url))
        client = await stage.client()
        with pytest.raises(Refused, match="No authorization support detected"):
            await client.request("mcpServer/oauth/login", {"name": "web"})

    assert max(sent, default=0) < 32 * MIB


async def renewed_status(stage: Stage, url: str) -> JsonValue:
    """Start a thread with a server whose token has expired; return the status of the server."""
    login = McpLogin(
        access_token="old-token",
        refresh_token="refresh-token",
        expires_at=0.0,
        client={},
        token_endpoint=url.replace("/mcp", "/token"),
    )
    TokenFile(stage.home).set("web", url, login)
    stage.configure(table("web", url=url))
    client = await stage.client()
    await client.start()
    return (await settled(client, "web"))["web"]


async def test_an_endless_token_at_a_renewal_fails_the_request(stage: Stage) -> None:
    async with authorization_server(endless, is_first=False) as (url, sent):
        status = await renewed_status(stage, url)

    assert status["status"] == "failed"
    assert 0 < max(sent, default=0) < 32 * MIB


@pytest.mark.parametrize("life", [b"1" + b"0" * 400, b"-1" + b"0" * 400])
async def test_a_renewed_token_of_any_life_is_stored(stage: Stage, life: bytes) -> None:
    token = b'{"access_token":"new","token_type":"Bearer","expires_in":%b}' % life
    async with authorization_server(fixed(token), is_first=False) as (url, _sent):
        await renewed_status(stage, url)

    login = TokenFile(stage.home).get("web", url)
    assert login is not None
    assert (login.access_token, login.refresh_token) == ("new", "refresh-token")


async def test_a_renewed_token_that_would_fill_the_file_of_all_logins_is_not_stored(
    stage: Stage,
) -> None:
    """Beyond its limit, the file would count as one without logins, and be replaced."""
    token = b'{"access_token":"%b","token_type":"Bearer"}' % (b"x" * 1_000_000)
    TokenFile(stage.home).set("other", "http://a", McpLogin(access_token="t"))
    async with authorization_server(fixed(token), is_first=False) as (url, _sent):
        await renewed_status(stage, url)

    login = TokenFile(stage.home).get("web", url)
    assert login is not None
    assert login.access_token == "old-token"
    assert TokenFile(stage.home).get("other", "http://a") == McpLogin(access_token="t")
