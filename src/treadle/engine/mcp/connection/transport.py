"""Opens the connection to an MCP server, over stdio or HTTP. Independent of threads.

This module imports the MCP SDK, so it is imported only when a server is configured.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Final, Self

import anyio
import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from treadle.engine.mcp.config import BadServer, ServerConfig
from treadle.engine.mcp.connection.exchanges import ExchangeClient
from treadle.engine.mcp.connection.http_bodies import UNCOMPRESSED, Bodies
from treadle.engine.mcp.connection.limits import MALFORMED, MAX_MESSAGE_BYTES, MAX_UNREAD
from treadle.engine.mcp.connection.notes import Notes
from treadle.engine.mcp.connection.requests import error_text, recording_hook
from treadle.engine.mcp.connection.stdio import Incoming, over_stdio
from treadle.engine.mcp.server import McpError
from treadle.sandbox.sandbox import Sandbox
from treadle.support.http.proxies import secrets_of_proxies
from treadle.support.text.urls import without_secrets

CONNECT_SECONDS: Final = 30.0
_SESSION: Final = "mcp-session-id"
NO_MESSAGE: Final = "the server wrote something that is not a protocol message"
NOT_READING: Final = f"it sent requests and left {MAX_UNREAD} answers unread"

Streams = tuple[ReadStream[Incoming], WriteStream[SessionMessage]]


def open_streams(
    config: ServerConfig,
    *,
    sandbox: Sandbox,
    cwd: str,
    environ: Mapping[str, str],
    auth: httpx2.Auth | None,
    notes: Notes,
) -> AbstractAsyncContextManager[Streams]:
    """Connect to a server; the process or the connection ends with the block."""
    if config.url is not None:
        return _over_http(config, config.url, environ, auth, notes)
    return over_stdio(sandbox, config, cwd, environ, notes)


@asynccontextmanager
async def _over_http(
    config: ServerConfig,
    url: str,
    environ: Mapping[str, str],
    auth: httpx2.Auth | None,
    notes: Notes,
) -> AsyncIterator[Streams]:
    bodies = Bodies()

    async def check(response: httpx2.Response) -> None:
        bodies.bound(response)
        notes.needs_login = response.status_code == httpx2.codes.UNAUTHORIZED
        if response.status_code == httpx2.codes.NOT_FOUND and _SESSION in response.request.headers:
            notes.is_lost_session = True

    headers = config.headers(environ)
    notes.secrets.add(secrets_of_proxies())
    async with (
        ExchangeClient(
            headers={**UNCOMPRESSED, **headers},
            # The caller limits the time of a response.
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
            auth=auth,
            # The SDK follows redirects within the origin of `url` only.
            follow_redirects=False,
            event_hooks={"request": [recording_hook(notes.secrets, headers)], "response": [check]},
        ) as client,
        streamable_http_client(
            # Larger than the limit for a message, which applies first and keeps the connection.
            url,
            http_client=client,
            max_sse_event_size=2 * MAX_MESSAGE_BYTES,
        ) as streams,
    ):
        yield streams


class OutgoingStream:
    """A stream of messages to a server that counts the messages waiting to be read.

    The SDK starts a task for each request of a server, so a server that sends requests and does not
    read the answers would fill the memory.
    """

    def __init__(self, stream: WriteStream[SessionMessage]) -> None:
        self.is_overrun = False
        self._stream = stream
        self._waiting = 0

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message, unless the stream is overrun: then the session is about to end."""
        self.is_overrun = self.is_overrun or self._waiting >= MAX_UNREAD
        if self.is_overrun:
            return
        self._waiting += 1
        try:
            await self._stream.send(item)
        finally:
            self._waiting -= 1

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, traceback)


class WatchedStream:
    """A stream of messages that reports its end, which the SDK does not.

    A malformed answer becomes an error for its request, which the SDK would let time out. The
    stream ends when the answers to the server's own requests pile up in `outgoing`.
    """

    def __init__(
        self,
        stream: ReadStream[Incoming],
        outgoing: OutgoingStream,
        notes: Notes,
        on_end: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._outgoing = outgoing
        self._notes = notes
        self._on_end = on_end

    @property
    def last_context(self) -> object:
        """The SDK's context of a message, on transports that have one."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Incoming:
        """The next message."""
        if self._is_overrun():
            raise anyio.EndOfStream
        try:
            return self._read(await self._stream.receive())
        except BaseException:
            self._on_end()
            raise

    def _read(self, message: Incoming) -> Incoming:
        if not isinstance(message, Exception):
            return message
        self._notes.set_malformed()
        request_id = _request_id(message)
        if request_id is None:
            return message
        error = types.ErrorData(code=types.INVALID_REQUEST, message=MALFORMED)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> WatchedStream:
        return self

    def _is_overrun(self) -> bool:
        if self._outgoing.is_overrun:
            self._notes.set_not_reading()
            self._on_end()
        return self._outgoing.is_overrun

    async def __anext__(self) -> Incoming:
        if self._is_overrun():
            raise StopAsyncIteration
        try:
            return self._read(await self._stream.__anext__())
        except BaseException:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, traceback)


def _request_id(error: Exception) -> int | str | None:
    """The request that a malformed message seems to answer."""
    details = error.errors() if isinstance(error, ValidationError) else []
    for value in (each["input"] for each in details):
        if isinstance(value, dict) and "method" not in value and "id" in value:
            id_ = value["id"]
            return id_ if isinstance(id_, int | str) else None
    return None


def summarize(error: BaseException) -> str:
    """An error in one line; of a validation error, the first mismatch."""
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else first["msg"]
    return error_text(error).splitlines()[0]


def describe(error: BaseException, config: ServerConfig, notes: Notes) -> str:
    """Describe in one line why a server failed, without the secrets of requests."""
    return notes.secrets.redact(_described(error, config, notes))


def _described(error: BaseException, config: ServerConfig, notes: Notes) -> str:
    if notes.needs_login:
        return "not signed in"
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.errno is not None:
        # The format of the reference, which programs and users know.
        return f"{error.strerror} (os error {error.errno})"
    if isinstance(error, BadServer | McpError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, httpx2.HTTPError):
        url = without_secrets(str(config.url))
        return f"error sending request for url ({url}): {error_text(error)}"
    if notes.is_not_reading:
        return NOT_READING
    if notes.is_malformed:
        return f"handshaking with MCP server failed: {NO_MESSAGE}"
    text = f"handshaking with MCP server failed: {summarize(error)}"
    return f"{text}: {notes.stderr_tail}" if notes.stderr_tail else text
