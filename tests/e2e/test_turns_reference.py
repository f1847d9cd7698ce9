"""Whole conversations, side by side with the reference server and the same model.

Both go through the same steps; the order of what they say and its keys must be the same, but for
the differences that are written down here with their reasons.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from codex_cli_bin import bundled_codex_path

from tests.harness.model_server import ModelServer, model_server, refuses, says
from tests.harness.processes import TREADLE
from tests.harness.threads import Client, configure, keys, line_of, said, spawned
from treadle.protocol.base import JsonValue

SERVERS = {"reference": str(bundled_codex_path()), "treadle": TREADLE}
# Not in a fixed place, or about things that this server does not have.
LEFT_OUT = frozenset(
    {
        "account/rateLimits/updated",  # told to everybody, so in no fixed place
        "deprecationNotice",  # nothing that it speaks of is deprecated here
        "remoteControl/status/changed",  # no remote control
        "thread/readState/changed",  # no read states
        "thread/tokenUsage/updated",  # repeated by the reference at times; tested elsewhere
        "warning",  # once per thread here, in every turn there
        "configWarning",
    }
)
# Numbers of events, and what an error says to programs.
OURS = frozenset({".seq", ".error.data", ".error.data.kind", ".error.data.path"})
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass
class Scene:
    """What a scenario has to work with."""

    client: Client
    model: ModelServer
    cwd: str
    reopen: Callable[[], Awaitable[Client]]


@dataclass(frozen=True)
class Scenario:
    """Steps, and in what the two servers differ: lines of a diff, and keys that only one has."""

    steps: Callable[[Scene], Awaitable[None]]
    differences: Sequence[str] = ()
    keys: frozenset[str] = field(default_factory=frozenset)


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
    turn_id = await client.begin(thread_id, "slow")
    await client.until("item/agentMessage/delta")
    await client.refusal("turn/interrupt", {"threadId": thread_id, "turnId": "wrong"})
    await client.ask("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)
    await client.run(thread_id, "after")


async def steered(scene: Scene) -> None:
    """Input for a turn that runs, good and bad."""
    client, gate = scene.client, asyncio.Event()
    scene.model.plays(says("first", "m1", ["part"], gate), says("second", "m2"))
    thread_id = await client.start(cwd=scene.cwd)
    turn_id = await client.begin(thread_id, "slow")
    await client.until("item/agentMessage/delta")
    steer = {"threadId": thread_id, "expectedTurnId": turn_id, "input": [said("more")]}
    await client.refusal("turn/steer", {**steer, "expectedTurnId": "wrong"})
    await client.refusal("turn/steer", {**steer, "expectedTurnId": ""})
    await client.refusal("turn/steer", {**steer, "input": []})
    await client.ask("turn/steer", steer)
    gate.set()
    await client.end_of(turn_id)


async def resumed(scene: Scene) -> None:
    """A thread that goes on in another process."""
    thread_id = await scene.client.start(cwd=scene.cwd)
    await scene.client.run(thread_id, "first")
    client = await scene.reopen()
    await client.read(thread_id)
    await client.refusal("turn/start", {"threadId": thread_id, "input": [said("x")]})
    await client.ask("thread/resume", {"threadId": thread_id})
    await client.until("thread/goal/cleared")
    await client.run(thread_id, "second")
    await client.read(thread_id)


async def forked(scene: Scene) -> None:
    """A copy that goes its own way."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    await client.run(thread_id, "one")
    copy = (await client.ask("thread/fork", {"threadId": thread_id}))["thread"]["id"]
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
    await client.ask("thread/name/set", {**id_, "name": "My name"})
    await client.until("thread/name/updated")
    await client.refusal("thread/name/set", {**id_, "name": " "})
    await client.ask("thread/archive", id_)
    await client.until("thread/archived")
    await client.refusal("thread/archive", id_)
    await client.ask("thread/list", {"archived": True})
    await client.ask("thread/read", id_)
    await client.ask("thread/unarchive", id_)
    await client.until("thread/unarchived")
    await client.refusal("thread/unarchive", id_)


async def listed(scene: Scene) -> None:
    """Three threads in pages, and one thread in pages."""
    client = scene.client
    ids = [await client.start(cwd=scene.cwd) for _ in range(3)]
    for number, thread_id in enumerate(ids):
        await client.run(thread_id, f"number {number}")
    page = await client.ask("thread/list", {"limit": 2})
    await client.ask("thread/list", {"limit": 2, "cursor": page["nextCursor"]})
    await client.refusal("thread/list", {"cursor": "garbage"})
    await client.ask("thread/list", {"searchTerm": "number 1"})
    await client.ask("thread/loaded/list", {"limit": 2})
    await client.ask("thread/turns/list", {"threadId": ids[0]})
    await client.ask("thread/items/list", {"threadId": ids[0]})


async def joined(scene: Scene) -> None:
    """A second start while a turn runs."""
    client, gate = scene.client, asyncio.Event()
    scene.model.plays(says("first", "m1", ["part"], gate))
    thread_id = await client.start(cwd=scene.cwd)
    turn_id = await client.begin(thread_id, "slow")
    await client.until("item/agentMessage/delta")
    assert await client.begin(thread_id, "second") == turn_id
    gate.set()
    await client.end_of(turn_id)


