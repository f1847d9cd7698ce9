"""The egress proxy's SOCKS5 side: the part of RFC 1928 that opens a connection."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Final

from treadle.sandbox.network.hosts import normal
from treadle.sandbox.network.policy import Destination

VERSION: Final = b"\x05"
CONNECTED: Final = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
_CONNECT: Final = 1
_NO_AUTHENTICATION: Final = 0
_IPV4, _NAME, _IPV6 = 1, 3, 4


class UnsupportedSocksRequest(Exception):
    """The program requests something unsupported; `answer` is the reply to it."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("unsupported request")
        self.answer = answer


def refusal(*, is_blocked: bool) -> bytes:
    """Return the reply to a program whose connection failed."""
    return b"\x05" + (b"\x02" if is_blocked else b"\x04") + CONNECTED[2:]


async def read_destination(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Destination:
    """Complete the handshake after the version byte, and return the requested destination.

    Raises:
        NotUnderstood: it requests something other than a connection.
        ValueError: the host is invalid.
        EOFError: it disconnected.
    """
    methods = await reader.readexactly((await reader.readexactly(1))[0])
    if _NO_AUTHENTICATION not in methods:
        raise UnsupportedSocksRequest(b"\x05\xff")
    writer.write(b"\x05\x00")
    _version, command, _, kind = await reader.readexactly(4)
    if kind == _NAME:
        name = await reader.readexactly((await reader.readexactly(1))[0])
        host = name.decode()
    elif kind in (_IPV4, _IPV6):
        host = str(ip_address(await reader.readexactly(4 if kind == _IPV4 else 16)))
    else:
        raise UnsupportedSocksRequest(b"\x05\x08" + CONNECTED[2:])
    port = int.from_bytes(await reader.readexactly(2), "big")
    if command != _CONNECT:
        raise UnsupportedSocksRequest(b"\x05\x07" + CONNECTED[2:])
    return Destination(normal(host), port, "socks5Tcp")
