"""Broken connections: the client reconnects, and no event is lost or repeated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.client.conftest import Reach
from tests.client.fake import SCENARIOS, THREAD, Fake
from tests.client.scenarios import say_nothing
from tests.harness.scripted import playing
from treadle import AsyncClient, Disconnected, ServerUnavailable
from treadle.client._runtime.reconnect import Backoff
from treadle.client.events import (
    AgentMessageDelta,
    Event,
    ItemCompleted,
    TurnCompleted,
    TurnStarted,
)
from treadle.model.scripted.script import calls, says, thinks
from treadle.protocol.base import JsonValue
from treadle.protocol.item import AgentMessageThreadItem, DynamicToolCallThreadItem
from treadle.protocol.tool import InputTextDynamicToolCallOutputContentItem
from treadle.server.server import Server
from treadle.testing import FakeAppServer, fake
from treadle.transport.auth import CapabilityToken
from treadle.transport.base import Transport
from treadle.transport.websocket.listener import WebSocketListener

SECONDS = 30
AT_ONCE = Backoff(attempts=50, first_s=0.001, longest_s=0.01)


@pytest.mark.parametrize("server", ["websocket", "unix", "memory"], indirect=True)
async def test_a_server_with_event_numbers_is_asked_for_later_events(server: Reach) -> None:
    async with server("broken, counting", reconnect=AT_ONCE) as (client, log), client:
        thread = await client.start_thread()
        stream = thread.stream("hi")
        events = [event async for event in stream]
        result = await stream.result()
    assert [type(event).__name__.removesuffix("Notification") for event in events] == [
        "TurnStarted",
        "AgentMessageDelta",
        "ItemCompleted",
        "AgentMessageDelta",
        "ItemCompleted",
        "TurnCompleted",
    ]
    assert [item.text for item in result.items if isinstance(item, AgentMessageThreadItem)] == [
        "one",
        "two",
    ]
    assert log.calls("thread/resume") == [{"threadId": THREAD, "afterSeq": 3}]
    assert len(log.calls("initialize")) == 2


@pytest.mark.parametrize("server", ["websocket", "unix", "memory"], indirect=True)
async def test_from_a_server_without_event_numbers_the_thread_is_read_again(server: Reach) -> None:
    """Users, 4: stored items that were missed are reported now, under any id."""
    async with server("broken", reconnect=AT_ONCE) as (client, log), client:
        thread = await client.start_thread()
        result = await thread.run("hi")
    assert [getattr(item, "text", None) for item in result.items] == ["one", "two"]
    assert log.calls("thread/resume") == [{"threadId": THREAD, "afterSeq": 0}]


BEGUN: JsonValue = {"id": "t-1", "items": [], "status": "inProgress"}
IDS = {"threadId": "thr-1", "turnId": "t-1"}
LIVE = [
    ("item/agentMessage/delta", {**IDS, "itemId": "m-1", "delta": "rld"}),
    ("item/completed", {**IDS, "item": fake.message("hello world", "m-1")}),
    ("item/started", {**IDS, "item": fake.message("", "m-2")}),
    ("item/agentMessage/delta", {**IDS, "itemId": "m-2", "delta": "and"}),
    ("item/agentMessage/delta", {**IDS, "itemId": "m-2", "delta": " on"}),
    ("item/completed", {**IDS, "item": fake.message("and on", "m-2")}),
    ("turn/completed", {**IDS, "turn": {**BEGUN, "status": "completed"}}),
]
STORED = [fake.message("hello world", "stored-1"), fake.message("and on", "stored-2")]


@pytest.mark.parametrize(
    ("stored", "live", "expected"),
    [
        (BEGUN, LIVE, ["hel", "lo world", "m-1", "and", " on", "m-2"]),
        (
            {**BEGUN, "status": "completed", "items": STORED},
            [],
            ["hel", "lo world", "m-1", "and on", "stored-2"],
        ),
        (
            BEGUN,
            [("turn/completed", {**IDS, "turn": {**BEGUN, "items": STORED}})],
            ["hel", "lo world", "m-1", "and on", "stored-2"],
        ),
    ],
    ids=["it goes on", "it is over", "it ends with what was missed"],
)
async def test_missed_text_is_one_delta_before_its_message_completes(
    stored: JsonValue, live: list[tuple[str, JsonValue]], expected: list[str]
) -> None:
    """Without event numbers: events after a gap are held back until they fit."""
    begin = fake.steps(
        fake.answers({"turn": BEGUN}),
        fake.notifies("item/started", {**IDS, "item": fake.message("", "m-1")}),
        fake.notifies("item/agentMessage/delta", {**IDS, "itemId": "m-1", "delta": "hel"}),
        fake.hangs_up(),
    )
    session = {"thread": fake.thread(turns=[stored]), "model": "m", "cwd": "/"}
    resume = fake.steps(fake.answers(session), *(fake.notifies(*each) for each in live))
    server = FakeAppServer().on("turn/start", begin).on("thread/resume", resume)
    async with (
        asyncio.timeout(20),
        server.websocket() as url,
        AsyncClient(url, reconnect=AT_ONCE) as client,
    ):
        thread = await client.start_thread()
        events = [event async for event in thread.stream("hi")]
    parts = [
        event.delta if isinstance(event, AgentMessageDelta) else event.item.id
        for event in events
        if isinstance(event, AgentMessageDelta | ItemCompleted)
    ]
    assert parts == expected


async def test_a_turn_whose_end_is_not_stored_yet_is_read_again(in_memory: Reach) -> None:
    """Upstream: the reference briefly shows such a turn as interrupted."""
    async with in_memory("broken, unsure", reconnect=AT_ONCE) as (client, log), client:
        thread = await client.start_thread()
        result = await thread.run("hi")
    assert result.turn.status == "completed"
    assert [getattr(item, "text", None) for item in result.items] == ["one", "two"]
    assert len(log.calls("thread/read")) == 2


async def test_without_reconnect_a_broken_connection_fails_all_waiting_calls(
    in_memory: Reach,
) -> None:
    async with in_memory("broken", reconnect=False) as (client, _), client:
        thread = await client.start_thread()
        with pytest.raises(Disconnected):
            await thread.run("hi")


async def test_reconnecting_stops_when_the_server_does_not_return(short_folder: Path) -> None:
    few = Backoff(attempts=2, first_s=0.001, longest_s=0.001)
    server = Fake({**SCENARIOS["broken"], "turn/start": say_nothing}, short_folder / "heard")
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(server.unix())
        async with asyncio.timeout(20), AsyncClient(url, reconnect=few) as client:
            thread = await client.start_thread()
            waiting = asyncio.get_running_loop().create_task(thread.run("hi"))
            await asyncio.sleep(0)
            await stack.aclose()
            with pytest.raises(Disconnected):
                await waiting
            with pytest.raises(Disconnected):
                await client.list_models()


async def test_a_server_that_disconnects_at_every_turn_start_is_not_retried_for_ever() -> None:
    """Users need to learn that their message crashes the server."""
    server = FakeAppServer().on("turn/start", fake.hangs_up())
    async with AsyncClient(server) as client:
        thread = await client.start_thread()
        with pytest.raises(Disconnected):
            await thread.run("hi")
    assert len(server.received("turn/start")) == 10


async def test_a_token_is_sent_and_a_refused_one_is_not_retried(
    short_folder: Path,
) -> None:
    """Users, 5."""
    secret = short_folder / "token"
    secret.write_text("letmein")
    server = Fake({}, short_folder / "heard")
    listener = WebSocketListener("127.0.0.1", 0, auth=CapabilityToken.from_file(secret))
    await listener.start()
    url = "ws://{}:{}".format(*listener.address)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(listener.serve(server.attach))
        async with AsyncClient(url, token="letmein") as client:
            assert client.server.user_agent == "fake/0.1"
        with pytest.raises(ServerUnavailable) as caught:
            await AsyncClient(url, token="wrong").connect()
        serving.cancel()
    assert caught.value.is_final


class Cutter:
    """A listener whose connections can be cut."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._open: set[Transport] = set()
        self.cuts = 0
        self.returned = asyncio.Event()

    async def attach(self, transport: Transport) -> None:
        """Serve a client until it disconnects or is cut."""
        self._open.add(transport)
        if self.cuts:
            self.returned.set()
        try:
            await self._server.attach(transport)
        finally:
            self._open.discard(transport)

    async def cut(self) -> None:
        """Break every connection."""
        for transport in list(self._open):
            self.cuts += 1
            await transport.close()


