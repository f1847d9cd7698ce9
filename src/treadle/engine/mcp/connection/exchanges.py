"""Ends the HTTP exchange of a request that the caller has given up.

The MCP SDK leaves it open until the session ends, and reads what the server goes on sending: each
call without an answer would cost a connection and processor time.

This module imports the MCP SDK's HTTP library, so it is imported only when a server is configured.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import httpx2
import msgspec

from treadle.support.text.json_members import Id, is_id, naming_members

NOTE_SECONDS: Final = 30.0
"""How long a server may take to accept a message that has no answer; later ones wait for it."""

_CANCELLED: Final = "notifications/cancelled"
_JSON: Final = "application/json"

T = TypeVar("T")


class _Params(msgspec.Struct):
    requestId: int | str | None = None  # noqa: N815 - the name on the wire


class _Cancellation(msgspec.Struct):
    params: _Params = msgspec.field(default_factory=_Params)


class GivenUp(Exception):
    """The exchange has ended."""


class HttpExchange:
    """The HTTP requests of one JSON-RPC message, and their responses."""

    def __init__(self) -> None:
        self.is_over = False
        self._limit: asyncio.Timeout | None = None

    def end(self) -> None:
        """End the current wait, and every later one."""
        self.is_over = True
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(0)

    async def wait_for(self, awaitable: Awaitable[T], seconds: float | None = None) -> T:
        """Wait for something that the server sends.

        Raises:
            GivenUp: the exchange has ended, or the time is over.
        """
        limit = asyncio.timeout(0 if self.is_over else seconds)
        try:
            async with limit:
                self._limit = limit
                return await awaitable
        except TimeoutError:
            if limit.expired():
                raise GivenUp from None
            raise
        finally:
            self._limit = None


# The SDK has one task for each request, which also reads its response and reconnects.
_current: ContextVar[HttpExchange | None] = ContextVar("exchange", default=None)


class ExchangeClient(httpx2.AsyncClient):
    """An HTTP client that ends the exchange of a request when it sends its cancellation."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - those of the library
        super().__init__(**options)
        self._exchanges: WeakValueDictionary[Id, HttpExchange] = WeakValueDictionary()

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401
        """Send a request; one that was given up is answered here."""
        exchange, seconds = _current.get(), None
        if request.method == "POST" and request.headers.get("content-type") == _JSON:
            members = naming_members(request.content)
            id_ = members.get("id")
            if is_id(id_) and "method" in members:
                exchange = self._exchanges[id_] = HttpExchange()
                _current.set(exchange)
            else:
                self._end_cancelled(members, request.content)
                exchange, seconds = HttpExchange(), NOTE_SECONDS
        if exchange is None:
            return await super().send(request, **options)
        try:
            return await exchange.wait_for(super().send(request, **options), seconds)
        except GivenUp:
            return httpx2.Response(httpx2.codes.ACCEPTED, request=request)

    def _end_cancelled(self, members: dict[str, Any], message: bytes) -> None:
        if members.get("method") != _CANCELLED:
            return
        id_ = msgspec.json.decode(message, type=_Cancellation).params.requestId
        exchange = None if id_ is None else self._exchanges.get(id_)
        if exchange is not None:
            exchange.end()


async def until_given_up(parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts of a body, as long as the exchange of the current task has not ended."""
    exchange = _current.get() or HttpExchange()
    iterator = aiter(parts)
    while True:
        try:
            part = await exchange.wait_for(anext(iterator))
        except (StopAsyncIteration, GivenUp):
            return
        yield part