async def compacted(scene: Scene) -> None:
    """Notes in place of the history."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    await client.run(thread_id, "one")
    scene.model.plays(says("NOTES", "m1"))
    await client.ask("thread/compact/start", {"threadId": thread_id})
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
    await client.ask("thread/goal/set", {**id_, "objective": "ship it", "status": "paused"})
    await client.until("thread/goal/updated")
    await client.ask("thread/goal/get", id_)
    await client.ask("thread/goal/clear", id_)
    await client.until("thread/goal/cleared")
    await client.ask("thread/goal/clear", id_)


async def reverted(scene: Scene) -> None:
    """A turn that is dropped, and what is read around it."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    id_ = {"threadId": thread_id}
    await client.run(thread_id, "one")
    turn_id = (await client.run(thread_id, "two"))[-1]["params"]["turn"]["id"]
    await client.ask("thread/items/read", {**id_, "turnId": turn_id, "itemIds": ["msg-2"]})
    await client.ask("thread/searchOccurrences", {**id_, "searchTerm": "two"})
    page = {"excludeTurns": True, "initialTurnsPage": {"limit": 1}}
    await client.ask("thread/resume", {**id_, **page})
    await client.until("thread/goal/cleared")
    await client.ask("thread/revert", {**id_, "beforeTurnId": turn_id})
    await client.until("thread/reverted")
    await client.ask("thread/turns/list", id_)
    await client.refusal("thread/inject_items", {**id_, "items": []})


_LAST = {
    f".params.turn.items[].{name}"
    for name in ("delivery", "id", "memoryCitation", "phase", "questions", "text", "type")
}
SCENARIOS: dict[str, Scenario] = {
    "plain": Scenario(plain),
    "failed": Scenario(failed),
    # What was told of a message is not taken back: it is completed, and the turn's last one.
    "interrupted": Scenario(interrupted, ["+ item/completed agentMessage"], frozenset(_LAST)),
    # The running answer is finished before the steer is taken up, as 0.118 does it.
    "steered": Scenario(steered, ["+ item/completed agentMessage"]),
    # An answer goes out before what follows from it.
    "resumed": Scenario(resumed, ["- thread/status/changed idle", "+ thread/status/changed idle"]),
    "forked": Scenario(forked),
    "archived": Scenario(archived, ["+ thread/archive -> ok", "- thread/archive -> ok"]),
    "listed": Scenario(listed),
    "joined": Scenario(joined, ["+ item/completed agentMessage"]),
    # 0.118 tells it, and clients of that age wait for it.
    "compacted": Scenario(compacted, ["+ thread/compacted"]),
    "planned": Scenario(planned),
    "pursued": Scenario(pursued),
    # The thread stays loaded here.
    "reverted": Scenario(
        reverted, ["- thread/status/changed notLoaded", "- thread/status/changed idle"]
    ),
}


async def play(kind: str, scenario: Scenario, folder: Path) -> list[JsonValue]:
    """Go through the steps with one of the servers, and give all that it said."""
    home, cwd = folder / kind, folder / "workspace"
    home.mkdir()
    cwd.mkdir(exist_ok=True)
    command = [SERVERS[kind], "app-server"]
    async with asyncio.timeout(40), model_server() as model, AsyncExitStack() as stack:
        configure(home, model)
        client = await stack.enter_async_context(spawned(command, home))

        async def reopen() -> Client:
            await stack.aclose()
            another = await stack.enter_async_context(spawned(command, home))
            another.heard[:0] = client.heard
            scene.client = another
            return another

        scene = Scene(client, model, str(cwd), reopen)
        await scenario.steps(scene)
        heard = [each for each in scene.client.heard if each.get("method") not in LEFT_OUT]
        return replies_first(heard) if kind == "reference" else heard


_AT_THE_START = ("thread/status/changed", "thread/settings/updated")


def replies_first(heard: list[JsonValue]) -> list[JsonValue]:
    """Put the answer to turn/start before the turn's events: upstream's may overtake it."""
    settled: list[JsonValue] = []
    answered: set[str] = set()
    for message in heard:
        turn = (message.get("result") or {}).get("turn")
        place = len(settled)
        # A second start that joins the turn is answered with the same id, in its own place.
        if turn is not None and turn["id"] not in answered:
            answered.add(turn["id"])
            told = [i for i, each in enumerate(settled) if _turn_of(each) == turn["id"]]
            place = min(told, default=place)
            while place and settled[place - 1].get("method") in _AT_THE_START:
                place -= 1
        settled.insert(place, message)
    return settled


def _turn_of(message: JsonValue) -> JsonValue:
    params = message.get("params") or {}
    return params.get("turnId") or (params.get("turn") or {}).get("id")


def lines(heard: Sequence[JsonValue]) -> list[str]:
    """A conversation in a few words per message, without the ids of the day."""
    return [_ID.sub("<id>", line_of(message)) for message in heard]


def keys_by_line(heard: Sequence[JsonValue]) -> dict[str, set[str]]:
    """The keys of all messages that read the same."""
    found: dict[str, set[str]] = {}
    for message, line in zip(heard, lines(heard), strict=True):
        found.setdefault(line, set()).update(keys(message))
    return found


def is_expected(key: str) -> bool:
    """Whether one of the servers may have this key alone: read states are not kept here."""
    return key in OURS or ".readState" in key


@pytest.mark.parametrize("name", SCENARIOS)
async def test_both_servers_say_the_same_in_the_same_order(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    theirs = await play("reference", scenario, tmp_path)
    ours = await play("treadle", scenario, tmp_path)

    assert [any("seq" in each for each in heard) for heard in (theirs, ours)] == [False, True]
    compared = difflib.ndiff(lines(theirs), lines(ours))
    assert [line for line in compared if line[0] in "+-"] == list(scenario.differences)
    their_keys, our_keys = keys_by_line(theirs), keys_by_line(ours)
    differing = {
        (line, key)
        for line in their_keys.keys() & our_keys.keys()
        for key in their_keys[line] ^ our_keys[line]
        if not is_expected(key) and key not in scenario.keys
    }
    assert differing == set()
