"""Bodies of HTTP answers, bounded before the MCP SDK reads them.

The SDK reads a JSON body of any size and decompresses it first. Here each message is checked as it
arrives; one beyond a limit is replaced by an error of the request that it answers.

This module imports the MCP SDK's HTTP library, and so is imported only when a server is configured.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import httpx2

from treadle.engine.mcp.connection.limits import (
    BEYOND,
    COMPRESSED,
    LONG_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_WORKERS,
    TOO_LONG,
    error_answer,
    fault_of,
    refusal,
)
from treadle.support.concurrency.workers import Workers
from treadle.support.text.json_members import HEAD_BYTES, Id, is_id, naming_members

MAX_EVENT_LINES: Final = 10_000
"""How many lines one event may have: the SDK reads them one by one."""

_TOO_MANY_LINES: Final = f"{BEYOND}: its event has more than {MAX_EVENT_LINES} lines"
UNCOMPRESSED: Final = {"accept-encoding": "identity"}
_ENCODING: Final = "content-encoding"
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"


class Bodies:
    """Bounds the bodies of all answers of one server."""

    def __init__(self) -> None:
        self._workers = Workers("mcp message", MAX_WORKERS)

    def bound(self, response: httpx2.Response) -> None:
        """Bound the body of an answer, of which only the head has been read."""
        inner = response.stream
        if not isinstance(inner, httpx2.AsyncByteStream):
            return
        request_id = _request_id(response.request)
        encoding = response.headers.get(_ENCODING, "identity").strip().lower()
        kind = response.headers.get("content-type", "").lower()
        if encoding not in ("identity", ""):
            del response.headers[_ENCODING]
            response.headers["content-type"] = _JSON
            response.stream = _Refused(inner, request_id)
        elif kind.startswith(_EVENTS):
            response.stream = _Events(inner, request_id, self._workers)
        else:
            response.stream = _Whole(inner, request_id, self._workers)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, request_id: Id | None) -> None:
        self._inner = inner
        self._request_id = request_id

    async def aclose(self) -> None:
        """Close the connection that the body comes from."""
        await self._inner.aclose()

    def _error(self, reason: str) -> bytes:
        return b"" if self._request_id is None else error_answer(reason, self._request_id)


class _Refused(_Bounded):
    """Stands for a body that is not read."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._error(COMPRESSED)


class _Checked(_Bounded):
    def __init__(
        self, inner: httpx2.AsyncByteStream, request_id: Id | None, workers: Workers
    ) -> None:
        super().__init__(inner, request_id)
        self._workers = workers

    async def _fault(self, message: bytes) -> str | None:
        if len(message) > LONG_MESSAGE_BYTES:
            return await self._workers.run(fault_of, message)
        return fault_of(message)


class _Whole(_Checked):
    """A body that is one message."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = bytearray()
        async for chunk in self._inner:
            parts += chunk
            if len(parts) > MAX_MESSAGE_BYTES:
                yield self._error(TOO_LONG)
                return
        message = bytes(parts)
        fault = await self._fault(message)
        yield message if fault is None else self._error(fault)


class _Events(_Checked):
    """A body that is a stream of events, each of which is a message."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pending, searched, is_skipping = bytearray(), 0, False
        held = b""
        async for chunk in self._inner:
            # Events end with an empty line; a CR at the end may be half of a line break.
            text = (held + chunk).replace(b"\r\n", b"\n")
            held = b"\r" if text.endswith(b"\r") else b""
            pending += text.removesuffix(held).replace(b"\r", b"\n")
            while (end := pending.find(b"\n\n", max(0, searched - 1))) >= 0:
                event = bytes(memoryview(pending)[: end + 2])
                del pending[: end + 2]
                searched = 0
                if not is_skipping:
                    yield await self._passed(event)
                is_skipping = False
            searched = len(pending)
            if searched > MAX_MESSAGE_BYTES and not is_skipping:
                is_skipping = True
                yield self._replaced(TOO_LONG, _data_of(bytes(pending[:HEAD_BYTES])))
            if is_skipping:
                # Keeps what an empty line may begin with.
                del pending[:-1]
                searched = len(pending)
        if pending and not is_skipping:
            yield await self._passed(bytes(pending))

    async def _passed(self, event: bytes) -> bytes:
        if event.count(b"\n") > MAX_EVENT_LINES:
            return self._replaced(_TOO_MANY_LINES, _data_of(event[:HEAD_BYTES]))
        data = _data_of(event)
        fault = await self._fault(data)
        return event if fault is None else self._replaced(fault, data)

    def _replaced(self, fault: str, data: bytes) -> bytes:
        error = refusal(fault, data, self._request_id)
        return b"" if error is None else b"data: " + error + b"\n\n"


def _data_of(event: bytes) -> bytes:
    lines = event.split(b"\n")
    return b"\n".join(line[5:].lstrip(b" ") for line in lines if line.startswith(b"data:"))


def _request_id(request: httpx2.Request) -> Id | None:
    """Find the request that an answer belongs to; there is none if it was not a JSON-RPC one."""
    if request.method != "POST" or not request.headers.get("content-type", "").startswith(_JSON):
        return None
    found = naming_members(request.content)
    named = found.get("id")
    return named if is_id(named) and "method" in found else None
