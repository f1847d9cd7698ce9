"""The way to an MCP server: a process of ours, or an address. Knows nothing of threads.

This module imports the MCP SDK, and so is imported only when a server is configured.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Final, Self

import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from treadle.engine.mcp.config import BadServer, ServerConfig
from treadle.engine.mcp.connection.http_bodies import UNCOMPRESSED, Bodies
from treadle.engine.mcp.connection.limits import GARBLED, MAX_MESSAGE_BYTES
from treadle.engine.mcp.connection.notes import Notes
from treadle.engine.mcp.connection.requests import learns, words_of
from treadle.engine.mcp.connection.stdio import Incoming, over_stdio
from treadle.engine.mcp.server import McpError
from treadle.support.text.urls import without_secrets

CONNECT_SECONDS: Final = 30.0
_SESSION: Final = "mcp-session-id"
NO_MESSAGE: Final = "the server wrote what is no message of the protocol"

Streams = tuple[ReadStream[Incoming], WriteStream[SessionMessage]]


def open_streams(
    config: ServerConfig,
    *,
    cwd: str,
    environ: Mapping[str, str],
    auth: httpx2.Auth | None,
    notes: Notes,
) -> AbstractAsyncContextManager[Streams]:
    """Connect to a server; the process or the connection ends with the block."""
    if config.url is not None:
        return _over_http(config, config.url, environ, auth, notes)
    return over_stdio(config, cwd, environ, notes)


@asynccontextmanager
async def _over_http(
    config: ServerConfig,
    url: str,
    environ: Mapping[str, str],
    auth: httpx2.Auth | None,
    notes: Notes,
) -> AsyncIterator[Streams]:
    bodies = Bodies()

    async def look(response: httpx2.Response) -> None:
        bodies.bound(response)
        notes.needs_login = response.status_code == httpx2.codes.UNAUTHORIZED
        if response.status_code == httpx2.codes.NOT_FOUND and _SESSION in response.request.headers:
            notes.is_forgotten = True

    headers = config.headers(environ)
    async with (
        httpx2.AsyncClient(
            headers={**UNCOMPRESSED, **headers},
            # How long an answer may take is for the caller to say.
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
            auth=auth,
            # The SDK follows redirects within the origin of `url`, and no others.
            follow_redirects=False,
            event_hooks={"request": [learns(notes.secrets, headers)], "response": [look]},
        ) as client,
        streamable_http_client(
            # More than the limit for a message, which comes first and ends no connection.
            url,
            http_client=client,
            max_sse_event_size=2 * MAX_MESSAGE_BYTES,
        ) as streams,
    ):
        yield streams


class Watched:
    """A stream of messages that says when it has ended: the SDK tells nobody.

    An answer that is none is made an error of the request that it is for: the SDK would let that
    wait until its time is over.
    """

    def __init__(
        self, stream: ReadStream[Incoming], notes: Notes, on_end: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._notes = notes
        self._on_end = on_end

    @property
    def last_context(self) -> object:
        """What the SDK keeps beside a message, on transports that have it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Incoming:
        """The next message."""
        try:
            return self._read(await self._stream.receive())
        except BaseException:
            self._on_end()
            raise

    def _read(self, message: Incoming) -> Incoming:
        if not isinstance(message, Exception):
            return message
        self._notes.is_garbled = True
        request_id = _answered(message)
        if request_id is None:
            return message
        error = types.ErrorData(code=types.INVALID_REQUEST, message=GARBLED)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    async def aclose(self) -> None:
        """Let go of the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Watched:
        return self

    async def __anext__(self) -> Incoming:
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


def _answered(fault: Exception) -> int | str | None:
    """The request that something unreadable seems to answer."""
    seen = fault.errors() if isinstance(fault, ValidationError) else []
    for given in (each["input"] for each in seen):
        if isinstance(given, dict) and "method" not in given and "id" in given:
            id_ = given["id"]
            return id_ if isinstance(id_, int | str) else None
    return None


def briefly(error: BaseException) -> str:
    """What went wrong, in one line: of what does not fit a type, the first place where."""
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else first["msg"]
    return words_of(error).splitlines()[0]


def describe(error: BaseException, config: ServerConfig, notes: Notes) -> str:
    """Say in one line why a server could not be reached, without the secrets of requests."""
    return notes.secrets.redact(_described(error, config, notes))


def _described(error: BaseException, config: ServerConfig, notes: Notes) -> str:
    if notes.needs_login:
        return "not signed in"
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.errno is not None:
        # In the words of the reference, which programs and people know.
        return f"{error.strerror} (os error {error.errno})"
    if isinstance(error, BadServer | McpError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, httpx2.HTTPError):
        url = without_secrets(str(config.url))
        return f"error sending request for url ({url}): {words_of(error)}"
    if notes.is_garbled:
        return f"handshaking with MCP server failed: {NO_MESSAGE}"
    words = f"handshaking with MCP server failed: {briefly(error)}"
    return f"{words}: {notes.last_words}" if notes.last_words else words
