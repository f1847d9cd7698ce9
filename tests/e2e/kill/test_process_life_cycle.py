"""How the server process starts and ends, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.peer import Peer
from tests.harness.processes import TREADLE, environment, listening, spawn_server
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import SubprocessTransport
from treadle.transport.unix import connect_unix
from treadle.transport.websocket.listener import connect_websocket

HELLO = (
    b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"},'
    b'"capabilities":{"experimentalApi":true}}}\n'
)
ECHO = b'{"id":%d,"method":"mock/experimentalMethod","params":{"value":"%s"}}\n'
COMMAND = [TREADLE, "app-server"]

End = Callable[[subprocess.Popen[bytes]], None]


def end_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def terminate(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)


ends = pytest.mark.parametrize("end", [end_input, terminate, interrupt])


def launch(
    command: list[str],
    home: Path,
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
    log: str = "warn",
) -> subprocess.Popen[bytes]:
    env = environment(home, TREADLE_LOG=log)
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=env, bufsize=0
    )


@contextlib.contextmanager
def started(home: Path, log: str = "warn") -> Iterator[subprocess.Popen[bytes]]:
    process = launch(COMMAND, home, log=log)
    try:
        with process:
            yield process
            process.kill()
    finally:
        process.kill()


async def exit_code(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end; a server that does not end by itself fails the test."""
    async with asyncio.timeout(20):
        return await asyncio.to_thread(process.wait)


def write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(process.stdin.fileno(), rest) :]


def read_line(process: subprocess.Popen[bytes]) -> JsonValue:
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(process.stdout.fileno(), 1)
        assert byte, "the server ended"
        line += byte
    return json.loads(line)


@ends
async def test_it_ends_before_the_handshake(home: Path, end: End) -> None:
    with started(home) as process:
        if end is not end_input:
            # It handles signals once it reads; an answer to a line shows that it does.
            write(process, b"\n" + ECHO % (1, b"x"))
            assert read_line(process)["error"]["message"] == "Not initialized"
        end(process)
        assert await exit_code(process) == 0


@ends
async def test_it_ends_after_the_handshake(home: Path, end: End) -> None:
    with started(home) as process:
        write(process, HELLO + ECHO % (1, b"x"))
        assert read_line(process)["id"] == 0
        assert read_line(process) == {"id": 1, "result": {"echoed": "x"}}
        end(process)
        assert await exit_code(process) == 0


@pytest.mark.parametrize("end", [terminate, interrupt])
async def test_a_signal_right_after_the_first_answer_ends_it(home: Path, end: End) -> None:
    """The first answer comes before most of the program is imported."""
    with started(home) as process:
        write(process, HELLO)
        assert read_line(process)["id"] == 0
        end(process)
        assert await exit_code(process) == 0


@pytest.mark.parametrize("size", [100_000, 3_000_000], ids=["in its queue", "beyond its queue"])
@ends
async def test_it_ends_while_its_output_is_not_read(home: Path, end: End, size: int) -> None:
    with started(home) as process:
        write(process, HELLO + b"".join(ECHO % (id_, b"x" * size) for id_ in range(1, 11)))
        assert read_line(process)["id"] == 0
        end(process)
        assert await exit_code(process) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ["websocket", "unix"])
async def test_it_ends_with_a_client_connected(
    home: Path, short_folder: Path, number: int, kind: str
) -> None:
    path = short_folder / "s"
    url = "ws://127.0.0.1:0" if kind == "websocket" else f"unix://{path}"
    with listening(home, "--listen", url) as server:
        async with asyncio.timeout(30):
            if kind == "websocket":
                transport = await connect_websocket(server.websocket_url())
            else:
                transport = await connect_unix(server.socket_path(path))
            peer = Peer(transport)
            await peer.initialize(experimentalApi=True)
            assert await peer.echo("x") == "x"
            server.process.send_signal(number)
            assert await exit_code(server.process) == 0
            assert await peer.receive_all() == []
            await transport.close()
    assert not path.exists()


async def test_a_server_without_clients_ends_on_a_signal(home: Path) -> None:
    with listening(home, "--listen", "off", TREADLE_LOG="debug") as server:
        await asyncio.to_thread(_until_it_catches, server.process.pid, signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)
        assert await exit_code(server.process) == 0


def _until_it_catches(pid: int, number: int) -> None:
    """Wait until a process has a handler for a signal: there is no other sign."""
    caught = 0
    while not caught & (1 << (number - 1)):
        status = Path(f"/proc/{pid}/status").read_text("ascii")
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)


def _until_imported(pid: int) -> None:
    """Wait until the process sleeps in its event loop: an epoll descriptor shows it."""
    folder = Path(f"/proc/{pid}/fd")
    links: set[str] = set()
    while not any("eventpoll" in link for link in links):
        links = set()
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                links.add(str(entry.readlink()))


