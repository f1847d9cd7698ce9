"""Delivery: all clients learn of threads, subscribers of the events in them, each once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.harness.scripted import client_of, playing
from tests.harness.threads import outline
from treadle.engine.events import log as log_module
from treadle.model.scripted.script import Response, Script, says, waits_for
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.status import SystemErrorThreadStatus
from treadle.protocol.thread_manage import ThreadClosedNotification

SAME = Script(responses=[[says("hello", deltas=2)]], then="repeat")
TO_ALL = ("thread/started", "thread/status/changed", "thread/name/updated", "thread/closed")


def of_threads(messages: list[JsonValue]) -> list[str]:
    """Return the broadcast notifications, in order."""
    return [line for line in outline(messages) if line.split(" ")[0] in TO_ALL]


async def test_all_clients_are_notified_of_threads_once_and_only_subscribers_of_turns(
    home: Path,
) -> None:
    async with (
        playing(home, SAME) as server,
        client_of(server) as subscriber,
        client_of(server) as bystander,
    ):
        answer = await subscriber.request("thread/start", {})
        thread_id = answer["thread"]["id"]
        turn_id = await subscriber.start_turn(thread_id)
        messages = await subscriber.end_of(turn_id)
        await subscriber.request("thread/name/set", {"threadId": thread_id, "name": "Named"})
        messages += await subscriber.settled()
        overheard = await bystander.settled()
        expected = [
            "thread/started",
            "thread/status/changed active",
            "thread/status/changed idle",
            "thread/name/updated",
        ]
        assert of_threads(messages) == expected
        assert outline(overheard) == expected
        assert all("seq" not in message for message in overheard)
        numbers = [message["seq"] for message in messages if "seq" in message]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_no_client_gets_what_it_opted_out_of(home: Path) -> None:
    opted_out = ["thread/started", "item/agentMessage/delta", "thread/status/changed"]
    async with (
        playing(home, SAME) as server,
        client_of(server, optOutNotificationMethods=opted_out) as client,
    ):
        answer = await client.request("thread/start", {})
        turn_id = await client.start_turn(answer["thread"]["id"])
        messages = outline(await client.end_of(turn_id))
        assert not {line.split(" ")[0] for line in messages} & set(opted_out)
        assert messages[-1] == "turn/completed completed"


async def test_unsubscribing_during_a_turn_takes_effect_at_once(home: Path) -> None:
    go_on = asyncio.Event()
    script: list[Response] = [[says("first"), waits_for(go_on), says("second")]]
    async with (
        playing(home, script) as server,
        client_of(server) as leaver,
        client_of(server) as stayer,
    ):
        thread_id = await leaver.start()
        await stayer.request("thread/resume", {"threadId": thread_id})
        turn_id = await leaver.start_turn(thread_id)
        await leaver.until("item/completed", lambda params: params["item"].get("text") == "first")
        answer = await leaver.request("thread/unsubscribe", {"threadId": thread_id})
        assert answer == {"status": "unsubscribed"}
        leaver.unread.clear()
        go_on.set()
        await stayer.end_of(turn_id)
        # Broadcasts still arrive, once.
        assert outline(await leaver.settled()) == ["thread/status/changed idle"]


async def test_the_last_subscriber_is_notified_once_that_the_thread_is_unloaded(home: Path) -> None:
    async with playing(home, SAME) as server, client_of(server) as client:
        thread_id = await client.start()
        await client.run(thread_id)
        await client.request("thread/unsubscribe", {"threadId": thread_id})
        assert outline(await client.settled()) == [
            "thread/status/changed notLoaded",
            "thread/closed",
        ]


@pytest.mark.parametrize("is_subscribed_first", [True, False])
async def test_a_change_during_a_subscribe_or_unsubscribe_is_delivered_once(
    home: Path, *, is_subscribed_first: bool
) -> None:
    """Ours: by either of the two ways, between two iterations of the event loop."""
    async with (
        playing(home, SAME) as server,
        client_of(server) as maker,
        client_of(server) as other,
    ):
        thread_id = await maker.start()
        await other.until("thread/started")
        thread = server.threads.get(thread_id)
        session = next(
            each for each in server.sessions if not each.unsubscribe(thread_id)
        )  # the one that was not subscribed
        if is_subscribed_first:
            session.subscribe(thread, thread.log.last_seq)
            await other.settled()
            thread.state.set_status(SystemErrorThreadStatus())
            session.unsubscribe(thread_id)
        else:
            thread.state.set_status(SystemErrorThreadStatus())
            session.subscribe(thread, thread.log.last_seq)
        assert outline(await other.settled()) == ["thread/status/changed systemError"]


async def test_resuming_twice_repeats_no_event(home: Path) -> None:
    async with playing(home, SAME) as server, client_of(server) as client:
        thread_id = await client.start()
        messages = await client.run(thread_id)
        await client.request("thread/resume", {"threadId": thread_id, "afterSeq": 0})
        again = await client.settled()
        messages += again + await client.run(thread_id)
        numbers = [message["seq"] for message in messages if "seq" in message]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_a_client_that_has_missed_broadcasts_is_disconnected(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: broadcasts are not stored, so a gap in them must not go unnoticed."""
    monkeypatch.setattr(log_module, "MAX_ANNOUNCED", 2)
    async with playing(home, SAME) as server, client_of(server) as client:
        for _ in range(9):
            server.threads.services.broadcast(n.THREAD_CLOSED, ThreadClosedNotification("t"))
        assert await client.peer.receive_all() == []
