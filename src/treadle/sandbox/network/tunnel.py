"""Outbound connections: resolves names once, checks addresses, forwards bytes both ways."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias

from treadle.sandbox.network.body import forward_body
from treadle.sandbox.network.hosts import Address, literal
from treadle.sandbox.network.policy import Destination
from treadle.support.concurrency.workers import Workers

CHUNK: Final = 64 * 1024
CONNECT_SECONDS: Final = 20.0
MAX_LOOKUPS: Final = 8
"""How many names are resolved at a time for one command; each lookup takes a thread."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a host to addresses."""

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Resolver:
    """Resolves names for one command: slow name servers delay only that command."""

    def __init__(self) -> None:
        self._workers = Workers("name lookup", MAX_LOOKUPS)

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host.

        Raises:
            OSError: it has none.
        """
        return await self._workers.run(_addresses, host, port)


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def connect(
    destination: Destination, resolve: Resolve, *, check: Callable[[Address], None]
) -> Streams:
    """Connect to a host whose name is allowed.

    The name is resolved once, `check` decides about each address, and only these are used: a
    second lookup could lead elsewhere. One refused address refuses the name.

    Raises:
        Blocked: `check` refused an address.
        OSError: the host cannot be reached.
    """
    host, port, _protocol = destination
    failure = OSError(f"no address for {host}")
    async with asyncio.timeout(CONNECT_SECONDS):
        addresses = await resolve(host, port) if literal(host) is None else [host]
        for address in addresses:
            check(_parsed(address))
        for address in addresses:
            try:
                return await asyncio.open_connection(address, port)
            except OSError as error:
                failure = error
    raise failure


def _parsed(address: str) -> Address:
    """Return an address as the kernel reads it: IPv4 in IPv6 form becomes IPv4."""
    parsed = ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed


async def splice(ours: Streams, theirs: Streams) -> None:
    """Forward bytes until both sides have ended, or one fails."""
    await _exchange(_pump(ours[0], theirs[1]), _pump(theirs[0], ours[1]))


async def exchange(ours: Streams, theirs: Streams, body: int | None) -> None:
    """Forward one body and everything that is answered; see `forward_body`.

    Data after the body could be another request, for a host that was not checked.
    """
    await _exchange(_send(ours[0], theirs[1], body), _pump(theirs[0], ours[1]))


async def _exchange(*directions: Coroutine[None, None, None]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for direction in directions:
                group.create_task(direction)
    except* (OSError, EOFError):
        pass  # one side has closed; the other notices when we close


async def _send(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: int | None
) -> None:
    await forward_body(reader, writer, body)
    while await reader.read(CHUNK):
        pass
    if writer.can_write_eof():
        writer.write_eof()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
