"""Commands with an egress proxy, and servers outside for them to reach."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.sandbox.commands import PYTHON, SECONDS, Done, start
from treadle.sandbox.network.environment import environment
from treadle.sandbox.network.policy import Blocked, Destination, NetworkPolicy
from treadle.sandbox.network.proxy import EgressProxy
from treadle.sandbox.policy import Confinement
from treadle.support.concurrency.tasks import BackgroundTasks

FETCH = """
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try:
        answer = urllib.request.urlopen(url, timeout=20)
        print(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        print(error.code, error.headers["x-proxy-error"], error.read().decode())
    except OSError as error:
        print("failed", error)
"""
PROXIED = Confinement(has_proxy=True)


class Referee:
    """Allows named hosts, and records what it was asked."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        self.judged: list[Destination] = []
        self.blocked: list[tuple[str, str]] = []

    async def judge(self, destination: Destination) -> None:
        """Deny by raising."""
        self.judged.append(destination)
        if destination.host not in self.allowed:
            raise Blocked("not_allowed")

    def on_blocked(self, destination: Destination, blocked: Blocked) -> None:
        """Record a denial."""
        self.blocked.append((destination.host, blocked.reason))


async def loopback(_host: str, _port: int) -> list[str]:
    """Resolve every name to this machine."""
    return ["127.0.0.1"]


async def run(
    argv: list[str],
    referee: Referee,
    policy: NetworkPolicy | None = None,
    *,
    confinement: Confinement = PROXIED,
    size: tuple[int, int] | None = None,
) -> Done:
    """Run a command with an egress proxy to its end; nothing of the proxy may remain."""
    policy = policy or NetworkPolicy(allows_local=True)
    tasks = BackgroundTasks()
    proxy = EgressProxy(
        policy, tasks, judge=referee.judge, on_blocked=referee.on_blocked, resolve=loopback
    )
    env = {"PATH": os.environ["PATH"], **environment(policy)}
    try:
        async with asyncio.timeout(SECONDS):
            process, output = await start(argv, confinement, size=size, env=env, proxy=proxy)
            code = await process.wait()
    finally:
        await tasks.close()
    return Done(code, output.text, output.stderr.decode())


async def fetch(referee: Referee, *urls: str, policy: NetworkPolicy | None = None) -> Done:
    """Run a command that fetches pages one after the other."""
    return await run([*PYTHON, FETCH, *urls], referee, policy)


@asynccontextmanager
async def website(address: str = "127.0.0.1") -> AsyncIterator[tuple[int, list[bytes]]]:
    """Run a server on this machine, outside every sandbox: its port, and what it received."""
    heads: list[bytes] = []

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(on_connection, address, 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heads
