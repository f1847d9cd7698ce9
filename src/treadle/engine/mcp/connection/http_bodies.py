"""Limits the bodies of HTTP responses before the MCP SDK reads them.

The SDK decompresses and reads JSON bodies of any size. Here each message is checked as it arrives;
a message over a limit is replaced by an error for the request that it answers. A document of an
authorization server has lower limits, and a time; one over a limit is replaced by nothing.

This module imports the MCP SDK's HTTP library, so it is imported only when a server is configured.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Final

import httpx2

from treadle.engine.mcp.connection.exchanges import until_given_up
from treadle.engine.mcp.connection.limits import (
    COMPRESSED,
    DOCUMENT_SECONDS,
    LONG_MESSAGE_BYTES,
    MAX_DOCUMENT_BYTES,
    MAX_DOCUMENT_VALUES,
    MAX_MESSAGE_BYTES,
    MAX_WORKERS,
    OVER_LIMIT,
    TOO_LONG,
    error_answer,
    error_for,
    limit_error,
)
from treadle.support.concurrency.workers import Workers
from treadle.support.text.json_members import HEAD_BYTES, Id, is_id, naming_members

MAX_EVENT_LINES: Final = 10_000
"""The most lines of one event: the SDK reads them one by one."""

MIN_RETRY_MS: Final = 1000
"""The shortest wait before the SDK reconnects: with 0 it would do nothing else."""

PARTS_PER_SLICE: Final = 64
"""After this many chunks or events, other tasks run: 64 KiB contain thousands, all read at once."""

_RETRY: Final = re.compile(rb"^retry:[^\n]*", re.MULTILINE)
_TOO_MANY_LINES: Final = f"{OVER_LIMIT}: its event has more than {MAX_EVENT_LINES} lines"
UNCOMPRESSED: Final = {"accept-encoding": "identity"}
_ENCODING: Final = "content-encoding"
# Marks a request for a document of an authorization server, on a client that also has messages.
AS_DOCUMENT: Final = "treadle_document"
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"


class Bodies:
    """Limits the bodies of all responses of one server."""

    def __init__(self) -> None:
        self._workers = Workers("mcp message", MAX_WORKERS)

    def bound(self, response: httpx2.Response) -> None:
        """Limit the body of a response that has not been read yet."""
        inner = response.stream
        if AS_DOCUMENT in response.request.extensions:
            bound_document(response)
            return
        if not isinstance(inner, httpx2.AsyncByteStream):
            return
        request_id = _request_id(response.request)
        kind = response.headers.get("content-type", "").lower()
        if _is_compressed(response):
            del response.headers[_ENCODING]
            response.headers["content-type"] = _JSON
            response.stream = _Refused(inner, request_id)
        elif kind.startswith(_EVENTS):
            response.stream = _Events(inner, request_id, self._workers)
        else:
            response.stream = _Whole(inner, request_id, self._workers)


def bound_document(
    response: httpx2.Response, on_refused: Callable[[str], None] = lambda _reason: None
) -> None:
    """Limit the body of a response that is a document of an authorization server."""
    inner = response.stream
    if not isinstance(inner, httpx2.AsyncByteStream):
        return
    is_compressed = _is_compressed(response)
    if is_compressed:
        del response.headers[_ENCODING]
    response.stream = _Document(inner, on_refused, is_compressed=is_compressed)


def document_timeouts(request: httpx2.Request) -> None:
    """Limit the waits of a request: those that authentication creates have none."""
    waits = httpx2.Timeout(DOCUMENT_SECONDS).as_dict()
    request.extensions = {**request.extensions, "timeout": waits}


def _is_compressed(response: httpx2.Response) -> bool:
    encoding = response.headers.get(_ENCODING, "identity").strip().lower()
    return encoding not in ("identity", "")


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, request_id: Id | None) -> None:
        self._inner = inner
        self._request_id = request_id

    async def aclose(self) -> None:
        """Close the underlying stream."""
        await self._inner.aclose()

    def _error(self, reason: str) -> bytes:
        return b"" if self._request_id is None else error_answer(reason, self._request_id)


class _Refused(_Bounded):
    """Replaces a body that is not read."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._error(COMPRESSED)


