"""Requests to servers, over connections that are kept for some seconds.

Redirects are not followed, cookies are not kept, responses are not decompressed: a request goes
where its caller sends it, and what arrives is what the server sent.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from treadle.support.http.address import Address, Origin
from treadle.support.http.connection import ClientResponse, HttpConnection
from treadle.support.http.errors import HttpDisconnected, HttpError, UnsendableRequest
from treadle.support.http.proxies import proxy_of

if TYPE_CHECKING:
    from ssl import SSLContext

KEEP_S: Final = 15.0
# RFC 6555 recommends it: the next address of a host is tried after this time.
_NEXT_ADDRESS_S: Final = 0.25
_MAX_TUNNEL_HEAD: Final = 64 * 1024
_ADDRESS: Final = re.compile(r"[0-9.]++|[^:]*+:.*+")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]++")
_SUCCESS: Final = re.compile(rb"HTTP/1\.[01] 2\d\d[ \r]")
_BREAKS: Final = re.compile(r"[\r\n\0]")


# The server, and the proxy on the way to it: connections of a route are interchangeable.
_Route: TypeAlias = tuple[Origin, Address | None]


class ConnectTimeout(HttpError):
    """No connection within the time for it."""


class HttpClient:
    """Sends requests, and keeps connections for the next ones."""

    def __init__(
        self,
        *,
        connect_seconds: float,
        uses_proxies: bool = True,
        context: SSLContext | None = None,
    ) -> None:
        self._connect_seconds = connect_seconds
        self._uses_proxies = uses_proxies
        self._context = context
        # Idle connections and the timers that close them.
        self._kept: dict[_Route, dict[HttpConnection, asyncio.TimerHandle]] = {}
        self._open: set[HttpConnection] = set()

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> ClientResponse:
        """Send a request; return when the head of its response has arrived.

        Raises:
            UnsendableRequest: the URL or a header is invalid.
            HttpError: the server closed the connection, or sent something that is not HTTP.
            OSError: no connection.
        """
        address = Address.parse(url)
        proxy = await proxy_of(address.origin) if self._uses_proxies else None
        # A tunnel is requested once, by the connection; otherwise the proxy reads each request.
        forwarding = None if address.origin.is_secure else proxy
        head = _head(method, address, headers, forwarding, 0 if body is None else len(body))
        route = (address.origin, proxy)
        while True:
            connection = self._take(route)
            is_kept = connection is not None
            if connection is None:
                connection = await self._connect(address.origin, proxy)
            try:
                response = await connection.send(head, body)
            except (HttpDisconnected, ConnectionError):
                # The server closed a kept connection in the meantime, and did not get the request.
                if is_kept and not connection.has_received:
                    continue
                raise
            response.on_complete(partial(self._keep, route, connection))
            return response

    def close(self) -> None:
        """Close all connections."""
        for idle in self._kept.values():
            for timer in idle.values():
                timer.cancel()
        self._kept.clear()
        for connection in list(self._open):
            connection.abort()
        self._open.clear()

    def _take(self, route: _Route) -> HttpConnection | None:
        idle = self._kept.get(route, {})
        while idle:
            connection, timer = idle.popitem()
            timer.cancel()
            if not connection.is_lost:
                return connection
        return None

    def _keep(self, route: _Route, connection: HttpConnection) -> None:
        if not connection.is_lost:
            idle = self._kept.setdefault(route, {})
            loop = asyncio.get_running_loop()
            idle[connection] = loop.call_later(KEEP_S, self._expire, route, connection)

    def _expire(self, route: _Route, connection: HttpConnection) -> None:
        del self._kept[route][connection]
        connection.abort()

    async def _connect(self, origin: Origin, proxy: Address | None) -> HttpConnection:
        context = await self._tls() if origin.is_secure else None
        connection = HttpConnection(self._open.discard)
        try:
            async with asyncio.timeout(self._connect_seconds):
                if proxy is None:
                    transport = await _dial(lambda: connection, origin, context)
                else:
                    outer = await self._tls() if proxy.origin.is_secure else None
                    transport = await _dial_by_proxy(connection, origin, context, proxy, outer)
        except TimeoutError as error:
            connection.abort()
            raise ConnectTimeout(f"no connection within {self._connect_seconds:g} s") from error
        except BaseException:
            connection.abort()
            raise
        _keep_alive(transport)
        self._open.add(connection)
        return connection

    async def _tls(self) -> SSLContext:
        if self._context is None:
            # Off the loop: reading all authorities of a system takes up to 200 ms.
            self._context = await asyncio.to_thread(_default_context)
        return self._context


def _default_context() -> SSLContext:
    import ssl

    return ssl.create_default_context()


async def _dial(
    factory: Callable[[], asyncio.BaseProtocol], origin: Origin, context: SSLContext | None
) -> asyncio.BaseTransport:
    # With a single address there is no race to win, and none to clean up.
    delay = None if _ADDRESS.fullmatch(origin.host) else _NEXT_ADDRESS_S
    transport, _protocol = await asyncio.get_running_loop().create_connection(
        factory, origin.host, origin.port, ssl=context, happy_eyeballs_delay=delay
    )
    return transport


async def _dial_by_proxy(
    connection: HttpConnection,
    origin: Origin,
    context: SSLContext | None,
    proxy: Address,
    outer: SSLContext | None,
) -> asyncio.BaseTransport:
    """Connect to a proxy, and through it to a server whose requests are encrypted."""
    if context is None:
        return await _dial(lambda: connection, proxy.origin, outer)
    loop = asyncio.get_running_loop()
    reply = _TunnelReply(loop.create_future())
    plain = cast("asyncio.Transport", await _dial(lambda: reply, proxy.origin, outer))
    try:
        login = f"Proxy-Authorization: {proxy.login}\r\n" if proxy.login else ""
        netloc = origin.netloc
        plain.write(f"CONNECT {netloc} HTTP/1.1\r\nHost: {netloc}\r\n{login}\r\n".encode())
        await reply.accepted
        transport = await loop.start_tls(plain, connection, context, server_hostname=origin.host)
    except BaseException:
        plain.abort()
        raise
    if transport is None:
        raise HttpDisconnected("the server closed the connection")
    connection.connection_made(transport)
    return transport


class _TunnelReply(asyncio.Protocol):
    """Reads what a proxy answers to `CONNECT`."""

    def __init__(self, accepted: asyncio.Future[None]) -> None:
        self.accepted = accepted
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        status, end, _rest = self._head.partition(b"\r\n\r\n")
        if end and _SUCCESS.match(status) is not None:
            self._settle(None)
        elif end or len(self._head) > _MAX_TUNNEL_HEAD:
            line = status.split(b"\r\n", 1)[0][:200].decode("utf-8", "replace")
            self._settle(HttpError(f"the proxy does not connect: {line}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle(exc or HttpDisconnected("the proxy closed the connection"))

    def _settle(self, error: Exception | None) -> None:
        if self.accepted.done():
            return
        if error is None:
            self.accepted.set_result(None)
        else:
            self.accepted.set_exception(error)


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    # Otherwise a server that disappeared during a long wait stays unnoticed.
    sock = cast("socket.socket | None", transport.get_extra_info("socket"))
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _head(
    method: str,
    address: Address,
    headers: Mapping[str, str],
    proxy: Address | None,
    length: int,
) -> bytes:
    """Return request line and headers.

    Raises:
        UnsendableRequest: a header is invalid, or the URL has a login besides that of the headers.
    """
    fields = {"host": address.origin.header}
    for name, value in headers.items():
        if _TOKEN.fullmatch(name) is None:
            raise UnsendableRequest("invalid name of a header")
        if _BREAKS.search(value) is not None:
            raise UnsendableRequest(f"invalid value of the header {name!r}: it has a line break")
        fields[name.lower()] = value
    if address.login is not None:
        if "authorization" in fields:
            raise UnsendableRequest("the URL has a login, and the headers have another one")
        fields["authorization"] = address.login
    if proxy is not None and proxy.login is not None:
        fields["proxy-authorization"] = proxy.login
    if length or method != "GET":
        fields["content-length"] = str(length)
    target = address.target if proxy is None else address.url
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {fields[name]}" for name in fields)]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")
