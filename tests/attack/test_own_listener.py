"""A sandboxed command with plain network access tries to drive the server that confines it.

The server is a real process with a real listener. The command runs through `command/exec` with a
policy that opens the network, so it shares the network and the sockets of this machine.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from asyncio.trsock import TransportSocket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.peer import Peer
from tests.harness.processes import ServerProcess, listening
from tests.harness.sandbox import SANDBOX, find_backend
from tests.harness.threads import Client
from tests.sandbox.commands import PYTHON, start
from treadle.protocol.base import JsonValue
from treadle.sandbox.backends.landlock import LandlockMissing, version
from treadle.sandbox.backends.selection import SandboxUnavailable
from treadle.sandbox.peers.identity import GONE, REFUSED, UNKNOWN, Owner, OwnerSearch, PeerCheck
from treadle.sandbox.policy import Confinement
from treadle.transport.base import Transport
from treadle.transport.unix import connect_unix
from treadle.transport.websocket.listener import WebSocketListener, connect_websocket

SECONDS = 40
NETWORK: JsonValue = {"type": "readOnly", "networkAccess": True}
TOKEN = "t" * 43
FREE: JsonValue = {"type": "dangerFullAccess"}

# Connects to argv[1] (a port or a path) and requests a WebSocket, with what argv[2] holds.
PRELUDE = """
import array, os, socket, sys
where, headers = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
UPGRADE = (
    "GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n"
    "Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n"
    f"{headers}\\r\\n"
).encode()
def connect():
    if where.isdigit():
        return socket.create_connection(("127.0.0.1", int(where)), 20)
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(20)
    line.connect(where)
    return line
def answer(line):
    head, _, body = line.recv(65536).partition(b"\\r\\n\\r\\n")
    return head.split(b"\\r\\n")[0].decode() + "|" + body.decode(errors="replace")
"""
DIRECTLY = """
line = connect()
line.sendall(UPGRADE)
print(answer(line))
"""
# Orphaned twice, in its own session; the command waits for it by a pipe, not as its parent.
FROM_A_GRANDCHILD = """
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    while os.getppid() == os.getpgrp():
        pass
    line = connect()
    line.sendall(UPGRADE)
    os.write(writer, answer(line).encode())
    os._exit(0)
os.close(writer)
os.wait()
print(os.read(reader, 65536).decode())
"""
# Between closing and receiving it again, no process has the connection among its descriptors.
IN_FLIGHT = """
near, far = socket.socketpair()
line = connect()
near.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [line.fileno()]))])
line.sendall(UPGRADE)
line.close()
while b"refused" not in open(sys.argv[3], "rb").read():
    pass
_data, ancillary, _flags, _address = far.recvmsg(1, 64)
fds = array.array("i")
fds.frombytes(ancillary[0][2])
line = socket.socket(fileno=fds[0])
line.settimeout(20)
print(answer(line))
"""
# The thread has its own descriptors: those of the process do not include the connection.
FROM_A_THREAD = """
import ctypes, threading
def work():
    if ctypes.CDLL(None, use_errno=True).unshare(0x400):  # CLONE_FILES
        raise OSError(ctypes.get_errno(), "unshare")
    line = connect()
    line.sendall(UPGRADE)
    print(answer(line))
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
# Keeps many connections open with all their requests until its input ends.
WAIT_AND_RUN = """
lines = [connect() for _ in range(9)]
for line in lines:
    line.sendall(UPGRADE + bytes([0x81, 0x85, 0, 0, 0, 0]) + b"drive")
sys.stdin.read()
"""
# Sends everything at once, and has exited when the server reads it.
HIT_AND_RUN = """
def frame(text):
    data = text.encode()
    return bytes([0x81, 0x80 | 126]) + len(data).to_bytes(2, "big") + b"\\0\\0\\0\\0" + data
if os.fork() == 0:
    line = connect()
    line.sendall(UPGRADE + b"".join(map(frame, sys.argv[3:])))
    os._exit(0)
os.wait()
print("sent")
"""


