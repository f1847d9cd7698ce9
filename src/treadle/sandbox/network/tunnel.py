"""Connections to the outside: names looked up once, addresses judged, bytes moved both ways."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Final, TypeAlias

from treadle.sandbox.network.hosts import is_local, is_local_name
from treadle.sandbox.network.policy import Blocked, Destination

CHUNK: Final = 64 * 1024
CONNECT_SECONDS: Final = 20.0

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Gives the addresses of a host."""

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def resolve(host: str, port: int) -> list[str]:
    """The addresses that the system knows for a host.

    Raises:
        OSError: it knows none.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def connect(destination: Destination, resolve: Resolve, *, allows_local: bool) -> Streams:
    """Connect to a host that was judged by its name.

    The name is looked up once, and what it leads to is what is connected to: a second answer
    cannot lead elsewhere than the first, which was looked at.

    Raises:
        Blocked: it leads to an address that is not public.
        OSError: it cannot be reached.
    """
    host, port, _protocol = destination
    failure = OSError(f"no address for {host}")
    async with asyncio.timeout(CONNECT_SECONDS):
        addresses = await resolve(host, port)
        # A host that is local by its spelling was judged as such.
        if not allows_local and not is_local_name(host):
            addresses = [each for each in addresses if not is_local(ip_address(each))]
            if not addresses:
                raise Blocked("not_allowed_local")
        for address in addresses:
            try:
                return await asyncio.open_connection(address, port)
            except OSError as error:
                failure = error
    raise failure


async def splice(ours: Streams, theirs: Streams, *, answers_only: bool = False) -> None:
    """Move bytes until both sides have ended, or one breaks."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_pump(theirs[0], ours[1]))
            if not answers_only:
                group.create_task(_pump(ours[0], theirs[1]))
    except* OSError:
        pass  # one has hung up, which the other notices when we do


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