@asynccontextmanager
async def cuttable(home: Path, script: JsonValue) -> AsyncIterator[tuple[Cutter, str]]:
    listener = WebSocketListener("127.0.0.1", 0)
    await listener.start()
    async with playing(home, script) as server, asyncio.TaskGroup() as tasks:
        cutter = Cutter(server)
        serving = tasks.create_task(listener.serve(cutter.attach))
        yield cutter, "ws://{}:{}".format(*listener.address)
        serving.cancel()


TEXT = "The quick brown fox jumps over the lazy dog."
PIECES = [TEXT[at : at + 3] for at in range(0, len(TEXT), 3)]
STEPS = (thinks("hm"), says(TEXT, deltas=PIECES)) * 6


def comparable(events: list[Event]) -> list[JsonValue]:
    """Return the events without what differs from run to run."""
    words = [event.delta for event in events if isinstance(event, AgentMessageDelta)]
    return [words, [type(event).__name__ for event in events]]


async def test_a_stream_that_is_cut_repeatedly_yields_each_event_once_and_in_order(
    home: Path,
) -> None:
    """Against a real server over real sockets."""
    chance = random.Random(3)  # noqa: S311 - the same cuts each time
    events: list[Event] = []
    async with (
        cuttable(home, [STEPS, STEPS]) as (cutter, url),
        AsyncClient(url, reconnect=AT_ONCE) as client,
    ):
        thread = await client.start_thread()
        whole = [event async for event in thread.stream("undisturbed")]
        async for event in thread.stream("cut"):
            events.append(event)
            if chance.random() < 0.2:
                await cutter.cut()
    assert cutter.cuts > 10
    assert isinstance(events[0], TurnStarted)
    assert isinstance(events[-1], TurnCompleted)
    assert comparable(events) == comparable(whole)


@pytest.mark.parametrize("is_quick", [True, False], ids=["answer lost", "still at it"])
async def test_a_server_request_from_before_a_cut_is_handled_once(
    home: Path, is_quick: bool
) -> None:
    """The server repeats the request over the new connection, and gets the first call's result."""
    called, may_end, numbers = asyncio.Event(), asyncio.Event(), count(1)

    async def order() -> str:
        """Order something."""
        number = next(numbers)
        called.set()
        await may_end.wait()
        return f"order {number}"

    script = [[calls("order", {})], ["Done."]]
    async with (
        asyncio.timeout(SECONDS),
        cuttable(home, script) as (cutter, url),
        AsyncClient(url, reconnect=AT_ONCE) as client,
    ):
        thread = await client.start_thread(tools=[order])
        turn = await thread.start_turn("Order one")
        await called.wait()
        await cutter.cut()
        if not is_quick:
            await cutter.returned.wait()
        may_end.set()
        result = await turn.result()
    assert (result.agent_message, next(numbers)) == ("Done.", 2)
    (item,) = [each for each in result.items if isinstance(each, DynamicToolCallThreadItem)]
    assert item.content_items == [InputTextDynamicToolCallOutputContentItem("order 1")]
