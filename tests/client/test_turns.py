"""Turns that are interrupted, time out, or send no events."""

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


async def test_cancelling_the_waiting_task_interrupts_the_turn(server: Reach) -> None:
    """The interrupt is repeated until it works: the reference refuses it right after the start."""
    async with server("endless") as (client, log), client:
        thread = await client.start_thread()
        began = asyncio.Event()
        client.on("item:agentMessage:delta", lambda _delta: began.set())
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(thread.run("hi"))
            await began.wait()
            running.cancel()
        assert running.cancelled()
        await client.close()
        assert log.calls("turn/interrupt") == [INTERRUPT] * 3


async def test_cancelling_before_the_turn_id_is_known_interrupts_it_all_the_same(
    in_memory: Reach,
) -> None:
    async with in_memory("endless") as (client, log), client:
        thread = await client.start_thread()
        ended = asyncio.Event()
        client.on("turn:completed", lambda _turn: ended.set())
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(thread.run("hi"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running.cancel()
        await ended.wait()
    assert log.calls("turn/interrupt") == [INTERRUPT] * 3


async def test_leaving_a_stream_early_interrupts_the_turn(in_memory: Reach) -> None:
    async with in_memory("endless") as (client, log), client:
        thread = await client.start_thread()
        async with thread.stream("hi") as stream:
            async for event in stream:
                assert isinstance(event, TurnStarted)
                break
        with pytest.raises(TurnInterrupted):
            await stream.result()
    assert log.calls("turn/interrupt") == [INTERRUPT] * 3


async def test_an_interrupted_turn_is_reported_as_such(in_memory: Reach) -> None:
    async with in_memory("endless") as (client, _), client:
        thread = await client.start_thread()
        turn = await thread.start_turn("hi")
        await turn.interrupt()
        with pytest.raises(TurnInterrupted) as caught:
            await turn.result()
    assert caught.value.turn == Turn(id=TURN, items=[], status="interrupted")


async def test_a_turn_that_is_idle_for_too_long_times_out(in_memory: Reach) -> None:
    async with in_memory("mute", turn_idle_timeout=0.01) as (client, log), client:
        thread = await client.start_thread()
        with pytest.raises(TurnTimeout) as caught:
            await thread.run("hi")
        assert (caught.value.seconds, caught.value.is_total) == (0.01, False)
        await client.close()
    assert log.calls("turn/interrupt") == [INTERRUPT]


async def test_a_turn_can_have_a_total_timeout(in_memory: Reach) -> None:
    async with in_memory("mute") as (client, _), client:
        thread = await client.start_thread()
        with pytest.raises(TurnTimeout) as caught:
            await thread.run("hi", timeout=0.01)
    assert caught.value.is_total


async def test_the_total_timeout_includes_the_start_of_the_turn(
    virtual_clock: VirtualClock,
) -> None:
    """The turn is interrupted all the same, once the server has sent its id."""
    may_answer = asyncio.Event()

    async def start_late(connection: FakeConnection, request: JsonValue) -> None:
        await may_answer.wait()
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
            may_answer.set()
    assert (caught.value.seconds, caught.value.is_total) == (5, True)
    assert len(server.received("turn/interrupt")) == 2


async def test_closing_waits_until_a_turn_that_was_just_cancelled_is_stopped(
    in_memory: Reach,
) -> None:
    async with in_memory("endless") as (client, log), client:
        thread = await client.start_thread()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(thread.run("hi"))
            await asyncio.sleep(0)
            running.cancel()
    assert log.calls("turn/interrupt") == [INTERRUPT] * 3


async def test_an_idle_turn_is_read_before_it_times_out(in_memory: Reach) -> None:
    """Users, 18: the notification of the end may have been lost."""
    async with in_memory("lost ending", turn_idle_timeout=0.01) as (client, log), client:
        thread = await client.start_thread()
        result = await thread.run("hi")
    assert result.items == [AgentMessageThreadItem(id="item-1", text="stored only")]
    assert log.calls("turn/interrupt") == []


async def test_named_events_deliver_what_their_names_say(in_memory: Reach) -> None:
    """Seed 001: the client's own events, in order."""
    received: list[object] = []
    async with in_memory("usual") as (client, _):

        @client.on("item:agentMessage:delta")
        async def hear(delta: TextDelta) -> None:
            await asyncio.sleep(0)
            received.append(delta)

        client.on("turn:started", received.append)
        client.on("item:completed", received.append)
        ended = asyncio.Event()
        client.on("turn:completed", received.append)
        client.on("turn:completed", lambda _turn: ended.set())
        async with client:
            thread = await client.start_thread()
            await thread.run("hi")
            await ended.wait()
    assert received == [
        Turn(id=TURN, items=[], status="inProgress"),
        TextDelta("item-1", "Hel", THREAD, TURN),
        TextDelta("item-1", "lo", THREAD, TURN),
        AgentMessageThreadItem(id="item-1", text="Hello"),
        Turn(id=TURN, items=[], status="completed"),
    ]


async def test_a_listener_that_raises_or_is_removed_does_no_harm(
    in_memory: Reach, caplog: pytest.LogCaptureFixture
) -> None:
    turns: list[object] = []

    def left(_turn: Turn) -> None:
        raise AssertionError("it was taken off")

    def broken(_turn: Turn) -> None:
        raise ValueError("oops")

    async with in_memory("usual") as (client, _):
        client.on("turn:completed", broken)
        client.on("turn:completed", left)
        client.off("turn:completed", left)
        client.on("turn:completed", turns.append)
        async with client:
            thread = await client.start_thread()
            await thread.run("hi")
            await thread.run("hi")
    assert turns == [Turn(id=TURN, items=[], status="completed")] * 2
    assert [record.message for record in caplog.records] == ["listener failed"] * 2


async def test_the_stream_of_the_server_has_notifications_outside_turns(in_memory: Reach) -> None:
    async with in_memory("announces") as (client, _), client:
        events = client.events()
        thread = await client.start_thread()
        await thread.run("hi")
        announced = [await anext(events) for _ in range(2)]
        await events.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    assert [type(event).__name__ for event in announced] == [
        "ThreadStartedNotification",
        "WarningNotification",
    ]
    assert isinstance(getattr(announced[0], "thread", None), Thread)


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


async def test_a_reader_that_falls_too_far_behind_learns_how_much_it_missed(
    in_memory: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues are bounded, and nothing is dropped silently."""
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


async def test_two_inputs_in_one_turn_both_get_its_result(
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


async def test_a_turn_is_started_once_however_many_tasks_wait_for_it(in_memory: Reach) -> None:
    async with in_memory("usual") as (client, log), client:
        thread = await client.start_thread()
        turn = thread.stream("hi")
        async with asyncio.TaskGroup() as tasks:
            results = [tasks.create_task(turn.result()) for _ in range(3)]
    assert {result.result().agent_message for result in results} == {"Hello"}
    assert len(log.calls("turn/start")) == 1


async def test_a_client_that_is_not_connected_raises_at_once(in_memory: Reach) -> None:
    async with in_memory("usual") as (client, _):
        with pytest.raises(Disconnected, match="not connected"):
            await client.list_models()


async def test_concurrent_connects_share_one_handshake(in_memory: Reach) -> None:
    async with in_memory("usual") as (client, log):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.connect())
            tasks.create_task(client.connect())
        await client.close()
        with pytest.raises(Disconnected, match="closed"):
            await client.connect()
    assert len(log.calls("initialize")) == 1
