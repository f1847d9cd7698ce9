"""Finding the owners of connections: sockets of this machine, and the processes that hold them."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import math
import os
import socket
import sys
import threading
import time
from asyncio.trsock import TransportSocket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address

import pytest

from treadle.sandbox.peers import identity as peers
from treadle.sandbox.peers import socket_owner
from treadle.sandbox.peers.commands import SETTLE_SECONDS, NetworkedCommands
from treadle.sandbox.peers.identity import GONE, UNKNOWN, OwnerSearch, PeerCheck
from treadle.sandbox.peers.proc import ProcessEntry, processes
from treadle.sandbox.peers.socket_owner import RemoteSocket, TcpEndpoint, find_socket

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

CLONE_FILES = 0x400
FAMILIES = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}


@contextmanager
def connection(
    address: str = "127.0.0.1", *, over_ipv6: bool = False
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the client's end and the server's end."""
    with socket.create_server((address, 0), family=FAMILIES[address]) as listener:
        port = listener.getsockname()[1]
        if over_ipv6:
            near = socket.socket(socket.AF_INET6)
            near.connect((f"::ffff:{address}", port))
        else:
            near = socket.create_connection((address, port))
        with near, listener.accept()[0] as far:
            yield near, far


def endpoint(name: tuple[str, int]) -> TcpEndpoint:
    """Return the endpoint of a socket name."""
    return TcpEndpoint(ip_address(name[0]), name[1])


@pytest.mark.parametrize("find", [find_socket, socket_owner.ask_kernel, socket_owner.read_tables])
@pytest.mark.parametrize(
    ("address", "over_ipv6"), [("127.0.0.1", False), ("127.0.0.1", True), ("::1", False)]
)
def test_the_socket_at_the_other_end_is_found(find: object, address: str, over_ipv6: bool) -> None:
    assert callable(find)
    with connection(address, over_ipv6=over_ipv6) as (near, far):
        theirs, ours = endpoint(far.getpeername()[:2]), endpoint(far.getsockname()[:2])
        inode = os.fstat(near.fileno()).st_ino

        assert find(theirs, ours) == RemoteSocket(os.geteuid(), inode)
        # A listening socket at our end is not a connection.
        assert find(ours, TcpEndpoint(ours.address, 1)) is None


def test_a_closed_socket_has_no_owner() -> None:
    with connection() as (near, far):
        theirs, ours = endpoint(far.getpeername()), endpoint(far.getsockname())
        near.close()
        found = find_socket(theirs, ours)

        assert found is None or found.inode == 0


