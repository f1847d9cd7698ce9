"""What a confined command can send: without network access, nothing to anyone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.commands import PYTHON, confine, new_token, run, workspace
from treadle.protocol.permission import AdditionalNetworkPermissions, AdditionalPermissionProfile
from treadle.protocol.policy import ReadOnlySandboxPolicy
from treadle.sandbox.backends.selection import Backend

SPEAK = """
import _socket as s, sys
family, kind, address = (eval(word) for word in sys.argv[1:])
try:
    speaker = s.socket(family, kind)
    if "dgram" == {how!r}:
        speaker.sendto(b"hello", address)
    elif "message" == {how!r}:
        speaker.sendmsg([b"hello"], [], 0, address)
    else:
        speaker.connect(address)
        speaker.send(b"hello")
    print("spoke")
except OSError as error:
    print("refused")
"""
KINDS = {
    "TCP": (socket.AF_INET, socket.SOCK_STREAM, "stream"),
    "UDP": (socket.AF_INET, socket.SOCK_DGRAM, "dgram"),
    "UDP message": (socket.AF_INET, socket.SOCK_DGRAM, "message"),
    "abstract socket": (socket.AF_UNIX, socket.SOCK_STREAM, "stream"),
    "abstract datagram": (socket.AF_UNIX, socket.SOCK_DGRAM, "message"),
    "socket with a path": (socket.AF_UNIX, socket.SOCK_STREAM, "stream"),
    "datagram with a path": (socket.AF_UNIX, socket.SOCK_DGRAM, "dgram"),
    "message with a path": (socket.AF_UNIX, socket.SOCK_DGRAM, "message"),
}


@pytest.fixture(params=KINDS)
def listener(
    request: pytest.FixtureRequest, short_folder: Path
) -> Iterator[tuple[socket.socket, list[str]]]:
    """Yield a listening socket, and a program that sends to it."""
    family, kind, how = KINDS[request.param]
    with socket.socket(family, kind) as ears:
        address: tuple[str, int] | str = ("127.0.0.1", 0)
        if family == socket.AF_UNIX:
            is_abstract = "abstract" in request.param
            address = f"\0{new_token()}" if is_abstract else str(short_folder / "socket")
        ears.bind(address)
        if kind == socket.SOCK_STREAM:
            ears.listen()
        ears.setblocking(False)
        words = [str(int(family)), str(int(kind)), repr(_name(ears))]
        yield ears, [*PYTHON, SPEAK.format(how=how), *words]


def _name(ears: socket.socket) -> object:
    name = ears.getsockname()
    return name.decode() if isinstance(name, bytes) else name


def has_heard(ears: socket.socket) -> bool:
    """Return whether anything arrived; on one machine that is immediate."""
    try:
        if ears.type == socket.SOCK_STREAM:
            ears.accept()[0].close()
        else:
            ears.recv(100)
    except BlockingIOError:
        return False
    return True


async def test_without_network_access_nothing_is_received(
    backend: Backend, ws: Path, listener: tuple[socket.socket, list[str]]
) -> None:
    ears, command = listener
    done = await run(command, workspace(ws))
    assert (done.stdout, done.stderr) == ("refused\n", "")
    assert not has_heard(ears)


async def test_with_network_access_everything_is_received(
    backend: Backend, ws: Path, listener: tuple[socket.socket, list[str]]
) -> None:
    ears, command = listener
    done = await run(command, workspace(ws, network=True))
    assert (done.stdout, done.stderr) == ("spoke\n", "")
    assert has_heard(ears)


async def test_granted_network_access_is_network_access(
    backend: Backend, ws: Path, listener: tuple[socket.socket, list[str]]
) -> None:
    ears, command = listener
    granted = AdditionalPermissionProfile(network=AdditionalNetworkPermissions(enabled=True))
    confinement = confine(ReadOnlySandboxPolicy(), str(ws), granted=[granted])
    assert (await run(command, confinement)).stdout == "spoke\n"
    assert has_heard(ears)


async def test_processes_of_one_command_can_talk_through_a_socket_pair(
    backend: Backend, ws: Path
) -> None:
    script = """
import os, _socket
ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
if os.fork() == 0:
    theirs.send(b"hello")
    os._exit(0)
os.wait()
print(ours.recv(5))
"""
    assert (await run([*PYTHON, script], workspace(ws))).stdout == "b'hello'\n"


async def test_a_datagram_pair_cannot_address_other_sockets(
    backend: Backend, ws: Path, short_folder: Path
) -> None:
    """A connected datagram socket still sends to any path that a message names."""
    path = short_folder / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ears:
        ears.bind(str(path))
        ears.setblocking(False)
        script = f"""
import _socket
ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_DGRAM)
ours.sendmsg([b"hello"], [], 0, {str(path)!r})
"""
        done = await run([*PYTHON, script], workspace(ws))
        assert done.exit_code == 1
        assert not has_heard(ears)
