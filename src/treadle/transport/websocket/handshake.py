"""The HTTP handshake before a WebSocket, at both ends; http.py decides about the responses."""

import asyncio
import base64
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct, field

from treadle.transport.accept_loop import Acceptor
from treadle.transport.admission import Admission, ConnectionLimits, Stranger, Visitor
from treadle.transport.base import Admit, Transport, TransportError
from treadle.transport.websocket.connection import Keepalive, WebSocketTransport
from treadle.transport.websocket.frames import GOING_AWAY, NORMAL_CLOSURE, accept_key
from treadle.transport.websocket.http import (
    TOO_MANY,
    Headers,
    HttpRequest,
    HttpResponse,
    MalformedHead,
    encode_upgrade,
    find_head_end,
    is_request_ready,
    is_response_ready,
    parse_request,
    parse_response,
    refuse_peer,
)

HEAD_TIMEOUT: Final = 10.0
_LINGER: Final = 1.0

logger = logging.getLogger(__name__)

Accept = Callable[[Transport], Awaitable[None]]


class UpgradeRefused(TransportError):
    """The server answered the upgrade with another status; `body` is its explanation."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"the server refused the upgrade with {status}: {body!r}")
        self.status = status
        self.body = body


class Refusals:
    """Logs refused peers: the 1st, the 10th, the 100th, so that they cannot flood the log."""

    def __init__(self) -> None:
        self._count = 0

    def note(self, peer: str, reason: str) -> None:
        """Count a refusal."""
        self._count += 1
        is_shown = self._count == 10 ** (len(str(self._count)) - 1)
        extra = {"peer": peer, "reason": reason.strip(), "count": self._count}
        logger.log(logging.WARNING if is_shown else logging.DEBUG, "peer refused", extra=extra)


class Upgrades(Struct, frozen=True):
    """How a listener treats its connections.

    `answer` returns `None` to hang up silently, `refuse` the response to a malformed head.
    """

    answer: Callable[[HttpRequest], HttpResponse | None]
    refuse: Callable[[MalformedHead], HttpResponse | None]
    name_peer: Callable[[asyncio.Transport], str]
    keepalive: Keepalive | None
    head_timeout: float = HEAD_TIMEOUT
    limits: ConnectionLimits | None = None
    admit: Admit | None = None
    refusals: Refusals = field(default_factory=Refusals)


class Handshake(asyncio.Protocol):
    """Collects bytes until `is_ready`, then pauses the connection for its successor."""

    def __init__(self, is_ready: Callable[[bytes], bool]) -> None:
        self.accepted_at = 0.0  # by the monotonic clock, at a listener's end
        self._is_ready = is_ready
        self._data = b""
        self._ready = asyncio.Event()
        self._gone = asyncio.Event()
        self._is_discarding = False
        self.line: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("an upgrade needs a stream")
        self.line = transport

    def data_received(self, data: bytes) -> None:
        if self._is_discarding:
            return
        self._data += data
        if not self._ready.is_set() and self._is_ready(self._data):
            self._ready.set()
            self.line.pause_reading()

    def eof_received(self) -> None:
        self._ready.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._ready.set()
        self._gone.set()

    async def read(self) -> bytes:
        """Return the received bytes once they are ready, or when the peer closed the connection."""
        await self._ready.wait()
        return self._data

    def hand_over(self, successor: WebSocketTransport, rest: bytes) -> None:
        """Pass the connection on to the WebSocket, with the bytes after the head."""
        if self._gone.is_set():
            raise TransportError("the peer closed the connection during the handshake")
        self.line.set_protocol(successor)
        successor.connection_made(self.line)
        if rest:
            successor.data_received(rest)
        self.line.resume_reading()

    async def finish(self, answer: bytes = b"") -> None:
        """Write a last response, wait up to 1 s for the peer to read it, end the connection."""
        self._is_discarding = True
        try:
            if answer and not self.line.is_closing():
                self.line.write(answer)
                # Not close(): with unread input it would reset the connection and lose the answer.
                self.line.write_eof()
                self.line.resume_reading()
                async with asyncio.timeout(_LINGER):
                    await self._gone.wait()
        except OSError:
            pass  # timed out, or the peer has already cut the connection
        finally:
            self.line.abort()
        await self._gone.wait()


async def serve_upgrades(sock: socket.socket, accept: Accept, upgrades: Upgrades) -> None:
    """Accept connections on a listening socket until cancelled, with a task for each."""
    admission = Admission(upgrades.limits) if upgrades.limits is not None else None
    async with asyncio.TaskGroup() as group:

        def take(accepted: socket.socket) -> None:
            visitor = admission.enter(_address(accepted)) if admission else None
            if admission is not None and visitor is None:
                if not admission.begin_refusal():
                    accepted.close()
                    return
                work = _refuse_excess(accepted, admission, upgrades)
            else:
                work = _serve_socket(accepted, accept, upgrades, visitor, time.monotonic())

            def end(_task: asyncio.Task[None]) -> None:
                accepted.close()
                if visitor is not None:
                    visitor.leave()

            # A callback: a task that is cancelled before its first step runs no `finally`.
            group.create_task(work).add_done_callback(end)

        acceptor = Acceptor(sock, take, admission.delay if admission else lambda: 0.0)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            acceptor.close()


async def _serve_socket(
    accepted: socket.socket,
    accept: Accept,
    upgrades: Upgrades,
    visitor: Visitor | None,
    accepted_at: float,
) -> None:
    try:
        handshake = await _adopt(accepted)
        handshake.accepted_at = accepted_at
        transport = await _shake_hands(handshake, upgrades, visitor)
    except (OSError, TransportError) as error:
        logger.debug("connection lost", extra={"reason": str(error)})
        return
    except Exception:  # one peer's failure must not end the others
        logger.exception("handshake failed", extra={"peer": _address(accepted)})
        return
    del handshake  # for as long as the conversation lasts
    if transport is not None:
        await _converse(transport, accept)


async def _refuse_excess(accepted: socket.socket, admission: Admission, upgrades: Upgrades) -> None:
    """Respond that there are too many connections."""
    try:
        handshake = await _adopt(accepted)
        response = upgrades.refuse(MalformedHead("too many connections", TOO_MANY))
        await handshake.finish(b"" if response is None else response.encode(time.time()))
    except OSError as error:
        logger.debug("connection lost", extra={"reason": str(error)})
    finally:
        admission.end_refusal()


async def _adopt(accepted: socket.socket) -> Handshake:
    loop = asyncio.get_running_loop()
    _, handshake = await loop.connect_accepted_socket(lambda: Handshake(is_request_ready), accepted)
    return handshake


def _address(accepted: socket.socket) -> str:
    try:
        name = accepted.getpeername()
    except OSError:  # gone already
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""


async def _shake_hands(
    handshake: Handshake, upgrades: Upgrades, visitor: Visitor | None
) -> WebSocketTransport | None:
    if visitor is not None:
        visitor.on_drop(handshake.line.abort)
    transport = None
    try:
        transport = await _upgrade(handshake, upgrades, visitor)
    finally:
        # Also when cancelled: an open connection must not outlive the listener.
        if handshake.line.get_protocol() is handshake:
            await handshake.finish()
        elif transport is None:
            # Or its descriptor would be closed, and given to the next peer, while it is in use.
            handshake.line.abort()
    return transport


async def _converse(transport: WebSocketTransport, accept: Accept) -> None:
    code = GOING_AWAY
    try:
        await accept(transport)
        code = NORMAL_CLOSURE
    except TransportError as error:
        logger.info("connection lost", extra={"peer": transport.peer, "reason": str(error)})
    except Exception:  # one connection's failure must not end the others
        logger.exception("connection failed", extra={"peer": transport.peer})
    finally:
        await transport.close(code)


async def _upgrade(
    handshake: Handshake, upgrades: Upgrades, visitor: Visitor | None
) -> WebSocketTransport | None:
    """Answer one request; return the WebSocket if it was an upgrade."""
    try:
        async with asyncio.timeout(upgrades.head_timeout):
            data = await handshake.read()
    except TimeoutError:
        return None
    end = find_head_end(data)
    version, method = "1.1", "GET"
    try:
        request = parse_request(data if end < 0 else data[:end])
        version, method = request.version, request.method
        response = upgrades.answer(request)
    except MalformedHead as fault:
        response = upgrades.refuse(fault) if data else None
    if response is not None and response.status == 101:
        response = await _refusal(handshake, upgrades) or response
    if response is None:
        return None
    answer = response.encode(time.time(), version=version, method=method)
    if response.status != 101:
        await handshake.finish(answer)
        return None
    transport = WebSocketTransport(
        upgrades.name_peer(handshake.line),
        is_client=False,
        keepalive=upgrades.keepalive,
        stranger=None if upgrades.limits is None else _stranger(upgrades.limits, visitor),
    )
    handshake.line.write(answer)
    handshake.hand_over(transport, data[end:])
    return transport


def _stranger(limits: ConnectionLimits, visitor: Visitor | None) -> Stranger:
    return Stranger(
        message_bytes=limits.message_bytes,
        seconds=limits.initialize_seconds,
        on_initialize=(lambda: None) if visitor is None else visitor.mark_initialized,
        on_refusal=(lambda _: None) if visitor is None else visitor.log_refusal,
    )


async def _refusal(handshake: Handshake, upgrades: Upgrades) -> HttpResponse | None:
    """Check whether the peer may connect; return the response if it may not."""
    reason = None
    if upgrades.admit is not None:
        line = handshake.line.get_extra_info("socket")
        reason = await upgrades.admit(line, accepted_at=handshake.accepted_at)
    if reason is None:
        return None
    upgrades.refusals.note(upgrades.name_peer(handshake.line), reason)
    return refuse_peer(reason)


async def open_upgrade(
    handshake: Handshake, transport: WebSocketTransport, target: str, host: str, headers: Headers
) -> None:
    """Request a WebSocket on a new client connection, and pass the connection to `transport`.

    Raises:
        UpgradeRefused: the server refused the upgrade.
        TransportError: it closed the connection, or its response is invalid.
    """
    key = base64.b64encode(os.urandom(16)).decode()
    try:
        handshake.line.write(encode_upgrade(target, host, key, headers))
        data = await handshake.read()
        end = find_head_end(data)
        if end < 0:
            raise TransportError("the server closed the connection during the handshake")
        response = parse_response(data[:end])
        if response.status != 101:
            raise UpgradeRefused(response.status, _explanation(data[end:], target, headers))
        if response.header("sec-websocket-accept") != accept_key(key):
            raise TransportError("the server's answer is not a WebSocket handshake")
        handshake.hand_over(transport, data[end:])
    except MalformedHead as fault:
        raise TransportError(f"the server's answer is not HTTP: {fault}") from fault
    finally:
        if handshake.line.get_protocol() is handshake:
            await handshake.finish()


def _explanation(body: bytes, target: str, headers: Headers) -> str:
    """Return what a server sent with its refusal, which may quote the request and its token."""
    from treadle.support.text.secrets import Secrets, secrets_of_headers, secrets_of_url

    found = Secrets([*secrets_of_headers(dict(headers)), *secrets_of_url(f"ws:{target}")])
    return found.redact(body.decode(errors="replace"), is_cut=True)


def client_handshake() -> Handshake:
    return Handshake(is_response_ready)
