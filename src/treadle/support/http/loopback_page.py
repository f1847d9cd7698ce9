"""A page on the loopback interface to which a browser is sent at the end of a login.

Any program on this machine can request it, and so can any web page in a browser.
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import h11

from treadle.support.http.closing_response import closing_response
from treadle.support.listeners import OWN_LISTENERS

MAX_HEAD: Final = 16 * 1024
HEAD_SECONDS: Final = 10.0
MAX_VISITORS: Final = 32
"""Maximum number of connections at a time; a further one ends the oldest, so that none keeps the
browser away."""

_OF_BROWSERS: Final = frozenset({b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-mode"})
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>{title}</title>"
    "<p>{title}. You can close this window."
)


class PageAnswer(NamedTuple):
    """What the page says; without a title, the browser is sent to a location."""

    status: HTTPStatus
    title: str = ""
    location: str | None = None


Respond: TypeAlias = Callable[[str, str], Awaitable[PageAnswer]]
"""Answers a request, of which it gets the method and the target."""


@asynccontextmanager
async def loopback_page(
    port: int, respond: Respond, *, for_programs: Sequence[str] = ()
) -> AsyncIterator[int]:
    """Serve the page in the block, on this port or on a free one; yields the port.

    The paths `for_programs` do not exist for pages in a browser.

    Raises:
        OSError: the port is in use.
    """
    # The oldest is the first.
    visitors: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(visitors) >= MAX_VISITORS:
            oldest = next(iter(visitors))
            del visitors[oldest]
            oldest.transport.abort()
        visitors[writer] = asyncio.current_task()
        try:
            await _answer(reader, writer, respond, for_programs)
        finally:
            visitors.pop(writer, None)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        number: int = server.sockets[0].getsockname()[1]
        OWN_LISTENERS.add(number)
        try:
            yield number
        finally:
            OWN_LISTENERS.remove(number)
            server.close()
            await _leave(list(visitors.values()))


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    respond: Respond,
    for_programs: Sequence[str],
) -> None:
    """Answer one request, unless the visitor is not a browser or hangs up."""
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            request = await _read_request(reader)
        target = request.target.decode()
        if urlsplit(target).path in for_programs and _is_of_page(request):
            answer = PageAnswer(HTTPStatus.NOT_FOUND, "Page not found")
        else:
            answer = await respond(request.method.decode(), target)
        headers = {"content-type": "text/html", "cache-control": "no-store"}
        if answer.location is not None:
            headers["location"] = answer.location
        body = _PAGE.format(title=html.escape(answer.title)).encode()
        async with asyncio.timeout(HEAD_SECONDS):
            writer.write(closing_response(answer.status, body, headers))
            await writer.drain()
    except (OSError, ValueError, EOFError, h11.ProtocolError):
        pass  # not a browser, a closed connection, or an invalid URL


def _is_of_page(request: h11.Request) -> bool:
    """Return whether a browser makes a request, perhaps for a page of a stranger."""
    return any(name in _OF_BROWSERS for name, _value in request.headers)


async def _leave(visitors: Sequence[asyncio.Task[None] | None]) -> None:
    """Give answers that are being written a moment, then end what is left."""
    open_ = [task for task in visitors if task is not None]
    if open_:
        _done, late = await asyncio.wait(open_, timeout=1.0)
        for task in late:
            task.cancel()


async def _read_request(reader: asyncio.StreamReader) -> h11.Request:
    """Read the head of a request.

    Raises:
        RemoteProtocolError: the head is invalid or too long.
        EOFError: the connection was closed before the end of the head.
    """
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
    while not isinstance(event := connection.next_event(), h11.Request):
        data = await reader.read(MAX_HEAD)
        if not data:
            raise EOFError
        connection.receive_data(data)
    return event