class _Document(httpx2.AsyncByteStream):
    """A document of an authorization server; empty if it exceeds a limit."""

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        on_refused: Callable[[str], None],
        *,
        is_compressed: bool,
    ) -> None:
        self._inner = inner
        self._on_refused = on_refused
        self._is_compressed = is_compressed

    async def aclose(self) -> None:
        """Close the underlying stream."""
        await self._inner.aclose()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        document = bytearray()
        reason = COMPRESSED if self._is_compressed else await self._read_into(document)
        if reason is None:
            yield bytes(document)
        else:
            self._on_refused(reason)

    async def _read_into(self, document: bytearray) -> str | None:
        """Read the document; return why it is not used, if there is a reason."""
        try:
            async with asyncio.timeout(DOCUMENT_SECONDS):
                async for chunk in _paced(self._inner):
                    document += chunk
                    if len(document) > MAX_DOCUMENT_BYTES:
                        return f"{OVER_LIMIT}: it has more than {MAX_DOCUMENT_BYTES} bytes"
        except TimeoutError:
            return f"{OVER_LIMIT}: it took longer than {DOCUMENT_SECONDS:g} s"
        return limit_error(bytes(document), MAX_DOCUMENT_VALUES)


async def _paced(parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts with pauses, in which other tasks run."""
    count = 0
    async for part in parts:
        count += 1
        if not count % PARTS_PER_SLICE:
            await asyncio.sleep(0)
        yield part


class _Checked(_Bounded):
    def __init__(
        self, inner: httpx2.AsyncByteStream, request_id: Id | None, workers: Workers
    ) -> None:
        super().__init__(inner, request_id)
        self._workers = workers

    async def _limit_error(self, message: bytes) -> str | None:
        if len(message) > LONG_MESSAGE_BYTES:
            return await self._workers.run(limit_error, message)
        return limit_error(message)


class _Whole(_Checked):
    """A body with one message."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = bytearray()
        async for chunk in _paced(until_given_up(self._inner)):
            parts += chunk
            if len(parts) > MAX_MESSAGE_BYTES:
                yield self._error(TOO_LONG)
                return
        message = bytes(parts)
        reason = await self._limit_error(message)
        yield message if reason is None else self._error(reason)


class _Events(_Checked):
    """A body with a stream of events, each with one message."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in _paced(self._events()):
            yield event

    async def _events(self) -> AsyncIterator[bytes]:
        pending, searched, is_skipping = bytearray(), 0, False
        held = b""
        async for chunk in _paced(until_given_up(self._inner)):
            # Events end with an empty line; a CR at the end may be half of a line break.
            text = (held + chunk).replace(b"\r\n", b"\n")
            held = b"\r" if text.endswith(b"\r") else b""
            pending += text.removesuffix(held).replace(b"\r", b"\n")
            while (end := pending.find(b"\n\n", max(0, searched - 1))) >= 0:
                event = bytes(memoryview(pending)[: end + 2])
                del pending[: end + 2]
                searched = 0
                if not is_skipping:
                    yield await self._checked(event)
                is_skipping = False
            searched = len(pending)
            if searched > MAX_MESSAGE_BYTES and not is_skipping:
                is_skipping = True
                yield self._error_event(TOO_LONG, _data_of(bytes(pending[:HEAD_BYTES])))
            if is_skipping:
                # Keep a line break that may start an empty line.
                del pending[:-1]
                searched = len(pending)
        if pending and not is_skipping:
            yield await self._checked(bytes(pending))

    async def _checked(self, event: bytes) -> bytes:
        if event.count(b"\n") > MAX_EVENT_LINES:
            return self._error_event(_TOO_MANY_LINES, _data_of(event[:HEAD_BYTES]))
        if b"retry:" in event:
            event = _RETRY.sub(_patient, event)
        data = _data_of(event)
        reason = await self._limit_error(data)
        return event if reason is None else self._error_event(reason, data)

    def _error_event(self, reason: str, data: bytes) -> bytes:
        error = error_for(reason, data, self._request_id)
        return b"" if error is None else b"data: " + error + b"\n\n"


def _patient(line: re.Match[bytes]) -> bytes:
    """Return a `retry` line with at least the shortest wait."""
    wait = line[0].removeprefix(b"retry:").strip()
    # A number with many digits takes long to read, and exceeds any sensible wait.
    is_short = not wait.isdigit() or len(wait) > 9 or int(wait) < MIN_RETRY_MS
    return b"retry: %d" % MIN_RETRY_MS if is_short else line[0]


def _data_of(event: bytes) -> bytes:
    lines = event.split(b"\n")
    return b"\n".join(line[5:].lstrip(b" ") for line in lines if line.startswith(b"data:"))


def _request_id(request: httpx2.Request) -> Id | None:
    """The id of the JSON-RPC request in an HTTP request, if there is one."""
    if request.method != "POST" or not request.headers.get("content-type", "").startswith(_JSON):
        return None
    members = naming_members(request.content)
    id_ = members.get("id")
    return id_ if is_id(id_) and "method" in members else None
