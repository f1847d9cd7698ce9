"""Model providers that misbehave, over real HTTP, as replacements of real ones.

They answer requests of the Responses, Chat Completions and Messages APIs, each in its own format.
`times` is the number of affected requests; later ones get a valid answer, "recovered".

    async with hostile.disconnects(times=1) as provider:
        ...  # a server that uses provider.base_url; provider.config() is a config.toml for it
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

from treadle.testing.dialects import Dialect, dialect_of
from treadle.testing.provider import Provider, ProviderRequest, serve

if TYPE_CHECKING:
    from aiohttp.web import Request, StreamResponse

HALF: Final = "half an answer"
RECOVERED: Final = "recovered"
LONE_SURROGATE: Final = "half \ud83d of a pair"
HUGE_BYTES: Final = 32 * 1024 * 1024

Served: TypeAlias = AbstractAsyncContextManager[Provider]


class Exchange:
    """One request and its response."""

    def __init__(self, request: Request, dialect: Dialect, number: int) -> None:
        self._request = request
        self._response: StreamResponse | None = None
        self._dialect = dialect
        self._number = number

    def begin(self, text: str) -> list[bytes]:
        """Return the events that begin a message with this text, in the format of the API."""
        return self._dialect.begin(text, self._number)

    def end(self, text: str) -> list[bytes]:
        """Return the events that end a message with this text."""
        return self._dialect.end(text, self._number)

    def whole(self, text: str) -> list[bytes]:
        """Return the events of a response with one message."""
        return [*self.begin(text), *self.end(text)]

    def overload(self) -> bytes:
        """Return the event by which the API reports an overload."""
        return self._dialect.overload

    async def start(self) -> StreamResponse:
        """Begin a stream with HTTP 200."""
        from aiohttp.web import StreamResponse

        if self._response is None:
            self._response = StreamResponse(headers={"content-type": "text/event-stream"})
            await self._response.prepare(self._request)
        return self._response

    async def write(self, *pieces: bytes) -> None:
        """Send each piece by itself."""
        response = await self.start()
        for piece in pieces:
            await response.write(piece)
            # Lets the pieces arrive one by one.
            await asyncio.sleep(0)

    async def hang(self) -> None:
        """Keep the connection open and idle until the other side gives up."""
        await asyncio.Event().wait()

    def cut(self) -> None:
        """Close the connection at once."""
        if self._request.transport is not None:
            self._request.transport.close()


Scenario: TypeAlias = Callable[[Exchange], Awaitable["StreamResponse | None"]]


def scenario(play: Scenario, *, times: int | None = None) -> Served:
    """Serve a provider that handles requests with the given function."""
    numbers = count(1)

    async def respond(request: Request, received: ProviderRequest) -> StreamResponse:
        from aiohttp.web import Response

        dialect = dialect_of(received.path)
        if dialect is None:
            return Response(status=404)
        number = next(numbers)
        exchange = Exchange(request, dialect, number)
        if times is not None and number > times:
            await exchange.write(*exchange.whole(RECOVERED))
            return await exchange.start()
        return await play(exchange) or await exchange.start()

    return serve(Provider(respond))


def disconnects(*, times: int | None = None) -> Served:
    """The connection breaks in the middle of the answer."""

    async def play(exchange: Exchange) -> None:
        await exchange.write(*exchange.begin(HALF))
        exchange.cut()

    return scenario(play, times=times)


def ends_early(*, times: int | None = None) -> Served:
    """The HTTP body ends cleanly, but the answer in it is incomplete."""

    async def play(exchange: Exchange) -> None:
        await exchange.write(*exchange.begin(HALF))

    return scenario(play, times=times)


def overloaded(*, times: int | None = None, after_text: bool = False) -> Served:
    """HTTP 200, followed by an event that reports an overload."""

    async def play(exchange: Exchange) -> None:
        before = exchange.begin(HALF) if after_text else []
        await exchange.write(*before, exchange.overload())

    return scenario(play, times=times)


def half_open(*, times: int | None = None, before_head: bool = False) -> Served:
    """The connection stays open without further bytes, from the start or after some text."""

    async def play(exchange: Exchange) -> None:
        if before_head:
            await exchange.hang()
        await exchange.write(*exchange.begin(HALF))
        await exchange.hang()

    return scenario(play, times=times)


def huge_line(size: int = HUGE_BYTES) -> Served:
    """A valid answer whose text is one line of this many bytes."""

    async def play(exchange: Exchange) -> None:
        await exchange.write(*exchange.whole("x" * size))

    return scenario(play)


def lone_surrogates() -> Served:
    """A valid answer with a lone surrogate, which UTF-8 cannot encode."""

    async def play(exchange: Exchange) -> None:
        await exchange.write(*exchange.whole(LONE_SURROGATE))

    return scenario(play)


def rate_limited(
    *,
    times: int | None = None,
    retry_after_s: float | None = None,
    reset: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Served:
    """HTTP 429, optionally with `Retry-After` and the reset time in OpenAI's format (`6m0s`)."""
    response_headers = dict(headers or {})
    if retry_after_s is not None:
        response_headers["retry-after"] = f"{retry_after_s:g}"
    if reset is not None:
        response_headers["x-ratelimit-reset-requests"] = reset
        response_headers["x-ratelimit-remaining-requests"] = "0"
    error = {"type": "rate_limit_error", "message": "Rate limit reached."}
    return refuses(429, {"type": "error", "error": error}, times=times, headers=response_headers)


def refuses(
    status: int,
    body: object = None,
    *,
    times: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Served:
    """A status other than 200; the body is sent as JSON, or unchanged if it is a string."""

    async def play(_exchange: Exchange) -> StreamResponse:
        from aiohttp.web import Response, json_response

        if isinstance(body, str):
            return Response(status=status, text=body, headers=headers)
        return json_response(body, status=status, headers=headers)

    return scenario(play, times=times)


def slow_drip(text: str = "drop by drop", *, delay_s: float = 0.0, size: int = 1) -> Served:
    """A valid answer in pieces of `size` bytes, with a pause after each."""

    async def play(exchange: Exchange) -> None:
        data = b"".join(exchange.whole(text))
        for at in range(0, len(data), size):
            await exchange.write(data[at : at + size])
            await asyncio.sleep(delay_s)

    return scenario(play)


NOISE: Final[Sequence[bytes]] = (
    b": a comment\n\n",
    b"\n\n\n",
    b"retry: 10\n\n",
    b"event: ping\n\n",
    b'event: brand.new\ndata: {"type": "brand.new", "sparkle": true}\n\n',
    b"field without a colon\n\n",
    b"id: 7\r\n\r\n",
)


def noisy(text: str = "in spite of the noise") -> Served:
    """A valid answer among comments, unknown events and odd line ends, all of which are legal."""

    async def play(exchange: Exchange) -> None:
        begin, end = exchange.begin(text), exchange.end(text)
        await exchange.write(*NOISE, *begin, *NOISE, *end)

    return scenario(play)


def garbage(*, times: int | None = None) -> Served:
    """Events with invalid JSON and bytes that are not text, after a valid beginning."""

    async def play(exchange: Exchange) -> None:
        await exchange.write(
            *exchange.begin(HALF),
            b'data: {"type": "response.outp\n\n',
            b"data: <html>502 Bad Gateway</html>\n\n",
            b"data: \xff\xfe\x00\n\n",
            b"\x00\x01\x02",
        )

    return scenario(play, times=times)
