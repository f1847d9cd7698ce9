"""Turns that are stopped, given up, or not heard of."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.conftest import Reach
from tests.client.fake import THREAD, TURN
from treadle import AsyncClient, Disconnected, EventsLost, TurnInterrupted, TurnTimeout
from treadle.client._runtime import notifications, turn_state
from treadle.client.events import (
    AgentMessageDelta,
    ItemCompleted,
    TextDelta,
    ThreadStarted,
    TurnStarted,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.item import AgentMessageThreadItem
from treadle.protocol.thread import Thread
from treadle.protocol.turn import Turn
from treadle.testing import FakeAppServer, FakeConnection, VirtualClock, fake

INTERRUPT = {"threadId": THREAD, "turnId": TURN}


async def test_cancelling_whoever_waits_interrupts_the_turn(server: Reach) -> None:
    """The server is asked until it agrees: the reference refuses right after the start."""
    async with server("endless") as (client, heard), client:
        thread = await client.start_thread()
        began = asyncio.Event()
        client.on("item:agentMessage:delta", lambda _delta: began.set())
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(thread.run("hi"))
            await began.wait()
            running.cancel()
        assert running.cancelled()
        await client.close()
        assert heard.calls("turn/interrupt") == [INTERRUPT] * 3


async def test_cancelling_before_the_turn_is_known_interrupts_it_all_the_same(
    in_memory: Reach,
) -> None:
    async with in_memory("endless") as (client, heard), client:
        thread = await client.start_thread()
        ended = asyncio.Event()
        client.on("turn:completed", lambda _turn: ended.set())
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(thread.run("hi"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running.cancel()
        await ended.wait()
    assert heard.calls("turn/interrupt") == [INTERRUPT] * 3


async def test_leaving_a_stream_early_interrupts_the_turn(in_memory: Reach) -> None:
    async with in_memory("endless") as (client, heard), client:
        thread = await client.start_thread()
        async with thread.stream("hi") as stream:
            async for event in stream:
                assert isinstance(event, TurnStarted)
                break
        with pytest.raises(TurnInterrupted):
            await stream.result()
    assert heard.calls("turn/interrupt") == [INTERRUPT] * 3


async def test_a_turn_can_be_stopped_and_tells_it(in_memory: Reach) -> None:
    async with in_memory("endless") as (client, _), client:
        thread = await client.start_thread()
        turn = await thread.start_turn("hi")
        await turn.interrupt()
        with pytest.raises(TurnInterrupted) as caught:
            await turn.result()
    assert caught.value.turn == Turn(id=TURN, items=[], status="interrupted")


async def test_a_turn_that_is_silent_for_too_long_is_given_up(in_memory: Reach) -> None:
    async with in_memory("mute", turn_idle_timeout=0.01) as (client, heard), client:
        thread = await client.start_thread()
        with pytest.raises(TurnTimeout) as caught:
            await thread.run("hi")
        assert (caught.value.seconds, caught.value.is_total) == (0.01, False)
        await client.close()
    assert heard.calls("turn/interrupt") == [INTERRUPT]


async def test_a_turn_may_be_given_a_total_time(in_memory: Reach) -> None:
    async with in_memory("mute") as (client, _), client:
        thread = await client.start_thread()
        with pytest.raises(TurnTimeout) as caught:
            await thread.run("hi", timeout=0.01)
    assert caught.value.is_total


async def test_the_total_time_begins_before_the_turn_does(virtual_clock: VirtualClock) -> None:
    """And the turn is stopped all the same, once the server has said which one it is."""
    told = asyncio.Event()

    async def start_late(connection: FakeConnection, request: JsonValue) -> None:
        await told.wait()
        turn = {"id": f"turn-{request['id']}", "items": [], "status": "inProgress"}
        await connection.answer(request, {"turn": turn})

    server = FakeAppServer().on("turn/start", start_late).on("turn/interrupt", fake.answers({}))
    with virtual_clock:
        async with AsyncClient(server) as client:
            thread = await client.start_thread()
            with pytest.raises(TurnTimeout) as caught:
                await thread.run("hi", timeout=5)
            with pytest.raises(TurnTimeout):
                await thread.start_turn("hi", timeout=5)
            told.set()
    assert (caught.value.seconds, caught.value.is_total) == (5, True)
    assert len(server.received("turn/interrupt")) == 2


async def test_closing_waits_until_a_turn_that_was_just_cancelled_is_stopped(
    in_memory: Reach,
) -> None:
    async with in_memory("endless") as (client, heard), client:
        thread = await client.start_thread()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(thread.run("hi"))
            await asyncio.sleep(0)
            running.cancel()
    assert heard.calls("turn/interrupt") == [INTERRUPT] * 3


async def test_a_silent_turn_is_looked_up_before_it_is_given_up(in_memory: Reach) -> None:
    """Users, 18: what told of the end may have been lost."""
    async with in_memory("lost ending", turn_idle_timeout=0.01) as (client, heard), client:
        thread = await client.start_thread()
        result = await thread.run("hi")
    assert result.items == [AgentMessageThreadItem(id="item-1", text="told by nobody")]
    assert heard.calls("turn/interrupt") == []


async def test_named_events_give_what_their_names_say(in_memory: Reach) -> None:
    """Seed 001: the client's own events, in order."""
    told: list[object] = []
    async with in_memory("usual") as (client, _):

        @client.on("item:agentMessage:delta")
        async def hear(delta: TextDelta) -> None:
            await asyncio.sleep(0)
            told.append(delta)

        client.on("turn:started", told.append)
        client.on("item:completed", told.append)
        ended = asyncio.Event()
        client.on("turn:completed", told.append)
        client.on("turn:completed", lambda _turn: ended.set())
        async with client:
            thread = await client.start_thread()
            await thread.run("hi")
            await ended.wait()
    assert told == [
        Turn(id=TURN, items=[], status="inProgress"),
        TextDelta("item-1", "Hel", THREAD, TURN),
        TextDelta("item-1", "lo", THREAD, TURN),
        AgentMessageThreadItem(id="item-1", text="Hello"),
        Turn(id=TURN, items=[], status="completed"),
    ]


