"""Tells clients from the server's own sandboxed commands, which must not drive their server.

A command whose policy opens the network shares the network of this machine, and so reaches the
sockets on which the server listens. What a command starts can hide from its parent but not shed
its restrictions: `NoNewPrivs` and the filter of system calls are inherited for good. A process that
has them and descends from the keeper of commands is one of them.

A connection is admitted when its owner is known to be none of these. An owner that cannot be seen
is refused if a command could have opened the connection: one runs, or ran since shortly before the
connection was accepted. Nothing is looked up before the first command with the network was started.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import select
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, Literal

from treadle.sandbox.peers.proc import ProcessEntry, parent, processes
from treadle.support.concurrency.workers import Workers

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

    from treadle.sandbox.peers.socket_owner import TcpEndpoint

REFUSED: Final = "a sandboxed command cannot connect to the server that runs it\n"
GONE: Final = "the process that opened this connection has ended\n"
UNKNOWN: Final = (
    "cannot tell this client from a sandboxed command with network access; "
    "connect over the unix socket, or after the command has ended\n"
)

MAX_LOOKS: Final = 4
"""How many peers are looked up at once; more of them wait."""

SETTLE_SECONDS: Final = 10.0
"""For how long the kernel may keep the sockets of a command that has ended.

Sockets in messages that were never received are collected in the background.
"""

Owner = Literal["client", "command", "gone", "unknown"]

_REASONS: Final[dict[Owner, str]] = {"command": REFUSED, "gone": GONE, "unknown": UNKNOWN}
_SO_PEERPIDFD: Final = 77
_CREDENTIALS: Final = struct.Struct("=iII")
_MOST_ANCESTORS: Final = 1_000


@dataclass
class NetworkedCommands:
    """The sandboxed commands of this process that share the network of the machine."""

    # Every keeper of commands that this process has started.
    keepers: list[int] = field(default_factory=list)
    running: int = 0
    have_run: bool = False
    # When the last one ended, by the monotonic clock.
    last_end: float = -math.inf
    # Whether a command could have got away from its guard: only namespaces rule that out.
    may_have_fled: bool = False

    def on_start(self, *, is_in_namespaces: bool) -> None:
        """Note a command before it starts."""
        self.have_run = True
        self.running += 1
        self.may_have_fled |= not is_in_namespaces

    def on_end(self) -> None:
        """Note that a command has ended, with everything that it started."""
        self.running -= 1
        self.last_end = time.monotonic()

    def can_have_opened(self, accepted_at: float) -> bool:
        """Return whether a connection that was accepted then can be one of a command."""
        has_just_ended = self.last_end >= accepted_at - SETTLE_SECONDS
        return self.running > 0 or self.may_have_fled or has_just_ended


NETWORKED: Final = NetworkedCommands()
"""Those of this process."""


class PeerCheck:
    """Judges the peers of the listeners of one server."""

    def __init__(self, commands: NetworkedCommands = NETWORKED) -> None:
        self._commands = commands
        self._workers = Workers("peers", MAX_LOOKS)
        self._search = OwnerSearch(commands)

    async def refusal(self, line: TransportSocket, *, accepted_at: float) -> str | None:
        """Return why a peer is refused, `None` if it is not.

        A token makes no difference: commands can read what their user can read.
        """
        if not self._commands.have_run:
            return None
        try:
            owner = await self._owner(line)
        except OSError:
            return UNKNOWN  # no descriptor is left, or /proc is not what it is elsewhere
        # Asked last: commands that ran while the owner was looked up count too.
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
        # First: the user of a closed socket is root in the tables of the kernel.
        if found is None or not found.inode:
            return "gone"  # what it has sent is still to be read
        if found.user != os.geteuid():
            return "client"  # commands are the user's who runs the server
        owner = await self._search.owner(found.inode)
        if owner == "unknown" and await self._workers.run(find_socket, theirs, ours) != found:
            return "gone"  # its owner ended before it was looked for
        return owner


class OwnerSearch:
    """Looks for the owners of sockets: one look at all processes serves all who wait for it."""

    def __init__(self, commands: NetworkedCommands) -> None:
        self._commands = commands
        # One look at a time, at as many processes as commands have started.
        self._workers = Workers("owners", 1)
        self._wanted: set[int] = set()
        self._found: dict[int, Owner] = {}
        self._turn = asyncio.Lock()

    async def owner(self, inode: int) -> Owner:
        """Return whose a socket is, "unknown" if no process is seen that has it open.

        Raises:
            OSError: no descriptor is left.
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
        # Those who have stopped waiting would never take their answer.
        self._found.update({each: found.get(each, "unknown") for each in batch & self._wanted})


def _owners(inodes: frozenset[int], commands: NetworkedCommands) -> dict[int, Owner]:
    """Look at all processes for sockets; one that a client has open is the client's."""
    found: dict[int, Owner] = {}
    for process in processes():
        with suppress(OSError):
            held = set(inodes.intersection(process.sockets()))
            # Threads of commands only: looking at those of every process would take long.
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
    # A command is always seen from here; a process of another container is not.
    if pid == 0 or user != os.geteuid():
        return "client"
    try:
        with ProcessEntry(pid) as process:
            # After the folder was opened: until its end, the number is that of no other process.
            if _has_ended(line):
                return "gone"
            return "command" if _is_command(process, commands) else "client"
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def _has_ended(line: TransportSocket) -> bool:
    """Return whether the process that connected has ended; before Linux 6.5 nothing tells."""
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
    # Clients may be sandboxed too, by others: those do not descend from our keeper.
    return commands.may_have_fled or not _is_intact(commands) or _is_below(status, commands.keepers)


def _is_intact(commands: NetworkedCommands) -> bool:
    """Return whether the keeper has never been killed: its commands would descend from others."""
    if len(commands.keepers) != 1:
        return False
    try:
        with ProcessEntry(commands.keepers[0]) as keeper:
            return keeper.status()["State"][:1] not in "ZX"
    except OSError:
        return False


def _is_below(status: dict[str, str], keepers: list[int]) -> bool:
    """Return whether one of the ancestors is a keeper; one that cannot be followed counts as such.

    A parent that ends hands its children on, and its number to a process of any kind. So a step
    counts only if the parent is still the same after it was looked at.
    """
    pid, above = int(status["Pid"]), int(status["PPid"])
    for _step in range(_MOST_ANCESTORS):
        if above in keepers:
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
