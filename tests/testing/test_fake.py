"""The fake app-server, over every transport: it follows its plays, and records messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

import pytest

from treadle import (
    AsyncClient,
    Disconnected,
    RequestRefused,
    RequestTimeout,
    ServerExited,
    TurnFailed,
    approve_all,
)
from treadle.client.connectors import Where
from treadle.client.events import UnknownNotification
from treadle.client.options import ClientOptions
from treadle.protocol.base import JsonValue
from treadle.testing import FakeAppServer, fake
from treadle.transport.memory import memory_pair

SECONDS = 50
TRANSPORTS = ("memory", "command", "websocket", "unix")
NO_MODELS: JsonValue = {"data": [], "nextCursor": None}
SOME_MODELS: JsonValue = {"data": [], "nextCursor": "more"}
APPROVAL = "item/commandExecution/requestApproval"

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)


@asynccontextmanager
async def reached(server: FakeAppServer, transport: str) -> AsyncIterator[Where]:
    """Yield what a client needs to connect to the fake."""
    async with asyncio.timeout(SECONDS):
        match transport:
            case "memory":
                yield server
            case "command":
                async with server.command() as command:
                    yield command
            case "websocket":
                async with server.websocket() as url:
                    yield url
            case _:
                async with server.unix() as path:
                    yield path


@asynccontextmanager
async def connected(
    server: FakeAppServer, transport: str, **options: Unpack[ClientOptions]
) -> AsyncIterator[AsyncClient]:
    """Yield a client of the fake that does not reconnect."""
    options.setdefault("reconnect", False)
    async with reached(server, transport) as where, AsyncClient(where, **options) as client:
        yield client


async def test_a_fake_without_plays_is_a_small_app_server(transport: str) -> None:
    server = FakeAppServer()
    async with connected(server, transport) as client:
        thread = await client.start_thread()
        first, second = await thread.run("one"), await thread.run("two")
        await client.read_thread(thread.id)
    assert (first.agent_message, second.agent_message) == ("Hello", "Hello")
    assert [turn.turn.id for turn in (first, second)] == ["turn-1", "turn-2"]
    texts = [params["input"][0]["text"] for params in server.received("turn/start")]
    assert texts == ["one", "two"]
    assert server.messages[0]["method"] == "initialize"


async def test_a_turn_sends_a_request_and_its_answer_is_recorded(transport: str) -> None:
    server = FakeAppServer().on("turn/start", fake.turn("ran", asks=[(APPROVAL, None)]))
    async with connected(server, transport, approvals=approve_all) as client:
        result = await (await client.start_thread()).run("hi")
    assert result.agent_message == "ran"
    assert server.answers == {"ask-1": {"result": {"decision": "accept"}}}


async def test_overload_ends_after_the_given_number_of_requests(transport: str) -> None:
    server = FakeAppServer()
    server.on("model/list", fake.overloaded(), fake.overloaded(), fake.answers(SOME_MODELS))
    async with connected(server, transport) as client:
        assert (await client.list_models()).next_cursor == "more"
        assert (await client.list_models()).next_cursor == "more"
    assert len(server.received("model/list")) == 4


async def test_an_error_has_its_code_and_its_data(transport: str) -> None:
    server = FakeAppServer().on("model/list", fake.refuses(-32000, "no", {"kind": "odd"}))
    async with connected(server, transport) as client:
        with pytest.raises(RequestRefused, match="no") as caught:
            await client.list_models()
    assert (caught.value.code, caught.value.kind) == (-32000, "odd")


async def test_an_unknown_method_is_refused_by_name(transport: str) -> None:
    async with connected(FakeAppServer(), transport) as client:
        with pytest.raises(RequestRefused, match="the fake has no config/read"):
            await client.read_config()


@pytest.mark.parametrize("play", [fake.never(), fake.wrong_id(NO_MODELS), fake.freezes()])
async def test_a_request_may_never_be_answered(transport: str, play: fake.Play) -> None:
    server = FakeAppServer().on("model/list", play)
    async with connected(server, transport, request_timeout=0.5) as client:
        with pytest.raises(RequestTimeout):
            await client.list_models()
    assert len(server.connections) == 1


async def test_a_second_answer_to_one_request_does_no_harm(transport: str) -> None:
    server = FakeAppServer().on("model/list", fake.twice(SOME_MODELS), fake.answers(NO_MODELS))
    async with connected(server, transport) as client:
        assert (await client.list_models()).next_cursor == "more"
        assert (await client.list_models()).next_cursor is None


async def test_a_frozen_server_reads_nothing(transport: str) -> None:
    server = FakeAppServer().on("model/list", fake.freezes())
    async with connected(server, transport, request_timeout=0.5) as client:
        for _ in range(2):
            with pytest.raises(RequestTimeout):
                await client.list_models()
    assert len(server.received("model/list")) == 1


@pytest.mark.parametrize("play", [fake.hangs_up(), fake.tears(), fake.exits(3, "the end\n")])
async def test_a_closed_connection_fails_all_waiting_calls(transport: str, play: fake.Play) -> None:
    server = FakeAppServer().on("model/list", play)
    async with connected(server, transport) as client:
        with pytest.raises((Disconnected, ServerExited)):
            await client.list_models()


async def test_a_torn_connection_ends_inside_a_message(transport: str) -> None:
    server = FakeAppServer().on("x", fake.tears(b'{"half": '))
    async with reached(server, transport) as where:
        received = await _raw_bytes(where)
    assert received == {"memory": b"", "command": b'{"half": '}.get(transport, b'\x81I{"half": ')


async def test_junk_is_sent_unchanged(transport: str) -> None:
    junk = [b"no JSON", b'{"half": ', b'{"method": "brand/new", "params": {"text": "\\ud83d"}}']
    play = fake.steps(fake.raw(*junk), fake.answers(SOME_MODELS))
    server = FakeAppServer().on("model/list", play)
    async with connected(server, transport) as client:
        events = client.events()
        assert (await client.list_models()).next_cursor == "more"
        event = await anext(aiter(events))
    assert isinstance(event, UnknownNotification)
    assert event.method == "brand/new"


async def test_a_message_of_32_mib_is_sent(transport: str) -> None:
    server = FakeAppServer().on("model/list", fake.huge(SOME_MODELS))
    async with connected(server, transport) as client:
        assert (await client.list_models()).next_cursor == "more"


async def test_a_turn_fails_with_its_cause(transport: str) -> None:
    error = {"message": "too much", "codexErrorInfo": "usageLimitExceeded"}
    server = FakeAppServer().on("turn/start", fake.turn("some", error=error))
    async with connected(server, transport) as client:
        thread = await client.start_thread()
        with pytest.raises(TurnFailed, match="too much") as caught:
            await thread.run("hi")
    assert caught.value.codex_error_info == "usageLimitExceeded"


async def test_a_test_can_wait_for_a_message_of_the_client(transport: str) -> None:
    server = FakeAppServer()
    async with connected(server, transport) as client, asyncio.TaskGroup() as tasks:
        second_call = tasks.create_task(server.wait_for("model/list", 2))
        await client.list_models()
        assert not second_call.done()
        await client.list_models()
    assert second_call.result() == {}


async def _raw_bytes(where: Where) -> bytes:
    """Send one notification, and return all bytes that come back."""
    words = b'{"method": "x"}'
    if isinstance(where, FakeAppServer):
        ours, theirs = memory_pair()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(where.attach(theirs))
            await ours.send([words])
            return b"".join(each for each in await ours.receive() if isinstance(each, bytes))
    if isinstance(where, list):
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*where, stdin=pipe, stdout=pipe)
        return (await process.communicate(words + b"\n"))[0]
    if isinstance(where, str):
        host, _, port = where.removeprefix("ws://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
    else:
        reader, writer = await asyncio.open_unix_connection(str(where))
    writer.write(
        b"GET /rpc HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        # Masked with zeros.
        + bytes([0x81, 0x80 | len(words), 0, 0, 0, 0])
        + words
    )
    await reader.readuntil(b"\r\n\r\n")
    received = await reader.read()
    writer.close()
    return received
