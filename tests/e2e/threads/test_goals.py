"""A thread's standing goal, and the turns that follow from it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.harness.model_server import Reply, calls, refuses, says
from tests.harness.processes import spawn_server
from tests.harness.scripted import SECONDS, client_of, over, playing, write_script
from tests.harness.threads import EPILOGUE, Client, Stage, outline, params_of, words
from treadle.model.scripted.model import ScriptedModel
from treadle.model.scripted.script import calls as tool
from treadle.protocol.base import JsonValue


def reaches_goal() -> tuple[Reply, Reply]:
    """The model says that the goal is complete, and stops."""
    return calls("update_goal", {"status": "complete"}, "g1"), says("reached", "m9")


async def set_goal(client: Client, thread_id: str, **params: JsonValue) -> JsonValue:
    """Set or change the goal and give it."""
    answer = await client.request("thread/goal/set", {"threadId": thread_id, **params})
    return answer["goal"]


async def test_a_goal_is_pursued_turn_after_turn_until_it_is_complete(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(says("working", "m1"), says("working on", "m2"), *reaches_goal())

    goal = await set_goal(client, thread_id, objective="ship it", tokenBudget=1000)
    messages = await client.until(
        "thread/goal/updated", lambda params: params["goal"]["status"] == "complete"
    )
    await client.until("turn/completed")

    assert (goal["objective"], goal["status"], goal["tokensUsed"]) == ("ship it", "active", 0)
    assert [line for line in outline(messages) if line.startswith("turn/completed")] == [
        "turn/completed completed",
        "turn/completed completed",
    ]
    stored = (await client.request("thread/goal/get", {"threadId": thread_id}))["goal"]
    assert (stored["status"], stored["tokensUsed"]) == ("complete", 30)
    assert "ship it" in stage.model.requests[0].conversation()[-1][1]
    assert len((await client.read(thread_id))["turns"]) == 3


async def test_a_goal_stops_when_its_tokens_are_used(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await set_goal(client, thread_id, objective="ship it", tokenBudget=20)
    messages = await client.until(
        "thread/goal/updated", lambda params: params["goal"]["status"] == "budgetLimited"
    )

    assert messages[-1]["params"]["goal"]["tokensUsed"] == 30
    assert len(stage.model.requests) == 2


async def test_a_turn_that_fails_or_is_interrupted_suspends_the_goal(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(refuses(400, {}))
    await set_goal(client, thread_id, objective="ship it")
    failed = await client.until(
        "thread/goal/updated", lambda params: params["goal"]["status"] != "active"
    )
    assert failed[-1]["params"]["goal"]["status"] == "blocked"
    stage.model.plays(says("never", "m1", [], asyncio.Event()))
    await set_goal(client, thread_id, status="active")
    turn_id = (await client.until("turn/started"))[-1]["params"]["turn"]["id"]
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    messages = await client.until(
        "thread/goal/updated", lambda params: params["goal"]["status"] == "paused"
    )

    assert messages[-1]["params"]["turnId"] == turn_id


async def test_a_goal_survives_a_restart_and_is_published_on_resume(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await set_goal(client, thread_id, objective="ship it", status="paused")
    await stage.restart()
    client = await stage.client()

    unloaded = (await client.request("thread/goal/get", {"threadId": thread_id}))["goal"]
    await client.request("thread/resume", {"threadId": thread_id})
    messages = await client.until("thread/goal/updated")
    cleared = await client.request("thread/goal/clear", {"threadId": thread_id})
    again = await client.request("thread/goal/clear", {"threadId": thread_id})

    assert (unloaded["objective"], unloaded["status"]) == ("ship it", "paused")
    assert messages[-1]["params"]["goal"] == unloaded
    assert (cleared, again) == ({"cleared": True}, {"cleared": False})
    await client.until("thread/goal/cleared")
    assert await client.request("thread/goal/get", {"threadId": thread_id}) == {"goal": None}


async def test_an_invalid_goal_is_rejected(stage: Stage) -> None:
    client = await stage.client()
    thread_id, ephemeral = await client.start(), await client.start(ephemeral=True)

    blank = await client.refusal("thread/goal/set", {"threadId": thread_id, "objective": " "})
    none = await client.refusal("thread/goal/set", {"threadId": thread_id, "status": "paused"})
    lost = await client.refusal("thread/goal/set", {"threadId": ephemeral, "objective": "x"})

    assert blank.message == "goal objective must not be empty"
    assert none.kind == "invalidParams"
    assert lost.kind == "ephemeralThread"


async def test_the_model_learns_why_its_goal_is_refused(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(calls("create_goal", {"objective": "x" * 5000}, "g1"), says("sorry"))

    await client.run(thread_id)

    output = str(stage.model.requests[-1].body["input"][-1])
    assert "objective must have at most 4096 characters, not 5000" in output


async def test_a_message_of_the_user_joins_the_turn_that_pursues_the_goal(stage: Stage) -> None:
    gate, client = asyncio.Event(), await stage.client()
    thread_id = await client.start()
    stage.model.plays(says("working", "m1", [], gate), *reaches_goal())
    await set_goal(client, thread_id, objective="ship it")
    turn_id = await client.start_turn(thread_id, "how is it going?")
    gate.set()
    messages = await client.end_of(turn_id)

    assert outline(messages)[-2:] == EPILOGUE
    spoken = [text for turn in words(await client.read(thread_id)) for text in turn]
    assert "how is it going?" in spoken
    assert params_of(messages, "turn/started")[0]["turn"]["id"] == turn_id


@pytest.mark.parametrize("end", ["close", "kill"])
async def test_an_active_goal_is_pursued_again_when_the_thread_is_resumed(
    home: Path, end: str
) -> None:
    """As the reference does, however its server ended."""
    responses = ["working", [{"type": "waits", "seconds": 600}]]
    script = write_script(home / "script.json", responses)
    ended = spawn_server(home, TREADLE_SCRIPT=str(script))
    async with asyncio.timeout(SECONDS), over(ended) as client:
        thread_id = await client.start()
        await set_goal(client, thread_id, objective="ship it")
        await client.until("turn/completed")
        await client.until("turn/started")
        os.kill(ended.pid, signal.SIGKILL if end == "kill" else signal.SIGTERM)
    model = ScriptedModel([[tool("update_goal", {"status": "complete"})], "reached"])
    async with playing(home, model) as server, client_of(server) as client:
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        messages = await client.until("turn/completed")
        goal = await client.request("thread/goal/get", {"threadId": thread_id})
    assert [turn["status"] for turn in resumed["thread"]["turns"]] == ["completed", "interrupted"]
    assert outline(messages)[-2:] == EPILOGUE
    assert goal["goal"]["status"] == "complete"
    assert "ship it" in str(model.requests[0].input[-1])