@dataclass
class Ground:
    """A server, its address, and its first client."""

    server: ServerProcess
    where: str
    client: Client

    async def run(self, script: str, *arguments: str, policy: JsonValue = NETWORK) -> str:
        """Run a script in the server's sandbox; return its output."""
        argv = [*PYTHON, PRELUDE + script, self.where, *(arguments or ("",))]
        params = {"command": argv, "sandboxPolicy": policy, "timeoutMs": SECONDS * 1000}
        done = await self.client.request("command/exec", params)
        assert not done["stderr"], done["stderr"]
        text: str = done["stdout"].strip()
        return text


@asynccontextmanager
async def ground(
    kind: str, home: Path, folder: Path, *arguments: str, **environment: str
) -> AsyncIterator[Ground]:
    """Start a server on a kind of socket, with one client."""
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        if kind == "unix":
            path = folder / "s"
            server = stack.enter_context(
                listening(home, "--listen", f"unix://{path}", descriptors=None, **environment)
            )
            where = str(server.socket_path(path))
            transport = await connect_unix(path)
        else:
            listen = ["--listen", "ws://127.0.0.1:0", *arguments]
            server = stack.enter_context(listening(home, *listen, descriptors=None, **environment))
            url = server.websocket_url()
            where = url.rpartition(":")[2]
            transport = await connect_websocket(url, token=TOKEN if arguments else None)
        stack.push_async_callback(transport.close)
        client = Client(Peer(transport))
        await client.initialize()
        yield Ground(server, where, client)


@pytest.fixture(autouse=True)
async def sandboxed() -> str:
    """Skip where nothing confines commands; return the name of the backend."""
    try:
        return (await find_backend()).name
    except SandboxUnavailable as error:
        pytest.skip(str(error))


KINDS = pytest.mark.parametrize("kind", ["websocket", "unix"])


@KINDS
@pytest.mark.parametrize("script", [DIRECTLY, FROM_A_GRANDCHILD], ids=["directly", "grandchild"])
async def test_a_command_cannot_connect_to_its_own_server(
    kind: str, script: str, home: Path, short_folder: Path
) -> None:
    async with ground(kind, home, short_folder) as on:
        answered = await on.run(script)

        assert answered == f"HTTP/1.1 403 Forbidden|{REFUSED.strip()}"
        on.server.wait_for_log("peer refused")


@KINDS
async def test_a_command_under_landlock_cannot_connect_either(
    kind: str, home: Path, short_folder: Path
) -> None:
    """Without namespaces, only the restrictions distinguish a command from a client."""
    try:
        version()
    except LandlockMissing:
        pytest.skip("the kernel has no Landlock")
    # Bubblewrap is not on this path.
    async with ground(kind, home, short_folder, PATH=str(short_folder)) as on:
        answered = await on.run(FROM_A_GRANDCHILD)
        outside = await _run_outside([], on.where)

    assert answered == f"HTTP/1.1 403 Forbidden|{REFUSED.strip()}"
    assert outside.startswith("HTTP/1.1 101 ")


@KINDS
async def test_a_connection_without_a_visible_owner_is_refused(
    kind: str, home: Path, short_folder: Path
) -> None:
    """The descriptor is in a message of the command to itself while the server searches for it."""
    async with ground(kind, home, short_folder) as on:
        answered = await on.run(IN_FLIGHT, "", str(home / "stderr"))

    assert answered.startswith("HTTP/1.1 403 Forbidden|")


