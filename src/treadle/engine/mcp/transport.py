"""The way to an MCP server: a process of ours, or an address. Knows nothing of threads.

This module imports the MCP SDK, and so is imported only when a server is configured.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from errno import ENOENT, ENOTDIR
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx2
import mcp_types as types
from mcp.client import stdio
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from treadle.engine.mcp.config import BadServer, ServerConfig
from treadle.engine.mcp.server import McpError

CONNECT_SECONDS: Final = 30.0
MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
_TAIL_BYTES: Final = 2048
_SESSION: Final = "mcp-session-id"
GARBLED: Final = "does not fit the protocol"

# Whoever ends a thread or a server waits for this: a server that does not go when its stdin is
# closed is told to, and then made to. The SDK takes two seconds for each.
stdio.PROCESS_TERMINATION_TIMEOUT = 0.5
stdio.FORCE_KILL_TIMEOUT = 1.0

Incoming = SessionMessage | Exception
Streams = tuple[ReadStream[Incoming], WriteStream[SessionMessage]]


class Notes:
    """What was seen on the way that an error of the SDK does not say."""

    def __init__(self) -> None:
        self.needs_login = False
        # The server does not know the session that it was asked in.
        self.is_forgotten = False
        # It wrote something that is no message.
        self.is_garbled = False
        self.stderr = b""

    @property
    def last_words(self) -> str:
        """The end of what the server wrote to its stderr."""
        return self.stderr.decode("utf-8", "replace").strip()


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
    return _over_stdio(config, cwd, environ, notes)


@asynccontextmanager
async def _over_stdio(
    config: ServerConfig, cwd: str, environ: Mapping[str, str], notes: Notes
) -> AsyncIterator[Streams]:
    env = config.environment(environ)
    command, *args = _argv(config, env)
    parameters = stdio.StdioServerParameters(
        command=command,
        args=args,
        env=env,
        cwd=_folder(config, cwd),
        # One line that is no text must not be the end of the session.
        encoding_error_handler="replace",
    )
    async with _listening_to_stderr(notes) as stderr:
        with os.fdopen(stderr, "w") as errlog:
            server = stdio.stdio_client(parameters, errlog=errlog)
            streams = await server.__aenter__()
        # From here on only the server holds the writing end, so the reading end sees it close.
        try:
            yield streams
        except BaseException as error:
            if not await server.__aexit__(type(error), error, error.__traceback__):
                raise
        else:
            await server.__aexit__(None, None, None)


def _argv(config: ServerConfig, env: Mapping[str, str]) -> list[str]:
    command = config.command or ""
    found = shutil.which(command, path=env.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), command)
    # Where the kernel can see to it, a server does not outlive us, even if we are killed.
    guard = shutil.which("setpriv")
    prefix = [guard, "--pdeathsig", "KILL", "--"] if guard else []
    return [*prefix, found, *config.args]


def _folder(config: ServerConfig, cwd: str) -> str:
    folder = config.cwd or cwd
    if not Path(folder).is_dir():
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), folder)
    return folder


@asynccontextmanager
async def _listening_to_stderr(notes: Notes) -> AsyncIterator[int]:
    """Give a descriptor to write to; the end of what is written there is kept."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            data = os.read(reading, 65536)
        except BlockingIOError:
            return
        if data:
            notes.stderr = (notes.stderr + data)[-_TAIL_BYTES:]
        else:
            loop.remove_reader(reading)

    loop.add_reader(reading, read)
    try:
        yield writing
    finally:
        loop.remove_reader(reading)
        os.close(reading)


@asynccontextmanager
async def _over_http(
    config: ServerConfig,
    url: str,
    environ: Mapping[str, str],
    auth: httpx2.Auth | None,
    notes: Notes,
) -> AsyncIterator[Streams]:
    async def look(response: httpx2.Response) -> None:
        notes.needs_login = response.status_code == httpx2.codes.UNAUTHORIZED
        if response.status_code == httpx2.codes.NOT_FOUND and _SESSION in response.request.headers:
            notes.is_forgotten = True

    async with (
        httpx2.AsyncClient(
            headers=config.headers(environ),
            # How long an answer may take is for the caller to say.
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
            auth=auth,
            event_hooks={"response": [look]},
        ) as client,
        streamable_http_client(
            url, http_client=client, max_sse_event_size=MAX_EVENT_BYTES
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


def describe(error: BaseException, config: ServerConfig, notes: Notes) -> str:
    """Why a server could not be reached, in one line for people."""
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
        return f"error sending request for url ({config.url}): {str(error) or type(error).__name__}"
    words = f"handshaking with MCP server failed: {str(error) or type(error).__name__}"
    return f"{words}: {notes.last_words}" if notes.last_words else words
