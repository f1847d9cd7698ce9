"""The control socket: its file, its lock, and WebSocket over it."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from treadle.transport.base import Transport, TransportError
from treadle.transport.unix import SocketInUse, SocketPathError, UnixListener, connect_unix


async def echo(transport: Transport) -> None:
    while batch := await transport.receive():
        await transport.send([frame for frame in batch if isinstance(frame, bytes)])


@contextlib.asynccontextmanager
async def running(path: Path) -> AsyncIterator[None]:
    listener = UnixListener(path)
    await listener.start()
    with contextlib.closing(listener):
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            serving = group.create_task(listener.serve(echo))
            yield
            serving.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control" / "s.sock"


async def exchange(path: Path, data: bytes) -> bytes:
    """Send bytes; read to the end, or to the end of a 101's head."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(data)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while chunk := await reader.read(65536):
                    answer += chunk
                    if answer.endswith(b"\r\n\r\n"):
                        break
            return answer
        finally:
            writer.close()


async def test_messages_pass_over_the_socket(path: Path) -> None:
    async with running(path):
        client = await connect_unix(path)
        await client.send([b"one", b"two"])
        received = [*await client.receive()]
        while len(received) < 2:
            received += await client.receive()
        await client.close()

    assert (client.peer, received) == ("unix", [b"one", b"two"])


async def test_the_socket_is_private_to_its_owner_and_removed_with_the_server(path: Path) -> None:
    before = os.umask(0)
    try:
        async with running(path):
            modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)]
    finally:
        os.umask(before)

    assert (modes, list(path.parent.iterdir())) == ([0o700, 0o600], [])


async def test_an_existing_folder_keeps_its_mode(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    path.parent.chmod(0o755)
    async with running(path):
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


async def test_the_upgrade_states_the_longest_frame_and_accepts_any_origin(path: Path) -> None:
    upgrade = (
        b"GET /rpc HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil\r\nConnection: upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    async with running(path):
        status, *lines = (await exchange(path, upgrade)).decode().split("\r\n")

    headers = dict(line.split(": ", 1) for line in lines if line)
    headers.pop("date")
    assert (status, headers) == (
        "HTTP/1.1 101 Switching Protocols",
        {
            "connection": "upgrade",
            "upgrade": "websocket",
            "sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
            "x-codex-websocket-max-unfragmented-message-bytes": "16777216",
        },
    )


@pytest.mark.parametrize(
    "data",
    [
        b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n",
        b'{"id":1,"method":"initialize"}\n',
        b"POST / HTTP/1.1\r\n\r\n",
    ],
)
async def test_anything_but_an_upgrade_gets_no_answer(path: Path, data: bytes) -> None:
    async with running(path):
        assert await exchange(path, data) == b""


async def test_the_socket_of_a_dead_server_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with running(path):
        client = await connect_unix(path)
        await client.close()


async def test_a_second_server_is_refused(path: Path) -> None:
    async with running(path):
        with pytest.raises(SocketInUse) as caught:
            await UnixListener(path).start()
        client = await connect_unix(path)
        await client.close()

    assert str(caught.value) == f"app-server control socket is already in use at {path}"


async def test_a_foreign_server_without_our_lock_is_respected(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(path))
        foreign.listen()
        with pytest.raises(SocketInUse):
            await UnixListener(path).start()

        assert [each.name for each in path.parent.iterdir()] == ["s.sock"]


def link(path: Path, target: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(target)


def kinds(folder: Path) -> dict[str, bool]:
    """Return the names in a folder, and whether each is a link."""
    return {each.name: each.is_symlink() for each in folder.iterdir()}


async def test_a_link_to_a_live_socket_is_respected(path: Path, tmp_path: Path) -> None:
    """Upstream 0.163.0 puts such a link at the configured path."""
    link(path, tmp_path / "real")
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(tmp_path / "real"))
        foreign.listen()
        with pytest.raises(SocketInUse):
            await UnixListener(path).start()

        assert kinds(path.parent) == {"s.sock": True}


@pytest.mark.parametrize("target", ["dead", "missing"])
async def test_a_link_to_a_dead_socket_is_replaced(path: Path, tmp_path: Path, target: str) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    link(path, aside / target)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(aside / "dead"))
    async with running(path):
        assert kinds(path.parent) == {"s.sock": False, "s.sock.lock": False}

    assert kinds(aside) == {"dead": False}


async def test_a_link_to_something_else_is_left_unchanged(path: Path, tmp_path: Path) -> None:
    link(path, tmp_path)
    with pytest.raises(SocketPathError, match="not a socket"):
        await UnixListener(path).start()

    assert kinds(path.parent) == {"s.sock": True}


async def test_one_of_many_racing_for_a_stale_socket_wins(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    listeners = [UnixListener(path) for _ in range(8)]

    def start(listener: UnixListener) -> bool:
        try:
            asyncio.run(listener.start())
        except SocketInUse:
            return False
        return True

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        # Each descriptor has its own lock, so threads race as processes do.
        races = [group.create_task(asyncio.to_thread(start, each)) for each in listeners]
    winners = [each for each, race in zip(listeners, races, strict=True) if race.result()]
    for winner in winners:
        winner.close()

    assert len(winners) == 1


async def test_the_path_can_be_reused_after_a_stop(path: Path) -> None:
    for _ in range(2):
        async with running(path):
            client = await connect_unix(path)
            await client.close()


async def test_a_socket_that_replaced_ours_is_not_removed(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        async with running(path):
            await asyncio.to_thread(path.rename, path.with_name("moved"))
            other.bind(str(path))

        assert {each.name for each in path.parent.iterdir()} == {"moved", "s.sock"}


def test_a_file_that_is_not_a_socket_is_never_deleted(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("precious")

    with pytest.raises(SocketPathError) as caught:
        asyncio.run(UnixListener(path).start())

    assert (str(caught.value), path.read_text()) == (
        f"the file at {path} is not a socket",
        "precious",
    )


async def test_a_path_that_is_too_long_is_refused_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 120)
    size = len(os.fsencode(path))
    message = f"control socket path is {size} bytes long, expected at most 107: {path}"

    with pytest.raises(SocketPathError) as listening:
        await UnixListener(path).start()
    with pytest.raises(SocketPathError) as connecting:
        await connect_unix(path)

    assert (str(listening.value), str(connecting.value)) == (message, message)


async def test_connecting_without_a_server_is_a_transport_error(path: Path) -> None:
    with pytest.raises(TransportError) as caught:
        await connect_unix(path)

    assert str(caught.value) == f"cannot connect to {path}: No such file or directory"
