"""Distinguishes clients from the server's own sandboxed commands, which must not control it.

A command whose policy allows the network shares the network of this machine, so it reaches the
sockets on which the server listens. What a command starts can hide from its parent but cannot
remove its restrictions: `NoNewPrivs` and the seccomp filter are inherited. A process that has them
and descends from the supervisor is a sandboxed command.

A connection is accepted if its owner is known to be something else. An owner that cannot be
determined is refused if a command could have opened the connection: one is running, or ran until
shortly before the connection was accepted. Before the first such command, nothing is checked.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import struct
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, Literal

from treadle.sandbox.peers.commands import NetworkedCommands
from treadle.sandbox.peers.proc import ProcessEntry, parent, processes
from treadle.support.concurrency.workers import Workers

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

    from treadle.sandbox.peers.socket_owner import TcpEndpoint

REFUSED: Final = "a sandboxed command cannot connect to the server that runs it\n"
GONE: Final = "the process that opened this connection has ended\n"
UNKNOWN: Final = (
    "cannot distinguish this client from a sandboxed command with network access; "
    "connect over the unix socket, or after the command has ended\n"
)

MAX_LOOKS: Final = 4
"""How many peers are checked at once; more of them wait."""

Owner = Literal["client", "command", "gone", "unknown"]

_REASONS: Final[dict[Owner, str]] = {"command": REFUSED, "gone": GONE, "unknown": UNKNOWN}
_SO_PEERPIDFD: Final = 77
_CREDENTIALS: Final = struct.Struct("=iII")
_MOST_ANCESTORS: Final = 1_000


class PeerCheck:
    """Checks the peers of the listeners of one server."""

    def __init__(self, commands: NetworkedCommands) -> None:
        self._commands = commands
        self._workers = Workers("peers", MAX_LOOKS)
        self._search = OwnerSearch(commands)

    async def refusal(self, line: TransportSocket, *, accepted_at: float) -> str | None:
        """Return why a peer is refused, or `None`.

        A token makes no difference: commands can read what their user can read.
        """
        if not self._commands.have_run:
            return None
        try:
            owner = await self._owner(line)
        except OSError:
            return UNKNOWN  # no descriptor is available, or /proc is unusual
        # Last, so that commands that ran during the lookup count too.
        if owner == "unknown" and not self._commands.can_have_opened(accepted_at):
            return None
        return _REASONS.get(owner)

    async def _owner(self, line: TransportSocket) -> Owner:
        if line.family == socket.AF_UNIX:
            return await self._workers.run(_unix_owner, line, self._commands)
        from treadle.sandbox.network.own_addresses import is_own
        from treadle.sandbox.peers.socket_owner import find_socket

        try:
            theirs, ours = _endpoint(line.getpeername()), _endpoint(line.getsockname())
        except OSError:
            return "gone"
        if not theirs.address.is_loopback and not is_own(theirs.address):
            return "client"  # on another machine
        found = await self._workers.run(find_socket, theirs, ours)
        # First: in the kernel's tables, the user of a closed socket is root.
        if found is None or not found.inode:
            return "gone"  # its data is still unread
        if found.user != os.geteuid():
            return "client"  # commands run as the user of the server
        owner = await self._search.owner(found.inode)
        if owner == "unknown" and await self._workers.run(find_socket, theirs, ours) != found:
            return "gone"  # its owner ended before the lookup
        return owner


class OwnerSearch:
    """Finds the owners of sockets: one scan of all processes serves all waiting callers."""

    def __init__(self, commands: NetworkedCommands) -> None:
        self._commands = commands
        # One scan at a time: commands can start many processes.
        self._workers = Workers("owners", 1)
        self._wanted: set[int] = set()
        self._found: dict[int, Owner] = {}
        self._turn = asyncio.Lock()

    async def owner(self, inode: int) -> Owner:
        """Return the owner of a socket, "unknown" if no visible process has it open.

        Raises:
            OSError: no descriptor is available.
        """
        self._wanted.add(inode)
        try:
            async with self._turn:
                if inode not in self._found:
                    self._wanted.add(inode)
                    await self._look()
                return self._found[inode]
        finally:
            self._wanted.discard(inode)
            self._found.pop(inode, None)

    async def _look(self) -> None:
        batch = frozenset(self._wanted)
        found = await self._workers.run(_owners, batch, self._commands)
        # Cancelled callers would never take their result.
        self._found.update({each: found.get(each, "unknown") for each in batch & self._wanted})


def _owners(inodes: frozenset[int], commands: NetworkedCommands) -> dict[int, Owner]:
    """Scan all processes for sockets; one that a client also has open belongs to the client."""
    found: dict[int, Owner] = {}
    for process in processes():
        with suppress(OSError):
            held = set(inodes.intersection(process.sockets()))
            # Only threads of commands: scanning those of every process would take long.
            if (held or process.has_threads()) and _is_command(process, commands):
                held |= inodes.intersection(process.thread_sockets())
                found.update({each: "command" for each in held if each not in found})
            else:
                found.update(dict.fromkeys(held, "client"))
        if all(found.get(each) == "client" for each in inodes):
            break
    return found


def _unix_owner(line: TransportSocket, commands: NetworkedCommands) -> Owner:
    packed = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _group = _CREDENTIALS.unpack(packed)
    # A command is always visible from here; a process of another container is not.
    if pid == 0 or user != os.geteuid():
        return "client"
    try:
        with ProcessEntry(pid) as process:
            # After opening the folder: until its end, no other process has this number.
            if _has_ended(line):
                return "gone"
            return "command" if _is_command(process, commands) else "client"
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def _has_ended(line: TransportSocket) -> bool:
    """Return whether the connecting process has ended; before Linux 6.5 this is unknown."""
    try:
        pidfd = line.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        return error.errno != errno.ENOPROTOOPT
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(0))
    finally:
        os.close(pidfd)


def _is_command(process: ProcessEntry, commands: NetworkedCommands) -> bool:
    """Return whether a process belongs to a sandboxed command.

    Raises:
        OSError: it has ended.
    """
    status = process.status()
    if status.get("NoNewPrivs") == "0":
        return False
    with ProcessEntry(os.getpid()) as own:
        filters = own.status().get("Seccomp_filters")
    if filters is not None and int(status.get("Seccomp_filters", 0)) <= int(filters):
        return False
    # Other programs may sandbox clients too: those do not descend from our supervisor.
    return (
        commands.may_have_fled
        or not _is_intact(commands)
        or _is_below(status, commands.supervisors)
    )


def _is_intact(commands: NetworkedCommands) -> bool:
    """Return whether the supervisor still runs: otherwise its commands have other ancestors."""
    if len(commands.supervisors) != 1:
        return False
    try:
        with ProcessEntry(commands.supervisors[0]) as supervisor:
            return supervisor.status()["State"][:1] not in "ZX"
    except OSError:
        return False


def _is_below(status: dict[str, str], supervisors: list[int]) -> bool:
    """Return whether an ancestor is a supervisor; an unreadable ancestor counts as one.

    When a parent ends, its children get another one, and its number may be reused. So a step
    counts only if the parent is still the same afterwards.
    """
    pid, above = int(status["Pid"]), int(status["PPid"])
    for _step in range(_MOST_ANCESTORS):
        if above in supervisors:
            return True
        if above == 0:
            return False
        with suppress(OSError):
            beyond = parent(above)
            if parent(pid) == above:
                pid, above = above, beyond
                continue
        try:
            above = parent(pid)
        except OSError:
            return True
    return True


def _endpoint(name: tuple[object, ...]) -> TcpEndpoint:
    from treadle.sandbox.peers.socket_owner import TcpEndpoint

    address = ip_address(str(name[0]).partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return TcpEndpoint(mapped or address, int(str(name[1])))
