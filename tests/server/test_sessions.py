"""What the server keeps per client, and which notifications each client gets."""

from __future__ import annotations

import asyncio
import json

from tests.harness.lines import attached, local_server
from treadle.jsonrpc import envelope
from treadle.protocol.feature import MockExperimentalMethodParams
from treadle.protocol.method import Notification
from treadle.protocol.notifications import SERVER_NOTIFICATIONS
from treadle.transport.memory import memory_pair

CLOSED = SERVER_NOTIFICATIONS["thread/closed"]
ARCHIVED = SERVER_NOTIFICATIONS["thread/archived"]


def params(thread_id: str, method: str) -> object:
    return SERVER_NOTIFICATIONS[method].params_decoder.decode(
        json.dumps({"threadId": thread_id}).encode()
    )


async def test_a_client_gets_what_it_did_not_opt_out_of() -> None:
    async with local_server() as server, attached(server) as peer:
        await peer.initialize(optOutNotificationMethods=["thread/closed", "thread/", "nope"])
        (session,) = server.sessions
        await session.notify(CLOSED, params("a", "thread/closed"))
        await session.notify(ARCHIVED, params("b", "thread/archived"))
        assert await peer.receive() == {
            "method": "thread/archived",
            "params": {"threadId": "b"},
            "emittedAtMs": 7,
        }


async def test_a_client_gets_nothing_until_its_handshake() -> None:
    async with local_server() as server, attached(server) as peer:
        assert await peer.replies() == []
        (session,) = server.sessions
        await session.notify(CLOSED, params("a", "thread/closed"))
        await peer.initialize()


async def test_experimental_notifications_are_sent_on_request_only() -> None:
    method = Notification("test/experimental", MockExperimentalMethodParams, experimental=True)
    for is_experimental in (False, True):
        async with local_server() as server, attached(server) as peer:
            await peer.initialize(experimentalApi=is_experimental)
            (session,) = server.sessions
            await session.notify(method, MockExperimentalMethodParams("x"))
            expected = {"method": method.method, "params": {"value": "x"}, "emittedAtMs": 7}
            notifications = [message for message in await peer.replies() if "method" in message]
            assert notifications == ([expected] if is_experimental else [])


async def test_a_server_that_stops_disconnects_all_clients_and_accepts_none() -> None:
    async with local_server() as server:
        idle = asyncio.Event()
        server.when_idle(idle.set)
        async with attached(server) as one, attached(server) as two:
            await one.initialize()
            await two.initialize()
            server.finish()
            assert [message for peer in (one, two) for message in await peer.receive_all()] == []
            await idle.wait()
        async with attached(server) as late:
            assert server.sessions == set()
            assert await late.receive_all() == []


async def test_an_initialize_that_was_answered_early_counts() -> None:
    line = b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}'
    assert isinstance(envelope.decode(line), envelope.RequestMessage)
    ours, theirs = memory_pair()
    async with asyncio.timeout(20), local_server() as server, asyncio.TaskGroup() as tasks:
        tasks.create_task(server.attach(theirs, answered=line))
        await ours.send([line])
        (frame,) = await ours.receive()
        assert isinstance(frame, bytes)
        assert json.loads(frame)["error"]["message"] == "Already initialized"
        await ours.close()
