"""Who is told what: everybody of threads, subscribers of what happens in them, each once."""

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


def of_threads(told: list[JsonValue]) -> list[str]:
    """What is told to everybody, in order."""
    return [line for line in outline(told) if line.split(" ")[0] in TO_ALL]


async def test_everybody_is_told_of_threads_once_and_only_subscribers_of_their_turns(
    home: Path,
) -> None:
    async with (
        playing(home, SAME) as server,
        client_of(server) as subscriber,
        client_of(server) as bystander,
    ):
        answer = await subscriber.ask("thread/start", {})
        thread_id = answer["thread"]["id"]
        turn_id = await subscriber.begin(thread_id)
        told = await subscriber.end_of(turn_id)
        await subscriber.ask("thread/name/set", {"threadId": thread_id, "name": "Named"})
        told += await subscriber.settled()
        overheard = await bystander.settled()
        expected = [
            "thread/started",
            "thread/status/changed active",
            "thread/status/changed idle",
            "thread/name/updated",
        ]
        assert of_threads(told) == expected
        assert outline(overheard) == expected
        assert all("seq" not in message for message in overheard)
        numbers = [message["seq"] for message in told if "seq" in message]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_nobody_is_told_what_it_opted_out_of(home: Path) -> None:
    opted_out = ["thread/started", "item/agentMessage/delta", "thread/status/changed"]
    async with (
        playing(home, SAME) as server,
        client_of(server, optOutNotificationMethods=opted_out) as client,
    ):
        answer = await client.ask("thread/start", {})
        turn_id = await client.begin(answer["thread"]["id"])
        told = outline(await client.end_of(turn_id))
        assert not {line.split(" ")[0] for line in told} & set(opted_out)
        assert told[-1] == "turn/completed completed"


async def test_unsubscribing_in_the_middle_of_a_turn_ends_it_at_once(home: Path) -> None:
    go_on = asyncio.Event()
    script: list[Response] = [[says("first"), waits_for(go_on), says("second")]]
    async with (
        playing(home, script) as server,
        client_of(server) as leaver,
        client_of(server) as stayer,
    ):
        thread_id = await leaver.start()
        await stayer.ask("thread/resume", {"threadId": thread_id})
        turn_id = await leaver.begin(thread_id)
        await leaver.until("item/completed", lambda params: params["item"].get("text") == "first")
        answer = await leaver.ask("thread/unsubscribe", {"threadId": thread_id})
        assert answer == {"status": "unsubscribed"}
        leaver.unread.clear()
        go_on.set()
        await stayer.end_of(turn_id)
        # What is told to everybody still comes, once.
        assert outline(await leaver.settled()) == ["thread/status/changed idle"]


async def test_the_last_subscriber_is_told_once_that_the_thread_is_let_go(home: Path) -> None:
    async with playing(home, SAME) as server, client_of(server) as client:
        thread_id = await client.start()
        await client.run(thread_id)
        await client.ask("thread/unsubscribe", {"threadId": thread_id})
        assert outline(await client.settled()) == [
            "thread/status/changed notLoaded",
            "thread/closed",
        ]


@pytest.mark.parametrize("is_subscribed_first", [True, False])
async def test_a_change_at_the_moment_of_subscribing_or_leaving_is_told_once(
    home: Path, *, is_subscribed_first: bool
) -> None:
    """Ours: whichever of the two ways it comes, between two steps of the event loop."""
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
            thread.set_status(SystemErrorThreadStatus())
            session.unsubscribe(thread_id)
        else:
            thread.set_status(SystemErrorThreadStatus())
            session.subscribe(thread, thread.log.last_seq)
        assert outline(await other.settled()) == ["thread/status/changed systemError"]


async def test_resuming_twice_tells_nothing_twice(home: Path) -> None:
    async with playing(home, SAME) as server, client_of(server) as client:
        thread_id = await client.start()
        told = await client.run(thread_id)
        await client.ask("thread/resume", {"threadId": thread_id, "afterSeq": 0})
        again = await client.settled()
        told += again + await client.run(thread_id)
        numbers = [message["seq"] for message in told if "seq" in message]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_who_cannot_be_told_everything_any_more_is_hung_up_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: what is told to everybody is not stored, so a gap in it must not go unnoticed."""
    monkeypatch.setattr(log_module, "MAX_ANNOUNCED", 2)
    async with playing(home, SAME) as server, client_of(server) as client:
        for _ in range(9):
            server.threads.broadcast(n.THREAD_CLOSED, ThreadClosedNotification("t"))
        assert await client.peer.receive_all() == []
