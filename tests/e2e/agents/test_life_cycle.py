"""Sub-agents over time: parallel work, waits, kills and resumes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.processes import spawn_server
from tests.harness.questions import answer, question
from tests.harness.scripted import SECONDS, client_of, over, playing, write_script
from tests.harness.team import Team, deeds, is_over, is_unloaded, more, of, resume, spawn, wait
from tests.harness.threads import EPILOGUE, Client, outline, params_of, text_input, words
from treadle.engine.tools import agents as agent_tools
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import calls, waits_for
from treadle.model.scripted.script import AnyStep, Response
from treadle.protocol.base import JsonValue
from treadle.server.server import Server

ASK = "item/commandExecution/requestApproval"
ESCALATED: JsonValue = {"sandbox_permissions": "require_escalated", "justification": "may I"}


@pytest.fixture
def team() -> Team:
    return Team()


@pytest.fixture
async def server(home: Path, team: Team) -> AsyncIterator[Server]:
    async with playing(home, team.model) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with client_of(server) as client:
        yield client


async def test_input_from_the_user_ends_a_wait(client: Client, team: Team) -> None:
    thread_id = await client.start()
    held = asyncio.Event()
    team.children = [[waits_for(held), "child done"]]
    team.plays(spawn(), wait)
    turn_id = await client.start_turn(thread_id)
    await client.until("item/started", lambda params: params["item"].get("tool") == "wait")
    steer = {"threadId": thread_id, "expectedTurnId": turn_id, "input": [text_input("never mind")]}
    await client.request("turn/steer", steer)
    messages = await client.end_of(turn_id)
    held.set()

    (waited,) = [deed for deed in deeds(messages) if deed["tool"] == "wait"]
    assert waited["agentsStates"][team.child_id]["status"] == "running"
    assert json.loads(team.last_output()) == {
        "status": {},
        "timed_out": False,
        "interrupted_by": "the user",
    }
    last = [request for request in team.model.requests if request.subagent is None][-1]
    assert last.input[-1]["content"][0]["text"] == "never mind"


async def test_input_can_interrupt_a_child(client: Client, team: Team) -> None:
    thread_id = await client.start()
    began = asyncio.Event()

    def play(_request: ModelRequest) -> Response:
        if began.is_set():
            return "redirected"
        began.set()
        return [waits_for(asyncio.Event())]

    team.child = play
    stop = {"message": "stop that", "interrupt": True}

    def send(child_id: str) -> Response:
        call = calls("send_input", {"target": child_id, **stop})
        return [waits_for(began), call]

    team.plays(spawn(), send, wait)
    messages = await client.run(thread_id)
    ends = [
        params["turn"]["status"]
        for params in params_of(of(messages, team.child_id), "turn/completed")
    ]

    assert ends == ["interrupted", "completed"]
    assert deeds(messages)[-1]["agentsStates"][team.child_id]["message"] == "redirected"


async def test_a_wait_that_times_out_reports_that_no_agent_has_finished(
    client: Client, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_tools, "MIN_WAIT_MS", 1)
    thread_id = await client.start()
    held = asyncio.Event()
    team.children = [[waits_for(held), "child done"]]
    team.plays(spawn(), lambda id_: calls("wait_agent", {"targets": [id_], "timeout_ms": 1}), wait)
    turn_id = await client.start_turn(thread_id)
    messages = await client.until(
        "item/completed", lambda params: params["item"].get("tool") == "wait"
    )
    held.set()
    messages += await client.end_of(turn_id)

    waits = [deed for deed in deeds(messages) if deed["tool"] == "wait"]
    states = [deed["agentsStates"][team.child_id]["status"] for deed in waits]
    assert states == ["running", "completed"]
    assert team.outputs(team.model.requests[-1])[1] == {"status": {}, "timed_out": True}


async def test_two_agents_work_in_parallel_and_are_distinguished(
    client: Client, team: Team
) -> None:
    """Both must be in the middle of their work at the same time, or neither would end."""
    thread_id = await client.start()
    first, second = asyncio.Event(), asyncio.Event()

    def play(request: ModelRequest) -> Response:
        mine, other = (first, second) if "task one" in str(request.input) else (second, first)
        mine.set()
        return [waits_for(other), f"done {'one' if mine is first else 'two'}"]

    team.child = play
    both = [spawn_call("task one", "s1"), spawn_call("task two", "s2")]

    def wait_both(_id: str) -> Response:
        ids = [out["agent_id"] for out in team.outputs(team.model.requests[-1])]
        return [calls("wait_agent", {"targets": [id_]}, call_id=f"w-{id_}") for id_ in ids]

    team.plays(both, wait_both)
    messages = await client.run(thread_id)
    started = [params["thread"] for params in params_of(messages, "thread/started")]
    texts = {
        thread["agentNickname"]: [
            params["item"]["text"]
            for params in params_of(of(messages, thread["id"]), "item/completed")
            if params["item"]["type"] == "agentMessage"
        ]
        for thread in started
    }

    assert texts == {"Ada": ["done one"], "Arachne": ["done two"]}
    own = params_of(of(messages, thread_id), "item/completed")
    assert {params["item"]["type"] for params in own} == {
        "userMessage",
        "collabAgentToolCall",
        "agentMessage",
    }
    assert outline(of(messages, thread_id))[-2:] == EPILOGUE


def spawn_call(task: str, call_id: str) -> AnyStep:
    return calls("spawn_agent", {"message": task}, call_id=call_id)


async def test_interrupting_an_agent_closes_all_its_descendants(
    client: Client, team: Team, server: Server, home: Path
) -> None:
    (home / "config.toml").write_text("[agents]\nmax_depth = 2\n", "utf-8")
    thread_id = await client.start()
    deep = asyncio.Event()

    def play(request: ModelRequest) -> Response:
        if "look deeper" in str(request.input):
            deep.set()
            return [waits_for(asyncio.Event())]
        outputs = team.outputs(request)
        return wait(outputs[-1]["agent_id"]) if outputs else spawn(message="look deeper")

    team.child = play
    team.plays(spawn(), wait)
    turn_id = await client.start_turn(thread_id)
    await deep.wait()
    assert len(server.threads.loaded_ids()) == 3
    below = [id_ for id_ in server.threads.loaded_ids() if id_ != thread_id]
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    gone: set[str] = set()
    while gone != set(below):
        messages = await client.until(
            "thread/status/changed", lambda params: params["status"]["type"] == "notLoaded"
        )
        gone.add(messages[-1]["params"]["threadId"])

    assert server.threads.loaded_ids() == [thread_id]
    ends = [(await client.read(id_))["turns"][-1]["status"] for id_ in below]
    assert ends == ["interrupted", "interrupted"]


async def test_an_agent_at_the_maximum_depth_cannot_spawn_another(
    client: Client, team: Team
) -> None:
    thread_id = await client.start()
    team.children = [spawn(), "child done"]
    team.plays(spawn(), wait)
    await client.run(thread_id)
    second = [request for request in team.model.requests if request.subagent][-1]

    outputs = [item["output"] for item in second.input if "output" in item]
    assert outputs == ["unsupported call: spawn_agent"]


async def test_a_client_that_joins_the_parent_receives_the_open_requests_of_a_child(
    client: Client, team: Team, server: Server, tmp_path: Path
) -> None:
    thread_id = await client.start(cwd=str(tmp_path), approvalPolicy="on-request")
    team.children = [calls("exec_command", {"cmd": "touch made", **ESCALATED}, call_id="e1")]
    team.plays(spawn(), wait)
    turn_id = await client.start_turn(thread_id)
    first = await question(client, ASK)
    async with client_of(server) as late:
        await late.request("thread/resume", {"threadId": thread_id})
        second = await question(late, ASK)
        await answer(late, second, {"decision": "accept"})
        await client.end_of(turn_id)

    assert (second["id"], second["params"]) == (first["id"], first["params"])
    assert (tmp_path / "made").exists()


async def test_a_child_can_be_read_and_has_its_own_turns(client: Client, team: Team) -> None:
    thread_id = await client.start()
    team.plays(spawn(), wait)
    await client.run(thread_id, "the user's own words")
    child = await client.read(team.child_id)

    assert words(child) == [["look", "child done"]]
    assert child["parentThreadId"] == thread_id
    assert words(await client.read(thread_id)) == [
        ["the user's own words", "collabAgentToolCall", "collabAgentToolCall", "parent done"]
    ]


async def test_a_child_that_its_clients_unsubscribed_from_accepts_more_input(
    client: Client, team: Team
) -> None:
    thread_id = await client.start()
    team.plays(spawn(), wait)
    await client.run(thread_id)
    await client.request("thread/unsubscribe", {"threadId": team.child_id})
    await client.until("thread/status/changed", is_unloaded(team.child_id))
    team.plays(more(team.child_id), wait(team.child_id))
    messages = await client.run(thread_id)

    assert [deed["status"] for deed in deeds(messages)] == ["completed", "completed"]
    assert outline(of(messages, team.child_id))[-2:] == EPILOGUE
    assert words(await client.read(team.child_id)) == [
        ["look", "child done"],
        ["more", "child done"],
    ]


async def test_after_a_kill_both_a_parent_and_its_child_continue(
    home: Path, team: Team, tmp_path: Path
) -> None:
    """Both wait for an answer when the server dies; both requests are sent again."""
    wish = {"cmd": "echo ran >> made", "login": False, **ESCALATED}
    asks = [{"type": "calls", "tool": "exec_command", "call_id": "e1", "arguments": wish}]
    begins = {"type": "calls", "tool": "spawn_agent", "arguments": {"message": "look"}}
    script = write_script(tmp_path / "script.json", [[begins], asks, asks])
    killed = spawn_server(home, TREADLE_SCRIPT=str(script))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(tmp_path), approvalPolicy="on-request")
        await client.start_turn(thread_id)
        asked = [await question(client, ASK) for _ in range(2)]
        os.kill(killed.pid, signal.SIGKILL)
    ids = {each["params"]["threadId"] for each in asked}
    (child_id,) = ids - {thread_id}
    async with playing(home, team.model) as server, client_of(server) as client:
        for id_ in (thread_id, child_id):
            await client.request("thread/resume", {"threadId": id_})
            again = await question(client, ASK)
            assert again["params"]["threadId"] == id_
            await answer(client, again, {"decision": "accept"})
            messages = await client.until("turn/completed", is_over(id_))
            assert messages[-1]["params"]["turn"]["status"] == "completed"
        team.plays(resume(child_id), more(child_id), wait(child_id))
        messages = await client.run(thread_id)
        child = await client.read(child_id)

    assert {deed["status"] for deed in deeds(messages)} == {"completed"}
    assert words(child) == [["look", "commandExecution", "child done"], ["more", "child done"]]
    assert (tmp_path / "made").read_text() == "ran\nran\n"


async def test_after_a_kill_a_wait_is_over_and_the_child_can_be_resumed(
    home: Path, team: Team, tmp_path: Path
) -> None:
    begins = {"type": "calls", "tool": "spawn_agent", "arguments": {"message": "look"}}
    endless = [{"type": "waits", "seconds": 600}]
    script = write_script(tmp_path / "script.json", [[begins], endless, endless])
    killed = spawn_server(home, TREADLE_SCRIPT=str(script))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start()
        await client.start_turn(thread_id)
        messages = await client.until(
            "turn/started", lambda params: params["threadId"] != thread_id
        )
        child_id = messages[-1]["params"]["threadId"]
        await client.until("item/completed", is_over(child_id))
        os.kill(killed.pid, signal.SIGKILL)
    async with playing(home, team.model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        team.plays(resume(child_id), more(child_id), wait(child_id))
        messages = await client.run(thread_id)
        child = await client.read(child_id)

    assert [turn["status"] for turn in child["turns"]] == ["interrupted", "completed"]
    assert {deed["status"] for deed in deeds(messages)} == {"completed"}
    assert words(child) == [["look"], ["more", "child done"]]
