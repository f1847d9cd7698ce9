"""Several clients of one server: which notifications each receives (upstream's steps)."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.model_server import says
from tests.harness.threads import ANSWER, EPILOGUE, PROLOGUE, Stage, outline, params_of, words
from treadle.engine import threads

BROADCAST = ["thread/status/changed active", "thread/status/changed idle"]


async def test_all_clients_learn_of_a_thread_and_subscribers_of_its_turns(stage: Stage) -> None:
    """Upstream: started, status and name go to all, turns and items to subscribers only."""
    alice, bob = await stage.client(), await stage.client()
    thread_id = await alice.start()
    (started,) = await bob.until("thread/started")
    messages = await alice.run(thread_id, "one")
    overheard = await bob.settled()

    assert started["params"]["thread"]["id"] == thread_id
    assert outline(messages) == [*PROLOGUE, *ANSWER, *EPILOGUE]
    assert outline(overheard) == BROADCAST

    joined = (await bob.request("thread/resume", {"threadId": thread_id}))["thread"]
    assert words(joined) == [["one", "done"]]
    messages = await alice.run(thread_id, "two")
    heard = await bob.end_of(messages[-1]["params"]["turn"]["id"])
    heard = [each for each in heard if each["method"] != "thread/goal/cleared"]
    assert outline(heard) == outline(messages) == [*PROLOGUE, *ANSWER, *EPILOGUE]
    turns = [each["params"].get("turnId") for each in messages if "item/" in each["method"]]
    assert turns == [each["params"].get("turnId") for each in heard if "item/" in each["method"]]


async def test_a_name_goes_to_every_client_once(stage: Stage) -> None:
    alice, bob, carol = [await stage.client() for _ in range(3)]
    thread_id = await alice.start()
    await bob.request("thread/resume", {"threadId": thread_id})
    await alice.request("thread/name/set", {"threadId": thread_id, "name": "shared"})

    for each in (alice, bob, carol):
        await each.settled()
        assert params_of(each.received, "thread/name/updated") == [
            {"threadId": thread_id, "threadName": "shared"}
        ]


async def test_a_client_that_unsubscribes_receives_nothing_more_while_others_do(
    stage: Stage,
) -> None:
    alice, bob = await stage.client(), await stage.client()
    thread_id = await alice.start()
    await bob.request("thread/resume", {"threadId": thread_id})
    await bob.settled()

    left = await alice.request("thread/unsubscribe", {"threadId": thread_id})
    again = await alice.request("thread/unsubscribe", {"threadId": thread_id})
    messages = await bob.run(thread_id)
    overheard = await alice.settled()

    assert (left["status"], again["status"]) == ("unsubscribed", "notSubscribed")
    assert outline(messages) == [*PROLOGUE, *ANSWER, *EPILOGUE]
    assert outline(overheard) == BROADCAST


async def test_a_thread_closes_after_the_turn_in_which_its_last_client_left(stage: Stage) -> None:
    """Upstream: the thread is unloaded, its status changes, and every client learns of it."""
    alice, bob = await stage.client(), await stage.client()
    thread_id, gate = await alice.start(), asyncio.Event()
    stage.model.plays(says("slow", "m1", ["sl"], gate))
    await alice.start_turn(thread_id, "take your time")
    await alice.until("item/agentMessage/delta")
    left = await alice.request("thread/unsubscribe", {"threadId": thread_id})
    loaded = await bob.request("thread/loaded/list", {})
    gate.set()
    messages = await bob.until("thread/closed")

    assert (left["status"], loaded["data"]) == ("unsubscribed", [thread_id])
    assert outline(messages)[-3:] == [
        "thread/status/changed idle",
        "thread/status/changed notLoaded",
        "thread/closed",
    ]
    assert (await bob.request("thread/loaded/list", {}))["data"] == []


async def test_a_thread_stays_open_if_a_client_joins_before_its_turn_ends(stage: Stage) -> None:
    alice, bob = await stage.client(), await stage.client()
    thread_id, gate = await alice.start(), asyncio.Event()
    stage.model.plays(says("slow", "m1", ["sl"], gate))
    turn_id = await alice.start_turn(thread_id, "take your time")
    await alice.until("item/agentMessage/delta")
    await alice.request("thread/unsubscribe", {"threadId": thread_id})
    await bob.request("thread/resume", {"threadId": thread_id})
    gate.set()
    await bob.end_of(turn_id)
    await bob.settled()

    assert (await bob.request("thread/loaded/list", {}))["data"] == [thread_id]
    assert params_of(bob.received, "thread/closed") == []


async def test_ephemeral_threads_of_a_client_that_left_are_few(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: they stayed in memory until the server ended."""
    monkeypatch.setattr(threads, "MAX_IDLE_EPHEMERAL", 2)
    alice, bob = await stage.client(), await stage.client()
    ids = [await alice.start(ephemeral=True) for _ in range(4)]
    await alice.peer.transport.close()
    for _ in range(2):
        await bob.until(
            "thread/status/changed", lambda params: params["status"]["type"] == "notLoaded"
        )

    assert (await bob.request("thread/loaded/list", {}))["data"] == ids[2:]


async def test_a_turn_continues_when_its_client_disconnects(stage: Stage) -> None:
    """Turns belong to the server, not to a connection."""
    alice, bob = await stage.client(), await stage.client()
    thread_id = await alice.start()
    turn_id = await alice.start_turn(thread_id, "carry on")
    await alice.peer.transport.close()
    await bob.request("thread/resume", {"threadId": thread_id})
    status = (await bob.read(thread_id))["turns"][0]["status"]
    if status == "inProgress":
        await bob.end_of(turn_id)

    assert words(await bob.read(thread_id)) == [["carry on", "done"]]


async def test_two_simultaneous_starts_share_one_turn(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.model.plays(says("to both", "m1", [], gate))
    alice, bob = await stage.client(), await stage.client()
    thread_id = await alice.start()
    await bob.request("thread/resume", {"threadId": thread_id})
    first = await alice.start_turn(thread_id, "from alice")
    second = await bob.start_turn(thread_id, "from bob")
    gate.set()
    await alice.end_of(first)

    thread = await alice.read(thread_id)
    assert first == second
    assert {"from alice", "from bob"} <= set(words(thread)[0])
    assert len(thread["turns"]) == 1