async def test_a_command_that_ends_while_its_connections_wait_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sockets are found while it runs, and the search for their owner starts after its end."""
    received: list[object] = []
    waiting: list[int] = []
    has_ended = asyncio.Event()
    search = OwnerSearch.owner

    async def search_late(self: OwnerSearch, inode: int) -> Owner:
        waiting.append(inode)
        await has_ended.wait()
        return await search(self, inode)

    async def accept(transport: Transport) -> None:
        received.append(await transport.receive())

    monkeypatch.setattr(OwnerSearch, "owner", search_late)
    listener, check, answers = (
        WebSocketListener("127.0.0.1", 0),
        PeerCheck(SANDBOX.networked),
        list[str | None](),
    )

    async def admit(line: TransportSocket, *, accepted_at: float) -> str | None:
        answers.append(await check.refusal(line, accepted_at=accepted_at))
        return answers[-1]

    await listener.start()
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        serving = group.create_task(listener.serve(accept, admit=admit))
        argv = [*PYTHON, PRELUDE + WAIT_AND_RUN, str(listener.address[1])]
        command, _output = await start(argv, Confinement(network=True), has_stdin=True)
        while len(waiting) < 9:  # noqa: ASYNC110 - another process's connections
            await asyncio.sleep(0.01)
        command.close_stdin()
        await command.wait()
        has_ended.set()
        while len(answers) < 9:  # noqa: ASYNC110 - no event for the last answer
            await asyncio.sleep(0.01)
        serving.cancel()

    assert answers == [GONE] * 9
    assert not received


@KINDS
async def test_a_connection_whose_command_has_ended_is_refused(
    kind: str, home: Path, short_folder: Path
) -> None:
    """Its requests wait in the socket, and would be executed after its end."""
    marker = short_folder / "driven"
    about = {"clientInfo": {"name": "x", "version": "1"}}
    order = {"command": ["touch", str(marker)], "sandboxPolicy": FREE}
    frames = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "initialized"},
        {"id": 2, "method": "command/exec", "params": order},
    ]
    async with ground(kind, home, short_folder) as on:
        assert await on.run(HIT_AND_RUN, "", *map(json.dumps, frames)) == "sent"
        while "peer refused" not in on.server.stderr:  # noqa: ASYNC110 - another process's file
            await asyncio.sleep(0.01)
        await on.client.settled()

    assert not marker.exists()


@pytest.mark.parametrize(
    ("script", "reasons"),
    # In flight, a process of the command may or may not have it open.
    [(DIRECTLY, {REFUSED}), (FROM_A_THREAD, {REFUSED}), (IN_FLIGHT, {REFUSED, UNKNOWN})],
    ids=["directly", "thread", "in flight"],
)
async def test_a_token_does_not_help_a_command(
    script: str, reasons: set[str], home: Path, short_folder: Path
) -> None:
    """A command can read what its user can read, including the token's file."""
    file = short_folder / "token"
    file.write_text(TOKEN)
    flags = ("--ws-auth", "capability-token", "--ws-token-file", str(file))
    async with ground("websocket", home, short_folder, *flags) as on:
        header = f"Authorization: Bearer {TOKEN}\r\n"
        answered = await on.run(script, header, str(home / "stderr"))

    assert answered in {f"HTTP/1.1 403 Forbidden|{reason.strip()}" for reason in reasons}


@KINDS
async def test_clients_are_accepted_while_a_command_with_the_network_runs(
    kind: str, home: Path, short_folder: Path
) -> None:
    """Including one that has its own restrictions, and a command that runs without a sandbox."""
    async with ground(kind, home, short_folder) as on:
        argv = [*PYTHON, "import sys; print('running', flush=True); sys.stdin.read()"]
        params = {"command": argv, "sandboxPolicy": NETWORK, "processId": "p", "streamStdin": True}
        params |= {"streamStdoutStderr": True, "disableTimeout": True}
        await on.client.peer.send({"id": "long", "method": "command/exec", "params": params})
        await on.client.until("command/exec/outputDelta")
        answers = {
            "plain": await _run_outside([], on.where),
            "free command": await on.run(DIRECTLY, policy=FREE),
        }
        if shutil.which("setpriv"):
            answers["restricted"] = await _run_outside(["setpriv", "--no-new-privs"], on.where)
        refused = await on.run(DIRECTLY)

    assert {answer.split("|")[0] for answer in answers.values()} == {
        "HTTP/1.1 101 Switching Protocols"
    }, answers
    assert refused.startswith("HTTP/1.1 403 ")


async def _run_outside(prefix: list[str], where: str) -> str:
    """Connect from a program that has nothing to do with the server."""
    argv = [*prefix, *PYTHON, PRELUDE + DIRECTLY, where]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    output, _errors = await process.communicate()
    return output.decode().strip()