async def test_requests_sent_before_the_end_of_input_are_answered(home: Path) -> None:
    data = HELLO + b"".join(ECHO % (id_, b"x" * 1000) for id_ in range(1, 501))
    with started(home) as process:
        async with asyncio.timeout(20):
            out, err = await asyncio.to_thread(process.communicate, data)
    messages = [json.loads(line) for line in out.splitlines()]
    assert [message["id"] for message in messages] == list(range(501))
    assert out.endswith(b"\n")
    assert err == b""


async def test_output_consists_of_whole_protocol_lines(home: Path) -> None:
    """Also when a signal arrives in the middle, at the most verbose log level."""
    with started(home, log="debug") as process:
        many = b"".join(b"bad\n" + ECHO % (id_, b"x" * 50_000) for id_ in range(1, 200))
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(asyncio.to_thread(_write_until_gone, process, HELLO + many))
            assert process.stderr is not None
            tasks.create_task(asyncio.to_thread(process.stderr.read))
            first = await asyncio.to_thread(read_line, process)
            terminate(process)
            assert process.stdout is not None
            rest = await asyncio.to_thread(process.stdout.read)
            await writing
        assert await exit_code(process) == 0
    assert first["id"] == 0
    assert rest == b"" or rest.endswith(b"\n")
    assert all(json.loads(line)["id"] for line in rest.splitlines())


def _write_until_gone(process: subprocess.Popen[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        write(process, data)


async def test_a_closed_output_ends_it(home: Path) -> None:
    with started(home) as process:
        write(process, HELLO + ECHO % (1, b"x"))
        assert read_line(process)["id"] == 0
        assert read_line(process)["id"] == 1
        assert process.stdout is not None
        process.stdout.close()
        assert await exit_code(process) == 0


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "</dev/null", "<&- >&- 2>&-"])
async def test_missing_descriptors_end_it_quietly(home: Path, redirection: str) -> None:
    command = f"exec {TREADLE} app-server {redirection}"
    process = launch(["sh", "-c", command], home)
    async with asyncio.timeout(20):
        out, err = await asyncio.to_thread(process.communicate, HELLO)
    assert (process.returncode, out, err) == (0, b"", b"")


async def test_input_and_output_may_be_files(home: Path, tmp_path: Path) -> None:
    count = 3000
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(HELLO + b"".join(ECHO % (id_, b"x" * 500) for id_ in range(1, count)))
    with source.open("rb") as stdin, target.open("wb") as stdout:
        process = launch(COMMAND, home, stdin=stdin.fileno(), stdout=stdout.fileno())
    async with asyncio.timeout(20):
        _, err = await asyncio.to_thread(process.communicate)
    assert (process.returncode, err) == (0, b"")
    ids = [json.loads(line)["id"] for line in target.read_bytes().splitlines()]
    assert ids == list(range(count))


async def test_a_non_blocking_pipe_works(home: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    process = launch(COMMAND, home, stdin=reading)
    os.close(reading)
    await asyncio.to_thread(_until_imported, process.pid)
    os.write(writing, HELLO + ECHO % (1, b"x"))
    os.close(writing)
    async with asyncio.timeout(20):
        out, _ = await asyncio.to_thread(process.communicate)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [0, 1]
    assert process.returncode == 0


async def test_an_unread_stderr_blocks_nothing(home: Path) -> None:
    with started(home, log="debug") as process:
        async with asyncio.timeout(30):
            data = HELLO + b"this is not JSON\n" * 20_000 + ECHO % (1, b"x")
            await asyncio.to_thread(write, process, data)
            assert read_line(process)["id"] == 0
            assert await asyncio.to_thread(read_line, process) == {
                "id": 1,
                "result": {"echoed": "x"},
            }
        end_input(process)
        assert await exit_code(process) == 0


PARENT = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.stdin.write(b"\\n")
child.stdin.flush()
child.wait()
"""


async def test_killing_the_parent_ends_the_server(home: Path) -> None:
    parent = launch([sys.executable, "-c", PARENT, *COMMAND], home)
    assert parent.stdout is not None
    with parent:
        pid = int(parent.stdout.readline())
        server = os.pidfd_open(pid)
        parent.kill()
        parent.wait()
        async with asyncio.timeout(5):
            await _ended(server)


async def _ended(pidfd: int) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_reader(pidfd, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


async def test_a_line_of_any_length_passes_in_both_directions(home: Path) -> None:
    transport: SubprocessTransport = spawn_server(home)
    async with asyncio.timeout(30):
        peer = Peer(transport)
        await peer.initialize(experimentalApi=True)
        for size in (0, 1, 65_535, 65_536, 1_000_003, 20_000_000):
            assert len(await peer.echo("x" * size)) == size
        await transport.close()
    assert (transport.exit_code, transport.stderr_tail) == (0, "")
