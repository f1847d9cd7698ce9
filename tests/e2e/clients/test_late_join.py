"""Clients that join a thread at different times, each with its own position."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.harness.scripted import PacedModel, client_of, playing
from tests.harness.threads import Client, outline, words
from treadle.engine.events.log import DELTAS
from treadle.model.base import ModelEvent, ModelTextDelta
from treadle.model.scripted.script import Response, Script, says, thinks
from treadle.protocol.base import JsonValue

PIECES = ["one ", "two ", "three ", "four"]
ANSWER: Response = [thinks("hm"), says("one two three four", deltas=PIECES)]
SAME = Script(responses=[ANSWER], then="repeat")


class Halfway:
    """Pauses the model in the middle of its message."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def pace(self, event: ModelEvent) -> None:
        if isinstance(event, ModelTextDelta) and event.delta == "three ":
            self.reached.set()
            await self.go_on.wait()


def events(messages: list[JsonValue]) -> list[JsonValue]:
    """The messages that have a sequence number."""
    return [message for message in messages if "seq" in message]


def stored(messages: list[JsonValue]) -> list[JsonValue]:
    """The events that are replayed at any later time: all but deltas."""
    return [event for event in events(messages) if event["method"] not in DELTAS]


def seqs(messages: list[JsonValue]) -> list[int]:
    return [message["seq"] for message in events(messages)]


async def resume(client: Client, thread_id: str, after: int | None = None) -> JsonValue:
    answer = await client.request("thread/resume", {"threadId": thread_id, "afterSeq": after})
    return answer["thread"]


async def test_a_client_that_joins_during_a_turn_receives_its_state_and_then_the_rest(
    home: Path,
) -> None:
    """Ours: the answer holds the complete items; the open item follows as it stands."""
    halfway = Halfway()
    model = PacedModel([ANSWER], halfway.pace)
    async with playing(home, model) as server, client_of(server) as first:
        thread_id = await first.start()
        turn_id = await first.start_turn(thread_id)
        await halfway.reached.wait()
        async with client_of(server) as late:
            thread = await resume(late, thread_id)
            joined = events(await late.settled())
            halfway.go_on.set()
            rest = events(await late.end_of(turn_id))
            whole = events(await first.end_of(turn_id))
    (turn,) = thread["turns"]
    assert turn["status"] == "inProgress"
    assert [item["type"] for item in turn["items"]] == ["userMessage", "reasoning"]
    assert [each["params"]["item"]["text"] for each in joined] == ["one two "]
    assert rest == [event for event in whole if event["seq"] > joined[-1]["seq"]]
    deltas = [each["params"]["delta"] for each in rest if each["method"].endswith("Message/delta")]
    assert deltas == ["three ", "four"]


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_each_client_receives_what_follows_its_own_position(
    home: Path, *, ephemeral: bool
) -> None:
    async with playing(home, SAME) as server, client_of(server) as first:
        thread_id = await first.start(ephemeral=ephemeral)
        whole = events(await first.run(thread_id))
        last = whole[-1]["seq"]
        assert seqs(whole) == list(range(1, last + 1))
        for after in (0, 1, last // 2, last - 1, last):
            async with client_of(server) as other:
                await resume(other, thread_id, after)
                messages = events(await other.settled())
                assert messages == [event for event in whole if event["seq"] > after]


async def test_a_position_beyond_the_end_is_rejected_and_the_thread_stays_free(home: Path) -> None:
    """Ours: such a position belongs to another history; accepting it would hide that."""
    async with playing(home, SAME) as server, client_of(server) as client:
        thread_id = await client.start()
        messages = await client.run(thread_id)
        last = seqs(messages)[-1]
        params = {"threadId": thread_id, "afterSeq": last + 1}
        refused = await client.refusal("thread/resume", params)
        assert (refused.code, refused.data["path"], refused.kind) == (
            -32600,
            "afterSeq",
            "invalidCursor",
        )
    async with playing(home, SAME) as server, client_of(server) as client:
        params = {"threadId": thread_id, "afterSeq": 2**60}
        refused = await client.refusal("thread/resume", params)
        assert refused.kind == "invalidCursor"
        thread = await resume(client, thread_id)
        assert words(thread) == [["hi", "reasoning", "one two three four"]]


async def test_sequence_numbers_only_grow_when_a_thread_is_loaded_again(home: Path) -> None:
    """Ours: a number that a delta once had is never used for another event."""
    async with playing(home, SAME) as server, client_of(server) as client:
        thread_id = await client.start()
        before = events(await client.run(thread_id))
    async with playing(home, SAME) as server, client_of(server) as client:
        await resume(client, thread_id, before[-1]["seq"])
        after = events(await client.run(thread_id))
        async with client_of(server) as other:
            await resume(other, thread_id, 0)
            replayed = events(await other.settled())
    first = after[0]["seq"]
    assert first > before[-1]["seq"]
    assert seqs(after) == list(range(first, first + len(after)))
    assert replayed == stored(before + after)


async def test_a_fork_counts_from_its_own_start(home: Path) -> None:
    async with playing(home, SAME) as server, client_of(server) as client:
        thread_id = await client.start()
        await client.run(thread_id)
        answer = await client.request("thread/fork", {"threadId": thread_id})
        fork_id = answer["thread"]["id"]
        messages = events(await client.run(fork_id))
        async with client_of(server) as other:
            await resume(other, fork_id, 0)
            everything = events(await other.settled())
    copied, own = everything[: -len(stored(messages))], everything[-len(stored(messages)) :]
    assert seqs(copied) + seqs(messages) == list(range(1, messages[-1]["seq"] + 1))
    assert own == stored(messages)
    assert {event["params"]["threadId"] for event in everything} == {fork_id}


@pytest.mark.parametrize("method", ["thread/revert", "thread/rollback"])
async def test_a_client_that_missed_a_rollback_receives_it_in_order(
    home: Path, method: str
) -> None:
    """Ours: the turns it missed, their removal, and what followed."""
    async with playing(home, SAME) as server, client_of(server) as client:
        thread_id = await client.start()
        after = seqs(await client.run(thread_id))[-1]
        gone = await client.start_turn(thread_id, "take this back")
        await client.end_of(gone)
        asked = {"beforeTurnId": gone} if method == "thread/revert" else {"numTurns": 1}
        await client.request(method, {"threadId": thread_id, **asked})
        await client.until("thread/reverted")
        await client.run(thread_id, "instead")
        async with client_of(server) as other:
            await resume(other, thread_id, after)
            messages = events(await other.settled())
        thread = await client.read(thread_id)
    turn_lines = [
        line for line in outline(messages) if line.startswith(("turn/", "thread/reverted"))
    ]
    assert turn_lines == [
        "turn/started",
        "turn/completed completed",
        "thread/reverted",
        "turn/started",
        "turn/completed completed",
    ]
    assert [turn[0] for turn in words(thread)] == ["hi", "instead"]


async def test_a_client_that_returns_after_the_end_of_a_turn_receives_that_end(home: Path) -> None:
    halfway = Halfway()
    model = PacedModel([ANSWER], halfway.pace)
    async with playing(home, model) as server:
        async with client_of(server) as client:
            thread_id = await client.start()
            turn_id = await client.start_turn(thread_id)
            await halfway.reached.wait()
            seen = seqs(await client.settled())
        halfway.go_on.set()
        async with client_of(server) as client:
            await resume(client, thread_id, seen[-1])
            rest = await client.end_of(turn_id)
            assert seqs(rest)[0] == seen[-1] + 1
            assert outline(events(rest))[-1] == "turn/completed completed"
