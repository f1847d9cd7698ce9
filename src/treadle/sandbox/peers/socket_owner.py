"""Finds the socket at the other end of a TCP connection on this machine.

For a unix socket, the kernel returns the process at the other end. For a TCP socket it returns the
user and the inode, by which the socket can be found among the descriptors of a process.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from errno import ENOENT
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.sandbox.network.hosts import Address

_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
_ESTABLISHED, _CLOSE_WAIT = 1, 8
_ANY_STATE, _NO_COOKIE = 0xFFFFFFFF, b"\xff" * 8
_HEADER: Final = struct.Struct("=IHHII")
_QUESTION: Final = struct.Struct("=BBBxI4s16s16sI8s")
_ANSWER: Final = struct.Struct("=BBBB4s16s16sI8sIIIII")
_ANSWER_SECONDS: Final = 2.0


class TcpEndpoint(Struct, frozen=True):
    """One end of a TCP connection."""

    address: Address
    port: int


class RemoteSocket(Struct, frozen=True):
    """The socket at the other end: its user, and its inode, which is 0 after a close."""

    user: int
    inode: int


def find_socket(theirs: TcpEndpoint, ours: TcpEndpoint) -> RemoteSocket | None:
    """Return the socket in our network that is connected to ours, or `None`.

    Raises:
        OSError: neither the kernel's diagnostics nor /proc is available.
    """
    try:
        return ask_kernel(theirs, ours)
    except OSError:
        # Some containers have no socket diagnostics.
        return read_tables(theirs, ours)


def ask_kernel(theirs: TcpEndpoint, ours: TcpEndpoint) -> RemoteSocket | None:
    """Find a socket with the kernel's diagnostics, whose cost does not depend on their number.

    Raises:
        OSError: there are no diagnostics.
    """
    family = socket.AF_INET if isinstance(theirs.address, IPv4Address) else socket.AF_INET6
    ports = struct.pack("!HH", theirs.port, ours.port)
    ends = (end.address.packed.ljust(16, b"\0") for end in (theirs, ours))
    body = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, _ANY_STATE, ports, *ends, 0, _NO_COOKIE)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as line:
        line.settimeout(_ANSWER_SECONDS)
        line.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        answer = line.recv(4096)
    kind = _HEADER.unpack_from(answer)[1]
    if kind == _ERROR:
        code = -int.from_bytes(answer[_HEADER.size :][:4], sys.byteorder, signed=True)
        if code == ENOENT:
            return None
        raise OSError(code, os.strerror(code))
    _family, state, _timer, _tries, found, *rest = _ANSWER.unpack_from(answer, _HEADER.size)
    # Without a connection, the kernel returns a listener at that end.
    is_connected = state in (_ESTABLISHED, _CLOSE_WAIT) and found == ports
    return RemoteSocket(user=rest[-2], inode=rest[-1]) if is_connected else None


def read_tables(theirs: TcpEndpoint, ours: TcpEndpoint) -> RemoteSocket | None:
    """Find a socket in the tables of all sockets."""
    wanted = {
        (f"{here}:{theirs.port:04X}", f"{there}:{ours.port:04X}")
        for here, there in zip(_forms(theirs.address), _forms(ours.address), strict=True)
    }
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError), Path("/proc/net", name).open(encoding="ascii") as table:
            for fields in map(str.split, table):
                if (fields[1], fields[2]) in wanted:
                    return RemoteSocket(user=int(fields[7]), inode=int(fields[9]))
    return None


def _forms(address: Address) -> Iterator[str]:
    """Yield an address in the form of the kernel's tables; IPv6 sockets may reach IPv4 ends."""
    packed = [address.packed]
    if isinstance(address, IPv4Address):
        packed.append(IPv6Address(f"::ffff:{address}").packed)
    for form in packed:
        yield "".join(f"{word:08X}" for (word,) in struct.iter_unpack("=I", form))
