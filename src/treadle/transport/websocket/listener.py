"""WebSocket over TCP: the listener with its health probes, and the client."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from treadle.jsonrpc.framing import MAX_MESSAGE_BYTES
from treadle.support.listeners import OWN_LISTENERS
from treadle.transport.admission import ConnectionLimits
from treadle.transport.auth import Auth, refuse_open_listener
from treadle.transport.base import Admit, Transport, TransportError
from treadle.transport.websocket.connection import Keepalive, WebSocketTransport
from treadle.transport.websocket.handshake import (
    HEAD_TIMEOUT,
    Accept,
    Handshake,
    UpgradeRefused,
    Upgrades,
    client_handshake,
    open_upgrade,
    serve_upgrades,
)
from treadle.transport.websocket.http import TOO_MANY, HttpResponse, MalformedHead, answer_request

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["Keepalive", "UpgradeRefused", "WebSocketListener", "connect_websocket"]

_BACKLOG = 1024


class WebSocketListener:
    """Listens on an IP address; answers /readyz and /healthz, refuses every Origin."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        auth: Auth | None = None,
        keepalive: Keepalive | None = Keepalive(),  # noqa: B008 - frozen
        head_timeout: float = HEAD_TIMEOUT,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._auth = auth
        self._socket: socket.socket | None = None
        self._own_port: int | None = None
        self._upgrades = Upgrades(
            answer=partial(answer_request, check=auth.check if auth else _admit),
            refuse=_refuse,
            name_peer=_name_peer,
            keepalive=keepalive,
            head_timeout=head_timeout,
            limits=limits,
        )

    @property
    def address(self) -> tuple[str, int]:
        """The listening address, with the actual port."""
        if self._socket is None:
            return self._host, self._port
        host, port, *_ = self._socket.getsockname()
        return str(host), int(port)

    async def start(self) -> None:
        """Bind and listen; peers that connect before serve() wait.

        Raises:
            AuthConfigError: the host is not loopback and there is no authentication.
            OSError: the address is in use or does not belong to this machine.
        """
        refuse_open_listener(self._host, self._port, self._auth)
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.create_server(
            (self._host, self._port), family=family, backlog=_BACKLOG
        )
        self._socket.settimeout(0)
        self._own_port = self.address[1]
        OWN_LISTENERS.add(self._own_port)

    async def serve(self, accept: Accept, *, admit: Admit | None = None) -> None:
        """Run accept(transport) for each admitted connection, until cancelled."""
        if self._socket is None:
            await self.start()
        assert self._socket is not None  # noqa: S101 - start() set it
        try:
            await serve_upgrades(self._socket, accept, replace(self._upgrades, admit=admit))
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening; for a listener that was started and never served."""
        if self._socket is not None:
            self._socket.close()
        if self._own_port is not None:
            OWN_LISTENERS.remove(self._own_port)
            self._own_port = None


async def connect_websocket(
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    ssl: "SSLContext | None" = None,
    open_timeout: float = 10.0,
    keepalive: Keepalive | None = Keepalive(),  # noqa: B008 - frozen
    limit: int = MAX_MESSAGE_BYTES,
) -> Transport:
    """Connect to a ws:// or wss:// URL; `token` goes into the Authorization header.

    A received message may have `limit` bytes.

    Raises:
        UpgradeRefused: the server refused the upgrade.
        TransportError: there is no server, no response in time, or an invalid one.
        ValueError: the URL, the token or a header is malformed.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"ws", "wss"} or not parts.hostname:
        raise ValueError(f"expected ws://HOST:PORT or wss://HOST:PORT, got {url!r}")
    if parts.scheme == "wss" and ssl is None:
        from ssl import create_default_context

        ssl = create_default_context()
    default_port = 443 if parts.scheme == "wss" else 80
    port = default_port if parts.port is None else parts.port
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {name.lower(): value for name, value in (headers or {}).items()}
    if token is not None:
        fields["authorization"] = f"Bearer {token}"
    transport = WebSocketTransport(
        f"{parts.scheme} {parts.hostname}:{port}", is_client=True, keepalive=keepalive, limit=limit
    )
    with connection_errors(transport.peer, open_timeout):
        async with asyncio.timeout(open_timeout):
            handshake = await _dial(parts.hostname, port, ssl if parts.scheme == "wss" else None)
            host = parts.netloc.rpartition("@")[2]
            await open_upgrade(handshake, transport, target, host, tuple(fields.items()))
    return transport


async def _dial(host: str, port: int, ssl: "SSLContext | None") -> Handshake:
    loop = asyncio.get_running_loop()
    _, handshake = await loop.create_connection(client_handshake, host, port, ssl=ssl)
    return handshake


@contextlib.contextmanager
def connection_errors(peer: str, seconds: float) -> Iterator[None]:
    """Convert errors of the operating system to `TransportError`."""
    try:
        yield
    except TimeoutError as error:
        raise TransportError(f"no answer from {peer} within {seconds:g} s") from error
    except OSError as error:
        raise TransportError(f"cannot connect to {peer}: {error.strerror or error}") from error


def _admit(header: str | None) -> str | None:  # noqa: ARG001 - no authentication
    return None


def _refuse(fault: MalformedHead) -> HttpResponse:
    body = b"too many connections" if fault.status == TOO_MANY else b""
    return HttpResponse(fault.status, body=body)


def _name_peer(line: asyncio.Transport) -> str:
    name = line.get_extra_info("peername") or ("?", 0)
    return f"ws {name[0]}:{name[1]}"