async def test_nothing_is_looked_up_until_a_command_had_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does a client wait for anything."""
    monkeypatch.setattr(peers, "processes", lambda: pytest.fail("looked"))
    with connection() as (_near, far):
        check = PeerCheck(NetworkedCommands())

        assert await check.refusal(TransportSocket(far), accepted_at=0) is None


async def test_one_scan_of_all_processes_serves_all_waiting_peers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    may_look = threading.Event()

    def slowly() -> Iterator[ProcessEntry]:
        looks.append(1)
        may_look.wait(30)
        return processes()

    monkeypatch.setattr(peers, "processes", slowly)
    search = OwnerSearch(NetworkedCommands(have_run=True, running=1))
    with ExitStack() as stack:
        ends = [stack.enter_context(connection())[0] for _each in range(9)]
        inodes = [os.fstat(end.fileno()).st_ino for end in ends]
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            tasks = [group.create_task(search.owner(inode)) for inode in inodes]
            while not looks:  # noqa: ASYNC110 - another thread's work
                await asyncio.sleep(0)
            may_look.set()

    assert {task.result() for task in tasks} == {"client"}
    # The first scan is for the first peer; the second for all that came during it.
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("running", "ended", "reason"),
    [
        (1, -math.inf, UNKNOWN),
        (0, -math.inf, None),
        (0, 1.0, UNKNOWN),
        (0, -SETTLE_SECONDS, UNKNOWN),
        (0, -SETTLE_SECONDS - 1, None),
    ],
    ids=["runs", "ran long ago", "ended since", "ended just before", "ended before"],
)
async def test_an_invisible_owner_is_refused_while_it_could_be_a_command(
    monkeypatch: pytest.MonkeyPatch, *, running: int, ended: float, reason: str | None
) -> None:
    """`ended` is in seconds after the connection was accepted."""
    monkeypatch.setattr(peers, "processes", lambda: iter(()))
    accepted_at = 1_000.0
    commands = NetworkedCommands(have_run=True, running=running, last_end=accepted_at + ended)
    with connection() as (_near, far):
        line = TransportSocket(far)

        assert await PeerCheck(commands).refusal(line, accepted_at=accepted_at) == reason


async def test_a_command_that_runs_only_during_the_search_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = NetworkedCommands(have_run=True)

    def run_meanwhile() -> Iterator[ProcessEntry]:
        commands.on_start(is_in_namespaces=True)
        commands.on_end()
        return iter(())

    monkeypatch.setattr(peers, "processes", run_meanwhile)
    with connection() as (_near, far):
        line, now = TransportSocket(far), time.monotonic()

        assert await PeerCheck(commands).refusal(line, accepted_at=now) == UNKNOWN


async def test_a_peer_that_closes_its_socket_during_the_search_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with connection() as (near, far):

        def close_meanwhile() -> Iterator[ProcessEntry]:
            near.close()
            return iter(())

        monkeypatch.setattr(peers, "processes", close_meanwhile)
        check = PeerCheck(NetworkedCommands(have_run=True))

        assert await check.refusal(TransportSocket(far), accepted_at=time.monotonic()) == GONE


async def test_a_peer_is_refused_if_nothing_can_be_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connections of commands that have ended may be among those that were not looked up."""

    def fail(_theirs: TcpEndpoint, _ours: TcpEndpoint) -> RemoteSocket | None:
        raise OSError(errno.EMFILE, "no descriptor is left")

    monkeypatch.setattr(socket_owner, "find_socket", fail)
    check = PeerCheck(NetworkedCommands(have_run=True))
    with connection() as (_near, far):
        assert await check.refusal(TransportSocket(far), accepted_at=time.monotonic()) == UNKNOWN


def test_the_sockets_of_a_thread_with_own_descriptors_are_found() -> None:
    opened: list[int] = []
    is_open, may_close = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            if ctypes.CDLL(None).unshare(CLONE_FILES) == 0:
                with socket.socket() as hidden:
                    opened.append(os.fstat(hidden.fileno()).st_ino)
                    is_open.set()
                    may_close.wait(30)
        finally:
            is_open.set()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        is_open.wait(30)
        with ProcessEntry(os.getpid()) as process:
            assert process.has_threads()
            assert opened
            assert opened[0] not in process.sockets()
            assert opened[0] in process.thread_sockets()
    finally:
        may_close.set()
        thread.join()


async def test_a_closed_socket_is_not_attributed_to_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tables of the kernel name root as the user of every closed socket."""
    monkeypatch.setattr(socket_owner, "find_socket", socket_owner.read_tables)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    check = PeerCheck(NetworkedCommands(have_run=True))
    with connection() as (near, far):
        near.close()
        theirs, ours = endpoint(far.getpeername()), endpoint(far.getsockname())

        # For a moment after the end, the kernel still knows the user.
        async with asyncio.timeout(10):
            while socket_owner.read_tables(theirs, ours) != RemoteSocket(user=0, inode=0):
                await asyncio.to_thread(far.recv, 1)
        assert await check.refusal(TransportSocket(far), accepted_at=0) == GONE


async def test_a_peer_that_is_gone_is_refused() -> None:
    check = PeerCheck(NetworkedCommands(have_run=True))
    with connection() as (near, far):
        near.close()

        assert await check.refusal(TransportSocket(far), accepted_at=0) == GONE
