"""Threads and turns, side by side with the reference server and the same model.

The differences are written down here with their reasons.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.harness.golden import Golden
from tests.harness.model_server import refuses, says
from tests.harness.scenarios import Scenario, Scene, check
from tests.harness.threads import text_input


async def plain(scene: Scene) -> None:
    """Two turns, one of them streamed."""
    scene.model.plays(says("Hello world", "m1", ["Hello", " world"]))
    thread_id = await scene.client.start(cwd=scene.cwd)
    await scene.client.run(thread_id, "say hello")
    await scene.client.run(thread_id, "again")


async def failed(scene: Scene) -> None:
    """Three turns whose request is refused, and one that works."""
    scene.model.plays(
        *(refuses(status, {"error": {"message": "no"}}) for status in (500, 401, 400))
    )
    thread_id = await scene.client.start(cwd=scene.cwd)
    for text in ("one", "two", "three", "four"):
        await scene.client.run(thread_id, text)


async def interrupted(scene: Scene) -> None:
    """A turn that is stopped in the middle of a message, and the one after it."""
    client = scene.client
    scene.model.plays(says("never", "m1", ["part"], asyncio.Event()))
    thread_id = await client.start(cwd=scene.cwd)
    turn_id = await client.start_turn(thread_id, "slow")
    await client.until("item/agentMessage/delta")
    await client.refusal("turn/interrupt", {"threadId": thread_id, "turnId": "wrong"})
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)
    await client.run(thread_id, "after")


async def steered(scene: Scene) -> None:
    """Input for a turn that runs, good and bad."""
    client, gate = scene.client, asyncio.Event()
    scene.model.plays(says("first", "m1", ["part"], gate), says("second", "m2"))
    thread_id = await client.start(cwd=scene.cwd)
    turn_id = await client.start_turn(thread_id, "slow")
    await client.until("item/agentMessage/delta")
    steer = {"threadId": thread_id, "expectedTurnId": turn_id, "input": [text_input("more")]}
    await client.refusal("turn/steer", {**steer, "expectedTurnId": "wrong"})
    await client.refusal("turn/steer", {**steer, "expectedTurnId": ""})
    await client.refusal("turn/steer", {**steer, "input": []})
    await client.request("turn/steer", steer)
    gate.set()
    await client.end_of(turn_id)


async def resumed(scene: Scene) -> None:
    """A thread that goes on in another process."""
    thread_id = await scene.client.start(cwd=scene.cwd)
    await scene.client.run(thread_id, "first")
    client = await scene.reopen()
    await client.read(thread_id)
    await client.refusal("turn/start", {"threadId": thread_id, "input": [text_input("x")]})
    await client.request("thread/resume", {"threadId": thread_id})
    await client.until("thread/goal/cleared")
    await client.run(thread_id, "second")
    await client.read(thread_id)


async def forked(scene: Scene) -> None:
    """A copy that goes its own way."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    await client.run(thread_id, "one")
    copy = (await client.request("thread/fork", {"threadId": thread_id}))["thread"]["id"]
    await client.until("thread/started")
    await client.run(copy, "two")
    await client.read(copy)
    await client.read(thread_id)


async def archived(scene: Scene) -> None:
    """Named, put away, and brought back."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    id_ = {"threadId": thread_id}
    await client.run(thread_id, "one")
    await client.request("thread/name/set", {**id_, "name": "My name"})
    await client.until("thread/name/updated")
    await client.refusal("thread/name/set", {**id_, "name": " "})
    await client.request("thread/archive", id_)
    await client.until("thread/archived")
    await client.refusal("thread/archive", id_)
    await client.request("thread/list", {"archived": True})
    await client.request("thread/read", id_)
    await client.request("thread/unarchive", id_)
    await client.until("thread/unarchived")
    await client.refusal("thread/unarchive", id_)


async def listed(scene: Scene) -> None:
    """Three threads in pages, and one thread in pages."""
    client = scene.client
    ids = [await client.start(cwd=scene.cwd) for _ in range(3)]
    for number, thread_id in enumerate(ids):
        await client.run(thread_id, f"number {number}")
    page = await client.request("thread/list", {"limit": 2})
    await client.request("thread/list", {"limit": 2, "cursor": page["nextCursor"]})
    await client.refusal("thread/list", {"cursor": "garbage"})
    await client.request("thread/list", {"searchTerm": "number 1"})
    await client.request("thread/loaded/list", {"limit": 2})
    await client.request("thread/turns/list", {"threadId": ids[0]})
    await client.request("thread/items/list", {"threadId": ids[0]})


async def joined(scene: Scene) -> None:
    """A second start while a turn runs."""
    client, gate = scene.client, asyncio.Event()
    scene.model.plays(says("first", "m1", ["part"], gate))
    thread_id = await client.start(cwd=scene.cwd)
    turn_id = await client.start_turn(thread_id, "slow")
    await client.until("item/agentMessage/delta")
    assert await client.start_turn(thread_id, "second") == turn_id
    gate.set()
    await client.end_of(turn_id)


async def compacted(scene: Scene) -> None:
    """Notes in place of the history."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    await client.run(thread_id, "one")
    scene.model.plays(says("NOTES", "m1"))
    await client.request("thread/compact/start", {"threadId": thread_id})
    await client.until("turn/completed")
    await client.run(thread_id, "two")
    await client.read(thread_id)


