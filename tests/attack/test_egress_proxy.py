"""Attacks on the egress proxy: spellings of local hosts, names that resolve to them, own ports.

Every attempt is made by a sandboxed command against the real proxy, over each of its protocols, and
a real server on the loopback interface counts the connections that reach it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.commands import bench
from tests.harness.sandbox import find_backend
from tests.sandbox.commands import PYTHON, SECONDS, start
from tests.sandbox.network.commands import FETCH, PROXIED
from treadle.engine.approvals import network
from treadle.engine.approvals.network import create_fixed_egress_proxy
from treadle.engine.commands.rule_file import read_rules
from treadle.engine.commands.rules import Rules
from treadle.protocol.base import JsonValue
from treadle.protocol.network import NetworkDomainPermission
from treadle.sandbox.network import http
from treadle.sandbox.network.environment import environment
from treadle.sandbox.network.hosts import normal
from treadle.sandbox.network.policy import NetworkPolicy
from treadle.sandbox.network.proxy import PORT
from treadle.sandbox.network.tunnel import MAX_LOOKUPS, Resolve, Resolver
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.transport.websocket.listener import WebSocketListener

LOOPBACK = [
    *("127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1"),
    *("017700000001", "127.0.0.1.", "127.0.0.1..", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]"),
    *("[0:0:0:0:0:ffff:127.0.0.1]", "%31%32%37.0.0.1", "127%2e0%2e0%2e1"),
    *("\uff11\uff12\uff17.0.0.1", "127\u30020\uff0e0\uff611", "\u2460\u2461\u2466.0.0.1"),
]
"""Spellings of the one address on which the server waits."""

LOCAL = [
    *("localhost", "LOCALHOST", "localhost.", "a.localhost", "lOcalhost.", "%6cocalhost"),
    *("0.0.0.0", "0", "127.9.9.9", "[::1]", "[::]", "[0::1]", "[::127.0.0.1]", "[::1%251]"),  # noqa: S104 - to refuse
    *("169.254.169.254", "0xa9fea9fe", "[fd00:ec2::254]", "[fe80::1]", "[fe80::1%25lo]"),
    *("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "224.0.0.1", "255.255.255.255"),
    *("[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[fec0::1]", "[ff02::1]"),
    *("[2001:0:7f00:1::]", "[fc00::1]", "[fe80::5efe:7f00:1]"),
]
"""Other hosts that are not of the public network."""

ADDRESSES = [
    *("127.0.0.1", "::ffff:127.0.0.1", "::1", "::", "0.0.0.0", "169.254.169.254"),  # noqa: S104 - to refuse
    *("64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1", "fd00:ec2::254", "::127.0.0.1"),
]
"""Addresses as SOCKS sends them, in bytes."""

# Reads [protocol, host] pairs and prints one verdict for each: "refused", or what came through.
ATTEMPTS = f"""
import json, socket, sys
attempts, port = json.loads(sys.argv[1]), int(sys.argv[2])
for way, host in attempts:
    line = socket.create_connection(("127.0.0.1", {PORT}), 20)
    if way == "connect":
        line.sendall(f"CONNECT {{host}}:{{port}} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
        answer = line.recv(4096)
        is_open = b" 200 " in answer
    elif way == "http":
        line.sendall(f"GET http://{{host}}:{{port}}/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
        answer = line.recv(4096)
        is_open = b" 200 " in answer
    else:
        line.sendall(b"\\x05\\x01\\x00")
        line.recv(2)
        if way == "name":
            kind, where = 3, host.encode()
            where = bytes([len(where)]) + where
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            kind, where = 4 if ":" in host else 1, socket.inet_pton(family, host)
        line.sendall(b"\\x05\\x01\\x00" + bytes([kind]) + where + port.to_bytes(2, "big"))
        answer = line.recv(10)
        is_open = answer[1:2] == b"\\x00"
    if is_open and way != "http":
        line.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        line.recv(4096)
    line.close()
    verdict = "denied" if b"denylist" in answer else "refused"
    print("reached" if is_open else verdict, flush=True)
"""


OWN = """
from ipaddress import ip_address
from treadle.sandbox.network.own_addresses import is_own
print(*[is_own(ip_address(f"203.0.114.{last}")) for last in (10, 11, 12)])
"""


class Target(NamedTuple):
    """A server on every loopback address, and how many connections have reached it."""

    port: int
    reached: list[str]


class Attempt(NamedTuple):
    """A protocol of the egress proxy, and the host to request over it."""

    way: str
    host: str


def by_name(hosts: Sequence[str]) -> list[Attempt]:
    """Return attempts over every protocol that sends the host as text."""
    return [Attempt(way, host) for way in ("connect", "http", "name") for host in hosts]


def by_address(addresses: Sequence[str]) -> list[Attempt]:
    """Return attempts over the protocol that sends the host as bytes."""
    return [Attempt("address", address) for address in addresses]


@asynccontextmanager
async def target() -> AsyncIterator[Target]:
    """Wait for connections that must not arrive."""
    reached: list[str] = []

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(str(writer.get_extra_info("sockname")[0]))
        with suppress(OSError, EOFError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(on_connection, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        if not socket.has_ipv6:
            yield Target(port, reached)
            return
        async with await asyncio.start_server(on_connection, "::1", port):
            yield Target(port, reached)


async def attempt(
    attempts: Sequence[Attempt],
    port: int,
    policy: NetworkPolicy,
    *,
    rules: str = "",
    resolve: Resolve | None = None,
) -> dict[Attempt, str]:
    """Have a sandboxed command make the attempts, one after the other."""
    if (await find_backend()).name != "bubblewrap":
        pytest.skip("the egress proxy needs bubblewrap")
    tasks = BackgroundTasks()
    proxy = create_fixed_egress_proxy(
        policy, Rules([read_rules(rules, "test")]), tasks, resolve=resolve
    )
    env = {"PATH": os.environ["PATH"], **environment(policy)}
    argv = [*PYTHON, ATTEMPTS, json.dumps(attempts), str(port)]
    try:
        async with asyncio.timeout(SECONDS):
            process, output = await start(argv, PROXIED, env=env, proxy=proxy)
            await process.wait()
    finally:
        await tasks.close()
    assert not output.stderr, output.stderr.decode()
    return dict(zip(attempts, output.text.splitlines(), strict=True))


Entries = tuple[tuple[str, NetworkDomainPermission], ...]
EVERYTHING: Entries = (("*", "allow"),)
NO_LOOPBACK: Entries = (("127.0.0.1", "deny"), ("::1", "deny"))


async def test_a_wildcard_opens_no_local_address() -> None:
    attempts = [*by_name([*LOOPBACK, *LOCAL]), *by_address(ADDRESSES)]

    async with target() as (port, reached):
        verdicts = await attempt(attempts, port, NetworkPolicy(domains=EVERYTHING))

    assert {each for each, verdict in verdicts.items() if verdict == "reached"} == set()
    assert reached == []


async def test_an_entry_that_names_an_address_allows_every_spelling_of_it_and_no_other() -> None:
    policy = NetworkPolicy(domains=(*EVERYTHING, ("127.1", "allow")))
    opened = [*by_name(LOOPBACK), *by_address(["127.0.0.1", "::ffff:127.0.0.1"])]
    closed = by_name(LOCAL)

    async with target() as (port, reached):
        verdicts = await attempt([*opened, *closed], port, policy)

    assert {each for each, verdict in verdicts.items() if verdict == "reached"} == set(opened)
    assert set(reached) == {"127.0.0.1"}


async def test_a_denied_address_is_denied_in_every_spelling_and_under_every_name() -> None:
    """An allowed name resolves to it, as an attacker's name server can arrange."""
    policy = NetworkPolicy(domains=(*EVERYTHING, ("0x7f.1", "deny")), allows_local=True)
    attempts = [
        *by_name([*LOOPBACK, "localhost", "rebound.test", "[64:ff9b::7f00:1]"]),
        *by_address(["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]),
    ]

    async def lead_home(_host: str, _port: int) -> list[str]:
        return ["::1", "::ffff:127.0.0.1"]

    async with target() as (port, reached):
        verdicts = await attempt(attempts, port, policy, resolve=lead_home)

    assert reached == []
    assert {verdict for each, verdict in verdicts.items() if each.way in ("connect", "http")} == {
        "denied"
    }


async def test_a_denied_loopback_address_is_not_reached_through_the_unspecified_address() -> None:
    """The kernel connects 0.0.0.0 and :: to loopback."""
    unspecified = ["0.0.0.0", "0", "0x0", "[::]", "[::ffff:0.0.0.0]"]  # noqa: S104 - to refuse
    attempts = [*by_name(unspecified), *by_address(["0.0.0.0", "::"])]  # noqa: S104 - to refuse

    async with target() as (port, reached):
        policy = NetworkPolicy(domains=(*EVERYTHING, *NO_LOOPBACK), allows_local=True)
        verdicts = await attempt(attempts, port, policy)

    assert (reached, "reached" in verdicts.values()) == ([], False)


def test_every_address_of_this_machine_counts_as_local() -> None:
    """A second address in one subnet is reached from the first, in a network created for this."""
    script = "; ".join(
        [
            "ip link set lo up && ip link add v0 type veth && ip link set v0 up",
            "ip addr add 203.0.114.10/24 dev v0 && ip addr add 203.0.114.11/24 dev v0 || exit 77",
            f"exec {shlex.join([sys.executable, '-c', OWN])}",
        ]
    )
    if (unshare := shutil.which("unshare")) is None:
        pytest.skip("no program to make a network with")
    argv = [unshare, "-rn", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2):
        pytest.skip(f"no network can be made here: {done.stderr}")
    assert (done.stdout, done.stderr) == ("True True False\n", "")


@pytest.mark.parametrize("host", ["\ufdfa" * 20_000, "\u00e9." * 20_000, "%ef%b7%ba" * 7_000])
def test_a_host_that_is_too_long_is_not_decoded(host: str) -> None:
    """IDNA took four seconds for one of these, on the event loop."""
    for _ in range(100):
        with pytest.raises(ValueError, match="too long"):
            normal(host)


def test_a_request_that_is_not_utf_8_is_answered() -> None:
    """Each left a traceback in the server's log, as many as a command could send."""
    with pytest.raises(ValueError, match="invalid host") as caught:
        http.read_request("GET http://\u2100".encode() + b"\x80/ HTTP/1.1\r\nHost: x\r\n\r\n")
    assert http.answer(HTTPStatus.BAD_REQUEST, str(caught.value)).startswith(b"HTTP/1.1 400 ")


async def test_a_rule_about_an_address_forbids_every_name_for_it() -> None:
    policy = NetworkPolicy(domains=EVERYTHING, allows_local=True)
    rules = 'network_rule(host="0177.0.0.1", protocol="https", decision="deny")'

    async def lead_home(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async with target() as (port, reached):
        attempts = by_name(["rebound.test", "127.1"])
        verdicts = await attempt(attempts, port, policy, rules=rules, resolve=lead_home)

    assert reached == []
    assert "reached" not in verdicts.values()


@pytest.mark.parametrize("answer", [["127.0.0.1"], ["192.0.2.1", "127.0.0.1"], ["::1"]])
async def test_an_allowed_name_opens_no_local_address(answer: list[str]) -> None:
    """As in 0.163.0, also if the name has its own entry, and if one of many addresses is local."""
    policy = NetworkPolicy(domains=(*EVERYTHING, ("rebound.test", "allow")))
    lookups: list[str] = []

    async def lead_home(host: str, _port: int) -> list[str]:
        lookups.append(host)
        return answer

    async with target() as (port, reached):
        attempts = by_name(["rebound.test"])
        verdicts = await attempt(attempts, port, policy, resolve=lead_home)

    assert set(verdicts.values()) == {"refused"}
    assert (reached, lookups) == ([], ["rebound.test"] * len(attempts))


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """A name server that would answer differently the second time is queried only once."""
    policy = NetworkPolicy(domains=(*EVERYTHING, ("127.0.0.1", "deny")), allows_local=True)
    answers = iter([["::1"], ["127.0.0.1"]])

    async def flip(_host: str, _port: int) -> list[str]:
        return next(answers)

    async with target() as (port, reached):
        verdicts = await attempt([Attempt("http", "flip.test")], port, policy, resolve=flip)

    assert (list(verdicts.values()), reached) == (["reached"], ["::1"])


async def test_the_egress_proxy_never_connects_to_a_listener_of_its_own_server() -> None:
    """Not even where local hosts are allowed and the address has its own entry."""
    domains = (*EVERYTHING, ("127.0.0.1", "allow"), ("::1", "allow"), ("localhost", "allow"))
    policy = NetworkPolicy(domains=domains, allows_local=True)
    listener = WebSocketListener("127.0.0.1", 0)
    await listener.start()
    try:
        port = listener.address[1]
        attempts = [*by_name([*LOOPBACK, "localhost", "0.0.0.0"]), *by_address(["127.0.0.1"])]  # noqa: S104 - to refuse
        verdicts = await attempt(attempts, port, policy)
    finally:
        listener.close()

    assert "reached" not in verdicts.values()


async def test_a_configured_wildcard_opens_no_local_address_for_a_thread(home: Path) -> None:
    config = """
[sandbox_workspace_write]
network_access = true
[features.network_proxy]
enabled = true
[features.network_proxy.domains]
"*" = "allow"
"""
    if (await find_backend()).name != "bubblewrap":
        pytest.skip("the egress proxy needs bubblewrap")
    params: dict[str, JsonValue] = {"approvalPolicy": "never", "sandbox": "workspace-write"}
    async with target() as (port, reached), bench(home, config, **params) as on:
        urls = [f"http://{host}:{port}/" for host in ("127.0.0.1", "127.1", "localhost", "[::1]")]
        script = shlex.join(["python3", "-c", FETCH, *urls])
        _messages, output = await on.call("exec_command", {"cmd": script, "login": False})

    assert reached == []
    assert output.count("local and private addresses are not allowed") >= len(urls)


async def test_hosts_of_one_command_are_recorded_up_to_a_limit(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (await find_backend()).name != "bubblewrap":
        pytest.skip("the egress proxy needs bubblewrap")
    monkeypatch.setattr(network, "MAX_RECORDED", 3)
    config = """
[sandbox_workspace_write]
network_access = true
[features.network_proxy]
enabled = true
"""
    params: dict[str, JsonValue] = {"approvalPolicy": "never", "sandbox": "workspace-write"}
    async with bench(home, config, **params) as on:
        urls = [f"http://host{number}.test/" for number in range(6)]
        script = shlex.join(["python3", "-c", FETCH, *urls])
        _messages, output = await on.call("exec_command", {"cmd": script, "login": False})

    assert output.count("403 blocked-by-allowlist") == len(urls)
    assert output.count("was blocked: ") == 3
    assert output.endswith("\nNetwork access to further hosts was blocked.\n")


async def test_slow_lookups_of_a_command_delay_no_other_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, waiting = threading.Event(), threading.Semaphore(0)

    def slow(*_arguments: object, **_more: object) -> list[JsonValue]:
        waiting.release()
        go_on.wait(SECONDS)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    resolver = Resolver()
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(resolver("slow.test", 443))
        for _ in range(MAX_LOOKUPS):
            await asyncio.to_thread(waiting.acquire)
        assert await asyncio.to_thread(lambda: "done") == "done"
        assert not waiting.acquire(blocking=False)
        go_on.set()
