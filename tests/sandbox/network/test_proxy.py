"""What a command reaches through its egress proxy, and that there is no other way out."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.sandbox import using
from tests.sandbox.commands import PYTHON, SECONDS, Done, start
from tests.sandbox.network.commands import FETCH, PROXIED, Referee, fetch, run, website
from treadle.sandbox.backends.selection import Backend, SandboxUnavailable
from treadle.sandbox.network.environment import environment
from treadle.sandbox.network.policy import Destination, NetworkPolicy
from treadle.sandbox.network.proxy import PORT, EgressProxy
from treadle.sandbox.policy import PLATFORM_FOLDERS, Confinement
from treadle.support.concurrency.tasks import BackgroundTasks

pytestmark = pytest.mark.usefixtures("bubblewrap")

CONNECT = f"""
import _socket, sys
target = sys.argv[1]
line = _socket.socket()
line.connect(("127.0.0.1", {PORT}))
line.send(f"CONNECT {{target}} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
print(line.recv(1000).split(b"\\r\\n")[0].decode())
line.send(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
print(line.recv(1000).split(b"\\r\\n")[0].decode())
"""
SOCKS = f"""
import _socket, sys
host, port = sys.argv[1].encode(), int(sys.argv[2])
line = _socket.socket()
line.connect(("127.0.0.1", {PORT}))
line.send(b"\\x05\\x01\\x00")
print(line.recv(2).hex())
line.send(b"\\x05\\x01\\x00\\x03" + bytes([len(host)]) + host + port.to_bytes(2, "big"))
answer = line.recv(10)
print(answer[:2].hex())
if answer[1] == 0:
    line.send(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    print(line.recv(1000).split(b"\\r\\n")[0].decode())
"""


async def test_an_allowed_host_is_reached_by_its_name() -> None:
    referee = Referee("allowed.test")

    async with website() as (port, heads):
        done = await fetch(referee, f"http://allowed.test:{port}/page?q=1")

    assert done == Done(0, "200 hello\n", "")
    assert referee.judged == [Destination("allowed.test", port, "http")]
    head = heads[0].decode().split("\r\n")
    assert head[:2] == ["GET /page?q=1 HTTP/1.1", f"Host: allowed.test:{port}"]


async def test_a_denied_host_gets_an_answer_with_the_reason() -> None:
    referee = Referee()

    async with website() as (port, heads):
        done = await fetch(referee, f"http://other.test:{port}/")

    code, error, body = done.stdout.split(" ", 2)
    assert (code, error) == ("403", "blocked-by-allowlist")
    assert json.loads(body) == {
        "status": "blocked",
        "host": "other.test",
        "reason": "not_allowed",
        "decision": "deny",
        "source": "baseline_policy",
        "protocol": "http",
        "port": port,
        "message": "the host is not on the allow list",
    }
    assert (heads, referee.blocked) == ([], [("other.test", "not_allowed")])


async def test_a_tunnel_is_judged_by_its_host_and_then_carries_anything() -> None:
    referee = Referee("allowed.test")

    async with website() as (port, _heads):
        opened = await run([*PYTHON, CONNECT, f"allowed.test:{port}"], referee)
        refused = await run([*PYTHON, CONNECT, f"other.test:{port}"], referee)

    assert opened.stdout == "HTTP/1.1 200 Connection established\nHTTP/1.1 200 OK\n"
    assert refused.stdout.startswith("HTTP/1.1 403 Forbidden\n")
    assert [each.protocol for each in referee.judged] == ["https", "https"]


async def test_socks_works_on_the_same_port() -> None:
    referee = Referee("allowed.test")

    async with website() as (port, _heads):
        opened = await run([*PYTHON, SOCKS, "allowed.test", str(port)], referee)
        refused = await run([*PYTHON, SOCKS, "other.test", str(port)], referee)

    assert opened.stdout == "0500\n0500\nHTTP/1.1 200 OK\n"
    assert refused.stdout == "0500\n0502\n"
    assert referee.judged[0] == Destination("allowed.test", port, "socks5Tcp")


async def test_without_the_proxy_nothing_is_reached() -> None:
    """Ours: a program that ignores the variables has no network at all."""
    script = """
import _socket, sys
for family, address in ((2, ("127.0.0.1", int(sys.argv[1]))), (2, ("192.0.2.1", 80))):
    try:
        _socket.socket(family).connect(address)
        print("reached")
    except OSError as error:
        print("refused")
"""
    async with website() as (port, heads):
        done = await run([*PYTHON, script, str(port)], Referee("127.0.0.1"))

    assert (done.stdout, heads) == ("refused\nrefused\n", [])


async def test_sockets_in_the_file_system_stay_out_of_reach(short_folder: Path) -> None:
    """Ours: otherwise a command could talk to the daemons of its user."""
    script = """
import _socket, sys
for kind in (1, 2, 5):
    try:
        line = _socket.socket(1, kind)
        line.connect(sys.argv[1])
        print("reached")
    except PermissionError:
        print("refused")
print([end.fileno() > 0 for end in _socket.socketpair(1, 1)])
"""
    with socket.socket(socket.AF_UNIX) as ears:
        ears.bind(str(short_folder / "socket"))
        ears.listen()
        done = await run([*PYTHON, script, str(short_folder / "socket")], Referee())

    assert done.stdout == "refused\nrefused\nrefused\n[True, True]\n"


async def test_an_allowed_name_that_resolves_to_this_machine_is_refused() -> None:
    """Upstream: even a listed name must not lead into the private network."""
    referee = Referee("rebound.test")

    async with website() as (port, heads):
        policy = NetworkPolicy()
        done = await fetch(referee, f"http://rebound.test:{port}/", policy=policy)

    assert done.stdout.startswith("403 blocked-by-allowlist ")
    assert (heads, referee.blocked) == ([], [("rebound.test", "not_allowed_local")])


async def test_an_address_that_was_allowed_by_its_own_spelling_may_be_local() -> None:
    async with website() as (port, _heads):
        url = f"http://127.0.0.1:{port}/"
        done = await fetch(Referee("127.0.0.1"), url, policy=NetworkPolicy())

    assert done == Done(0, "200 hello\n", "")


async def test_a_limited_network_is_read_only() -> None:
    referee, policy = Referee("allowed.test"), NetworkPolicy(allows_local=True, is_limited=True)
    post = """
import urllib.request, urllib.error, sys
try:
    urllib.request.urlopen(sys.argv[1], b"data", 20)
except urllib.error.HTTPError as error:
    print(error.code, error.headers["x-proxy-error"])
"""
    async with website() as (port, heads):
        url = f"http://allowed.test:{port}/"
        read = await fetch(referee, url, policy=policy)
        written = await run([*PYTHON, post, url], referee, policy)
        tunnel = await run([*PYTHON, CONNECT, f"allowed.test:{port}"], referee, policy)

    assert read.stdout == "200 hello\n"
    assert written.stdout == "403 blocked-by-method-policy\n"
    assert tunnel.stdout.startswith("HTTP/1.1 403 Forbidden\n")
    assert len(heads) == 1


@pytest.mark.parametrize("is_limited", [True, False])
async def test_a_second_request_is_not_forwarded(*, is_limited: bool) -> None:
    """Ours: it could be for another host, or do more than read."""
    script = """
import _socket, sys
line = _socket.socket()
line.connect(("127.0.0.1", int(sys.argv[2])))
first = f"GET {sys.argv[1]} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
line.send((first + "POST /second HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n").encode())
while line.recv(1000):
    pass
print("ended")
"""
    policy = NetworkPolicy(allows_local=True, is_limited=is_limited)

    async with website() as (port, heads):
        url = f"http://allowed.test:{port}/first"
        done = await run([*PYTHON, script, url, str(PORT)], Referee("allowed.test"), policy)

    assert done.stdout == "ended\n"
    assert [head.split(b" ")[1] for head in heads] == [b"/first"]


@pytest.mark.parametrize(
    "request_line",
    [
        "GET / HTTP/1.1",
        "GET https://allowed.test/ HTTP/1.1",
        "CONNECT allowed.test HTTP/1.1",
        "CONNECT allowed.test:99999 HTTP/1.1",
        "CONNECT al lowed.test:80 HTTP/1.1",
        "CONNECT al\\x00lowed.test:80 HTTP/1.1",
        "GET http://allowed.test/ HTTP/1.1\\nX: y",
        "GET http://allowed.test/ HTTP/1.1\\r\\nX: y\\n\\nPOST / HTTP/1.1",
        "GET http://allowed.test/ HTTP/1.1\\r\\n folded: y",
        "GET http://allowed.test/ HTTP/2",
        "GET http://user@/ HTTP/1.1",
        "nonsense",
    ],
)
async def test_an_invalid_proxy_request_is_answered_with_an_error(request_line: str) -> None:
    script = f"""
import _socket
line = _socket.socket()
line.connect(("127.0.0.1", {PORT}))
line.send(b"{request_line}\\r\\nHost: x\\r\\n\\r\\n")
print(line.recv(1000).split(b"\\r\\n")[0].decode())
"""
    referee = Referee("allowed.test")

    done = await run([*PYTHON, script], referee)

    assert (done.stdout, referee.judged) == ("HTTP/1.1 400 Bad Request\n", [])


async def test_a_host_that_does_not_answer_is_reported_as_such() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://allowed.test:{closed.getsockname()[1]}/"
        done = await fetch(Referee("allowed.test"), url)

    assert done.stdout.startswith("502 None upstream failure: ")


async def test_the_command_gets_the_same_environment_as_without_a_proxy() -> None:
    """Ours: setting up the proxy leaves no descriptor, signal or variable behind."""
    shell = ["/bin/sh", "-c", "ls /proc/self/fd; grep ^Sig /proc/self/status; env | sort"]
    variables = environment(NetworkPolicy())

    proxied = await run(shell, Referee(), NetworkPolicy())
    process, output = await start(
        shell, Confinement(), env={"PATH": os.environ["PATH"], **variables}
    )
    await process.wait()

    assert proxied.stdout == output.text


async def test_a_command_on_a_terminal_has_its_proxy_too() -> None:
    async with website() as (port, _heads):
        argv = ["python3", "-c", _PLAIN, f"http://allowed.test:{port}/"]
        done = await run(argv, Referee("allowed.test"), size=(24, 80))

    assert done == Done(0, "hello True\r\n", "")


_PLAIN = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).read().decode(), sys.stdin.isatty())
"""


async def test_a_command_with_limited_reads_has_its_proxy_too() -> None:
    confinement = Confinement(has_proxy=True, readable=PLATFORM_FOLDERS)

    argv = ["/bin/sh", "-c", f"test -e {Path.home()} || echo hidden; echo $HTTP_PROXY"]
    done = await run(argv, Referee(), confinement=confinement)

    assert done == Done(0, f"hidden\nhttp://127.0.0.1:{PORT}\n", "")


async def test_a_missing_program_is_reported() -> None:
    with pytest.raises(FileNotFoundError):
        await run(["no-such-program"], Referee())


def _descriptors() -> list[str]:
    """Return the open descriptors of this process."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(f"{entry.name} {entry.readlink()}")
    return sorted(found)


async def test_nothing_remains_of_a_proxy(tmp_path: Path) -> None:
    await run(["true"], Referee())  # starts what all commands share
    before = _descriptors()

    async with website() as (port, _heads):
        await fetch(Referee("allowed.test"), f"http://allowed.test:{port}/")
    with pytest.raises(FileNotFoundError):
        await run([str(tmp_path / "missing")], Referee())

    async with asyncio.timeout(SECONDS):
        while not set(_descriptors()) <= set(before):  # noqa: ASYNC110 - guards end unannounced
            await asyncio.sleep(0.01)


async def test_a_kill_closes_the_connections_of_a_proxy() -> None:
    """Ours: an approval that a connection waits for is no longer needed."""
    waiting, cut = asyncio.Event(), asyncio.Event()

    async def judge(_destination: Destination) -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()

    tasks = BackgroundTasks()
    proxy = EgressProxy(NetworkPolicy(), tasks, judge=judge)
    async with asyncio.timeout(SECONDS):
        process, _output = await start(
            [*PYTHON, FETCH, "http://allowed.test/"],
            PROXIED,
            env={"PATH": os.environ["PATH"], **environment(NetworkPolicy())},
            proxy=proxy,
        )
        await waiting.wait()
        process.kill()
        await cut.wait()
        assert await process.wait() == 137
    await tasks.close()


async def test_without_namespaces_a_proxy_is_refused_with_a_reason(
    working: dict[str, Backend],
) -> None:
    """Ours: Landlock distinguishes ports, but not hosts."""
    if "landlock" not in working:
        pytest.skip("landlock does not work here")

    with using(working["landlock"]), pytest.raises(SandboxUnavailable, match="bubblewrap"):
        await run(["true"], Referee(), confinement=PROXIED)