async def planned(scene: Scene) -> None:
    """A plan in plan mode."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    deltas = ["Intro\n", "<proposed_plan>\n", "- one\n", "- two\n", "</proposed_plan>\n"]
    scene.model.plays(says("".join(deltas), "m1", deltas))
    settings = {"model": "mock-model", "reasoning_effort": None, "developer_instructions": None}
    await client.run(thread_id, "plan", collaborationMode={"mode": "plan", "settings": settings})


async def pursued(scene: Scene) -> None:
    """A goal that is set, changed and dropped, and never active."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    await client.run(thread_id, "one")
    id_ = {"threadId": thread_id}
    await client.refusal("thread/goal/set", {**id_, "objective": " "})
    await client.refusal("thread/goal/set", {**id_, "status": "paused"})
    await client.request("thread/goal/set", {**id_, "objective": "ship it", "status": "paused"})
    await client.until("thread/goal/updated")
    await client.request("thread/goal/get", id_)
    await client.request("thread/goal/clear", id_)
    await client.until("thread/goal/cleared")
    await client.request("thread/goal/clear", id_)


async def reverted(scene: Scene) -> None:
    """A turn that is dropped, and what is read around it."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    id_ = {"threadId": thread_id}
    await client.run(thread_id, "one")
    turn_id = (await client.run(thread_id, "two"))[-1]["params"]["turn"]["id"]
    await client.request("thread/items/read", {**id_, "turnId": turn_id, "itemIds": ["msg-2"]})
    await client.request("thread/searchOccurrences", {**id_, "searchTerm": "two"})
    page = {"excludeTurns": True, "initialTurnsPage": {"limit": 1}}
    await client.request("thread/resume", {**id_, **page})
    await client.until("thread/goal/cleared")
    await client.request("thread/revert", {**id_, "beforeTurnId": turn_id})
    await client.until("thread/reverted")
    await client.request("thread/turns/list", id_)
    await client.refusal("thread/inject_items", {**id_, "items": []})


_LAST = {
    f".params.turn.items[].{name}"
    for name in ("delivery", "id", "memoryCitation", "phase", "questions", "text", "type")
}
SCENARIOS: dict[str, Scenario] = {
    "plain": Scenario(plain),
    "failed": Scenario(failed),
    # Treadle keeps a message that it has started: it is completed, as the last one of the turn.
    "interrupted": Scenario(interrupted, ["+ item/completed agentMessage"], frozenset(_LAST)),
    # The running answer is finished before the steer is taken up, as 0.118 does it.
    "steered": Scenario(steered, ["+ item/completed agentMessage"]),
    # An answer goes out before what follows from it.
    "resumed": Scenario(resumed, ["- thread/status/changed idle", "+ thread/status/changed idle"]),
    "forked": Scenario(forked),
    "archived": Scenario(archived),
    "listed": Scenario(listed),
    "joined": Scenario(joined, ["+ item/completed agentMessage"]),
    # 0.118 sends this notification, and clients of that age wait for it.
    "compacted": Scenario(compacted, ["+ thread/compacted"]),
    "planned": Scenario(planned),
    "pursued": Scenario(pursued),
    # The thread stays loaded here.
    "reverted": Scenario(
        reverted, ["- thread/status/changed notLoaded", "- thread/status/changed idle"]
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_both_servers_say_the_same_in_the_same_order(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    await check(golden, name, SCENARIOS[name], tmp_path)
