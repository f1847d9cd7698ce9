"""A server with a separate home, and clients of it in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.harness.peer import Peer
from tests.harness.sandbox import SANDBOX
from treadle.config.configuration import Configuration
from treadle.config.file import Overrides
from treadle.protocol.base import JsonValue
from treadle.server.server import Server
from treadle.transport.memory import memory_pair


def configuration(
    home: Path,
    text: str = "",
    *flags: str,
    environ: Mapping[str, str] | None = None,
    requirements: str | None = None,
) -> Configuration:
    """Return the configuration of a home with this config.toml, and nothing else set."""
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(text, "utf-8")
    system = home.parent / "system"
    system.mkdir(exist_ok=True)
    if requirements is not None:
        (system / "requirements.toml").write_text(requirements, "utf-8")
    return Configuration(home, Overrides.parse(flags), environ or {}, system=system)


@asynccontextmanager
async def client_of(server: Server, **capabilities: JsonValue) -> AsyncIterator[Peer]:
    """Yield an initialized client."""
    ours, theirs = memory_pair()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(server.attach(theirs), name="server")
        peer = Peer(ours)
        await peer.initialize(experimentalApi=True, **capabilities)
        try:
            yield peer
        finally:
            await ours.close()


@asynccontextmanager
async def running(configuration: Configuration) -> AsyncIterator[Server]:
    """Run a server with this configuration."""
    server = Server(sandbox=SANDBOX, configuration=configuration)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def serving(configuration: Configuration) -> AsyncIterator[Peer]:
    """Run a server with this configuration, and yield one client of it."""
    async with running(configuration) as server, client_of(server) as peer:
        yield peer


async def result(peer: Peer, method: str, params: JsonValue = None) -> JsonValue:
    """Send a request that must succeed, and return its result."""
    answer = await _answer(peer, method, params)
    assert "result" in answer, answer
    return answer["result"]


async def refusal(peer: Peer, method: str, params: JsonValue = None) -> JsonValue:
    """Send a request that must be refused, and return its error."""
    answer = await _answer(peer, method, params)
    assert "error" in answer, answer
    return answer["error"]


async def _answer(peer: Peer, method: str, params: JsonValue) -> JsonValue:
    """Return the answer; notifications about other things may arrive before it."""
    await peer.send({"id": "serving", "method": method, "params": params})
    while "id" not in (message := await peer.receive()):
        pass
    assert message.pop("id") == "serving", message
    return message


async def notifications(peer: Peer, count: int) -> list[JsonValue]:
    """Return the next notifications, without the time they were sent."""
    messages = [await peer.receive() for _ in range(count)]
    return [{"method": each["method"], "params": each["params"]} for each in messages]
