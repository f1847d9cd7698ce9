"""Many requests at once, and clients that do not read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.harness.lines import Connect, SharedServers, attached, local_server
from tests.harness.peer import Peer
from tests.harness.processes import listening
from treadle.connection.outbound import MAX_OUTBOUND_BYTES
from treadle.protocol.base import JsonValue
from treadle.transport.websocket.listener import connect_websocket

COUNT = 4000
MIB = 1024 * 1024


def echo(id_: int, value: str = "") -> JsonValue:
    return {"id": id_, "method": "mock/experimentalMethod", "params": {"value": value}}


async def test_4000_pipelined_requests_get_4000_answers(connect: Connect) -> None:
    """Upstream answered 256 (0.118) and 2,701 (0.163) of them."""
    async with connect() as peer, asyncio.TaskGroup() as tasks:
        await peer.initialize(experimentalApi=True)
        tasks.create_task(peer.send(*map(echo, range(COUNT))))
        answers = [await peer.receive() for _ in range(COUNT)]
    assert answers == [{"id": id_, "result": {"echoed": ""}} for id_ in range(COUNT)]


class Flood:
    """Sends far more requests than the server buffers for a client that does not read."""

    def __init__(self, peer: Peer, count: int) -> None:
        self._peer = peer
        self._count = count
        self.sent = 0

    async def run(self) -> None:
        text = "x" * MIB
        for id_ in range(self._count):
            await self._peer.send(echo(id_, text))
            self.sent += 1

    async def stands_still(self, other: Peer) -> None:
        """Wait until nothing is sent while another client exchanges many messages."""
        before = -1
        while before != self.sent:
            before = self.sent
            for turn in range(300):
                assert await other.echo(str(turn)) == str(turn)


async def test_a_client_that_does_not_read_delays_no_other_client(
    shared_servers: SharedServers,
) -> None:
    async with asyncio.timeout(40), asyncio.TaskGroup() as tasks:
        slow = Peer(await connect_websocket(shared_servers.url))
        quick = Peer(await connect_websocket(shared_servers.url))
        await slow.initialize(experimentalApi=True)
        await quick.initialize(experimentalApi=True)
        flooding = tasks.create_task(Flood(slow, 60).run())
        for turn in range(200):
            assert await quick.echo(str(turn)) == str(turn)
        answered = [(await slow.receive())["id"] for _ in range(60)]
        await flooding
        assert answered == list(range(60))
        await slow.transport.close()
        await quick.transport.close()


@pytest.mark.timeout(120)
async def test_a_client_that_does_not_read_does_not_grow_the_server(home: Path) -> None:
    """The limit: the write buffer, the same again while it is encoded, and the program."""
    with listening(home, "--listen", "ws://127.0.0.1:0") as server:
        url = server.websocket_url()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            slow = Peer(await connect_websocket(url))
            other = Peer(await connect_websocket(url))
            await slow.initialize(experimentalApi=True)
            await other.initialize(experimentalApi=True)
            flood = Flood(slow, 400)
            flooding = tasks.create_task(flood.run())
            await flood.stands_still(other)
            assert flood.sent < 400
            peak = peak_bytes(server.process.pid)
            flooding.cancel()
            await slow.transport.close()
            await other.transport.close()
    assert peak < 8 * MAX_OUTBOUND_BYTES


def peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError("no peak of memory in /proc")


async def test_a_client_that_reads_late_has_lost_nothing() -> None:
    async with local_server() as server:
        async with attached(server) as peer, asyncio.TaskGroup() as tasks:
            await peer.initialize(experimentalApi=True)
            tasks.create_task(Flood(peer, 40).run())
            ids = [(await peer.receive())["id"] for _ in range(40)]
        assert ids == list(range(40))
        assert server.sessions == set()