async def test_a_listener_that_raises_or_left_is_no_trouble(
    in_memory: Reach, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[object] = []

    def left(_turn: Turn) -> None:
        raise AssertionError("it was taken off")

    def broken(_turn: Turn) -> None:
        raise ValueError("oops")

    async with in_memory("usual") as (client, _):
        client.on("turn:completed", broken)
        client.on("turn:completed", left)
        client.off("turn:completed", left)
        client.on("turn:completed", heard.append)
        async with client:
            thread = await client.start_thread()
            await thread.run("hi")
            await thread.run("hi")
    assert heard == [Turn(id=TURN, items=[], status="completed")] * 2
    assert [record.message for record in caplog.records] == ["listener failed"] * 2


async def test_the_stream_of_the_server_has_what_belongs_to_no_turn(in_memory: Reach) -> None:
    async with in_memory("announces") as (client, _), client:
        events = client.events()
        thread = await client.start_thread()
        await thread.run("hi")
        told = [await anext(events) for _ in range(2)]
        await events.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    assert [type(event).__name__ for event in told] == [
        "ThreadStartedNotification",
        "WarningNotification",
    ]
    assert isinstance(getattr(told[0], "thread", None), Thread)


async def test_closing_the_client_ends_its_streams(in_memory: Reach) -> None:
    async with in_memory("endless") as (client, _), client:
        thread = await client.start_thread()
        turn = await thread.start_turn("hi")
        events = client.events()
        while not isinstance(await anext(turn), AgentMessageDelta):
            pass
        await client.close()
        with pytest.raises(Disconnected):
            await anext(turn)
        assert [event async for event in events] == []
        with pytest.raises(Disconnected):
            await client.list_models()


async def test_a_reader_that_falls_too_far_behind_is_told_how_much_it_missed(
    in_memory: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues are bounded, and nothing is dropped in silence."""
    monkeypatch.setattr(turn_state, "MAX_UNREAD", 2)
    monkeypatch.setattr(notifications, "MAX_UNREAD", 1)
    async with in_memory("announces") as (client, _), client:
        events = client.events()
        thread = await client.start_thread()
        turn = await thread.start_turn("hi")
        result = await turn.result()
        assert result.turn.status == "completed"
        assert isinstance(await anext(events), ThreadStarted)
        with pytest.raises(EventsLost) as caught:
            await anext(events)
        assert caught.value.count == 1
    async with in_memory("usual") as (client, _), client:
        thread = await client.start_thread()
        turn = await thread.start_turn("hi")
        assert (await turn.result()).agent_message == "Hello"
        assert isinstance(await anext(turn), TurnStarted)
        await anext(turn)
        with pytest.raises(EventsLost) as lost:
            await anext(turn)
    assert lost.value.count == 7


async def test_two_inputs_that_the_server_puts_into_one_turn_both_get_its_result(
    in_memory: Reach,
) -> None:
    async with in_memory("joins") as (client, _), client:
        thread = await client.start_thread()
        first = await thread.start_turn("one")
        while not isinstance(await anext(first), ItemCompleted):
            pass
        second = await thread.run("two")
        assert await first.result() == second
    assert [getattr(item, "text", None) for item in second.items] == ["one", "two"]


async def test_a_turn_is_started_once_however_many_wait_for_it(in_memory: Reach) -> None:
    async with in_memory("usual") as (client, heard), client:
        thread = await client.start_thread()
        turn = thread.stream("hi")
        async with asyncio.TaskGroup() as tasks:
            results = [tasks.create_task(turn.result()) for _ in range(3)]
    assert {result.result().agent_message for result in results} == {"Hello"}
    assert len(heard.calls("turn/start")) == 1


async def test_a_client_that_is_not_connected_says_so_at_once(in_memory: Reach) -> None:
    async with in_memory("usual") as (client, _):
        with pytest.raises(Disconnected, match="not connected"):
            await client.list_models()


async def test_two_who_connect_at_once_share_one_handshake(in_memory: Reach) -> None:
    async with in_memory("usual") as (client, heard):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.connect())
            tasks.create_task(client.connect())
        await client.close()
        with pytest.raises(Disconnected, match="closed"):
            await client.connect()
    assert len(heard.calls("initialize")) == 1
