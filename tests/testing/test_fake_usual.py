"""The defaults of a fake match the protocol; errors in a test's own plays are reported."""

from __future__ import annotations

import asyncio
import sys

import msgspec
import pytest

from treadle import AsyncClient, Client, Disconnected, ServerExited
from treadle.protocol.base import JsonValue
from treadle.protocol.client_requests import CLIENT_REQUESTS
from treadle.protocol.notifications import SERVER_NOTIFICATIONS
from treadle.testing import FakeAppServer, FakeConnection, fake
from treadle.transport.base import Transport
from treadle.transport.memory import memory_pair
from treadle.transport.subprocess import spawn

SECONDS = 30
REQUESTS: dict[str, JsonValue] = {
    "initialize": {"clientInfo": {"name": "t", "version": "1"}},
    "thread/start": {},
    "thread/resume": {"threadId": "thr-9"},
    "thread/read": {"threadId": "thr-9"},
    "turn/start": {"threadId": "thr-9", "input": []},
    "turn/steer": {"threadId": "thr-9", "expectedTurnId": "turn-9", "input": []},
    "turn/interrupt": {"threadId": "thr-9", "turnId": "turn-9"},
    "model/list": {},
}


async def receive_until(transport: Transport, method: str) -> list[JsonValue]:
    messages: list[JsonValue] = []
    while all(each.get("method") != method for each in messages):
        frames = await transport.receive()
        messages += [msgspec.json.decode(frame) for frame in frames if isinstance(frame, bytes)]
    return messages


async def test_every_default_answer_and_notification_has_its_type() -> None:
    ours, theirs = memory_pair()
    server = FakeAppServer()
    server.on("done", fake.notifies("done", {}))
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(server.attach(theirs))
        for method, params in REQUESTS.items():
            document = {"id": method, "method": method, "params": params}
            await ours.send([msgspec.json.encode(document)])
        await ours.send([b'{"method": "done"}'])
        messages = await receive_until(ours, "turn/completed")
        await ours.close()

    answered = {each["id"]: each["result"] for each in messages if "result" in each}
    assert answered.keys() == REQUESTS.keys()
    for method, result in answered.items():
        msgspec.convert(result, CLIENT_REQUESTS[method].result)
    events = [each for each in messages if "method" in each and each["method"] != "done"]
    for event in events:
        msgspec.convert(event["params"], SERVER_NOTIFICATIONS[event["method"]].params)
    assert {event["method"] for event in events} == {
        "thread/started",
        "turn/started",
        "item/started",
        "item/agentMessage/delta",
        "item/completed",
        "thread/tokenUsage/updated",
        "turn/completed",
    }


async def test_an_error_in_a_play_is_raised_at_the_end() -> None:
    async def play(_connection: FakeConnection, request: JsonValue) -> None:
        assert request["params"] == {"limit": 1}, "a wrong limit"

    server = FakeAppServer().on("model/list", play)

    async def list_models() -> None:
        async with (
            asyncio.timeout(SECONDS),
            server.websocket() as url,
            AsyncClient(url, reconnect=False) as client,
        ):
            with pytest.raises(Disconnected):
                await client.list_models()

    with pytest.raises(AssertionError, match="a wrong limit"):
        await list_models()


async def test_a_process_ends_with_its_exit_code_and_stderr() -> None:
    server = FakeAppServer().on("model/list", fake.exits(7, "first\nlast words\n"))
    async with (
        asyncio.timeout(SECONDS),
        server.command() as command,
        AsyncClient(command) as client,
    ):
        with pytest.raises(ServerExited, match="last words") as caught:
            await client.list_models()
    assert caught.value.exit_code == 7


async def test_a_process_ends_with_its_input() -> None:
    async with asyncio.timeout(SECONDS), FakeAppServer().command() as command:
        transport = spawn(command)
        await transport.close()
        assert transport.exit_code == 0, transport.stderr_tail


async def test_turns_of_several_plays_are_several_turns() -> None:
    server = FakeAppServer().on("turn/start", fake.turn("One."), fake.turn("Two."))
    async with AsyncClient(server) as client:
        thread = await client.start_thread()
        ids = [(await thread.run("hi")).turn.id for _ in range(3)]
    assert ids == ["turn-1", "turn-2", "turn-3"]


async def test_a_client_that_reconnects_is_another_connection() -> None:
    server = FakeAppServer().on("model/list", fake.hangs_up(), fake.answers({"data": []}))
    async with asyncio.timeout(SECONDS), server.websocket() as url, AsyncClient(url) as client:
        await client.list_models()
    assert [connection.number for connection in server.connections] == [1, 2]
    assert [len(server.received(method)) for method in ("initialize", "model/list")] == [2, 2]


def test_a_blocking_client_accepts_the_fake_too() -> None:
    server = FakeAppServer().on("turn/start", fake.turn("at once"))
    with Client(server) as client:
        assert client.start_thread().run("hi").agent_message == "at once"
    assert [params["input"][0]["text"] for params in server.received("turn/start")] == ["hi"]


def test_a_method_needs_a_play() -> None:
    with pytest.raises(ValueError, match="nothing to play for model/list"):
        FakeAppServer().on("model/list")


def test_the_process_imports_no_other_module_of_the_package() -> None:
    from treadle.testing.fake import relay

    # As a plugin's module it is rewritten by pytest, which adds its own names.
    names = {name for name, value in vars(relay).items() if type(value) is type(sys)}
    imported = {name for name in names if not name.startswith("@")}
    assert imported == {"os", "select", "socket", "sys"}
