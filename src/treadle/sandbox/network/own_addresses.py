"""Which addresses belong to this machine, according to the kernel's routes."""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import suppress
from errno import EHOSTUNREACH, ENETUNREACH, ENOENT
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

_UNUSED_PORT: Final = 9
_NETLINK_ROUTE, _GET_ROUTE, _REQUEST, _ERROR = 0, 26, 1, 2
_DESTINATION: Final = 1
_LOCAL, _ANYCAST = 2, 4
_HEADER: Final = struct.Struct("=IHHII")
_ROUTE: Final = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
_NO_ROUTE: Final = frozenset({ENETUNREACH, EHOSTUNREACH, ENOENT})
_ANSWER_SECONDS: Final = 2.0


def is_own(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address belongs to this machine, public ones included.

    Nothing is sent. The routing table is checked first: a second address in one subnet is reached
    from the first one.

    Raises:
        OSError: no descriptor is available.
    """
    if sys.platform == "linux":
        with suppress(_NoRoutes):
            return _is_local_route(address)
    return _is_its_own_source(address)


class _NoRoutes(Exception):
    """The kernel returns no routes, as in some containers."""


def _is_local_route(address: IPv4Address | IPv6Address) -> bool:
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    packed = address.packed
    body = _ROUTE.pack(family, len(packed) * 8, 0, 0, 0, 0, 0, 0, 0)
    body += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _DESTINATION) + packed
    head = _HEADER.pack(_HEADER.size + len(body), _GET_ROUTE, _REQUEST, 1, 0)
    line = _open_netlink()
    with line:
        try:
            line.settimeout(_ANSWER_SECONDS)
            line.send(head + body)
            answer = line.recv(4096)
        except OSError as error:
            raise _NoRoutes from error
    if _HEADER.unpack_from(answer)[1] == _ERROR:
        code = -int.from_bytes(answer[_HEADER.size :][:4], sys.byteorder, signed=True)
        if code in _NO_ROUTE:
            return False  # not reachable, so never connected to
        raise _NoRoutes(os.strerror(code))
    kind = _ROUTE.unpack_from(answer, _HEADER.size)[7]
    return kind in (_LOCAL, _ANYCAST)


def _open_netlink() -> socket.socket:
    try:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE)
    except OSError as error:
        from treadle.support.files.descriptors import is_shortage

        if is_shortage(error):
            raise
        raise _NoRoutes from error


def _is_its_own_source(address: IPv4Address | IPv6Address) -> bool:
    """Return whether the address is reached from itself, as most own addresses are."""
    is_v4 = isinstance(address, IPv4Address)
    with socket.socket(socket.AF_INET if is_v4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), _UNUSED_PORT))
        except OSError:
            return False  # not reachable, so never connected to
        return ip_address(probe.getsockname()[0]) == address
