"""Sub-agents whose server was killed or stopped: their parent finds them again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.processes import spawn_server
from tests.harness.questions import answer, question
from tests.harness.scripted import SECONDS, client_of, over, playing, write_script
from tests.harness.team import (
    Team,
    close,
    deeds,
    is_over,
    is_unloaded,
    more,
    of,
    resume,
    spawn,
    wait,
)
from tests.harness.threads import Client, params_of, words
from treadle.model.scripted.model import calls, waits_for
from treadle.model.scripted.script import Response
from treadle.protocol.base import JsonValue

ASK = "item/commandExecution/requestApproval"
ACCEPT: JsonValue = {"decision": "accept"}
WISH: JsonValue = {
    "cmd": "true",
    "login": False,
    "sandbox_permissions": "require_escalated",
    "justification": "may I",
}
BEGINS: JsonValue = [{"type": "calls", "tool": "spawn_agent", "arguments": {"message": "look"}}]
ASKS: JsonValue = [{"type": "calls", "tool": "exec_command", "call_id": "e1", "arguments": WISH}]


@pytest.fixture
def team() -> Team:
    return Team()


async def killed_while_waiting(home: Path, work: Path, *, is_child_done: bool) -> tuple[str, str]:
    """Kill a server in which a parent waits for an answer, and its child too unless it is done."""
    script = write_script(home / "script.json", [BEGINS, ASKS, ASKS, "child done"])
    killed = spawn_server(home, TREADLE_SCRIPT=str(script))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(work), approvalPolicy="on-request")
        await client.start_turn(thread_id)
        both = [await question(client, ASK) for _ in range(2)]
        asked = {one["params"]["threadId"]: one for one in both}
        (child_id,) = asked.keys() - {thread_id}
        if is_child_done:
            await answer(client, asked[child_id], ACCEPT)
            await client.until("turn/completed", is_over(child_id))
        os.kill(killed.pid, signal.SIGKILL)
    return thread_id, child_id


async def resume_and_answer(client: Client, thread_id: str) -> None:
    """Resume a parent that waits for an answer, and answer."""
    await client.request("thread/resume", {"threadId": thread_id})
    asked = await question(client, ASK)
    assert asked["params"]["threadId"] == thread_id
    await answer(client, asked, ACCEPT)


async def test_a_turn_that_continues_after_a_kill_finds_a_finished_child(
    home: Path, team: Team, tmp_path: Path
) -> None:
    thread_id, child_id = await killed_while_waiting(home, tmp_path, is_child_done=True)
    team.plays(wait(child_id))
    async with playing(home, team.model) as server, client_of(server) as client:
        await resume_and_answer(client, thread_id)
        messages = await client.until("turn/completed", is_over(thread_id))
    (waited,) = deeds(messages)
    assert waited["agentsStates"] == {child_id: {"status": "completed", "message": "child done"}}
    assert json.loads(team.last_output())["status"] == {child_id: {"completed": "child done"}}


async def test_a_child_that_waits_for_an_answer_continues_when_its_parent_waits_for_it(
    home: Path, team: Team, tmp_path: Path
) -> None:
    """The client resumes only the parent, and receives the child's server request."""
    thread_id, child_id = await killed_while_waiting(home, tmp_path, is_child_done=False)
    team.plays(wait(child_id))
    async with playing(home, team.model) as server, client_of(server) as client:
        await resume_and_answer(client, thread_id)
        asked = await question(client, ASK)
        await answer(client, asked, ACCEPT)
        messages = await client.until("turn/completed", is_over(thread_id))
        child = await client.read(child_id)
    assert asked["params"]["threadId"] == child_id
    assert words(child) == [["look", "commandExecution", "child done"]]
    assert deeds(messages)[-1]["agentsStates"][child_id]["message"] == "child done"


@pytest.mark.parametrize("end", ["close", "kill"])
async def test_a_parent_that_waits_for_a_child_with_an_open_request_continues_too(
    home: Path, team: Team, tmp_path: Path, end: str
) -> None:
    team.plays(spawn(), wait)
    team.children = [calls("exec_command", WISH, call_id="e1")]
    left = tmp_path / "left"
    async with playing(home, team.model) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(tmp_path), approvalPolicy="on-request")
        turn_id = await client.start_turn(thread_id)
        messages = await client.until(ASK)
        if "wait" not in [
            params["item"].get("tool") for params in params_of(messages, "item/started")
        ]:
            await client.until("item/started", lambda params: params["item"].get("tool") == "wait")
        if end == "close":
            await server.close()
        # The disk of a running server holds what a killed server would leave.
        # The index is left out: its files change while it is written, and it can be rebuilt.
        shutil.copytree(home, left, ignore=shutil.ignore_patterns("treadle.sqlite*"))
    async with playing(left, team.model) as server, client_of(server) as client:
        unloaded = await client.read(thread_id)
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        await answer(client, await question(client, ASK), ACCEPT)
        messages = await client.end_of(turn_id)
    assert unloaded["turns"] == resumed["thread"]["turns"]
    assert [turn["status"] for turn in unloaded["turns"]] == ["inProgress"]
    assert deeds(messages)[-1]["agentsStates"][team.child_id]["message"] == "child done"
    assert messages[-1]["params"]["turn"]["status"] == "completed"


@pytest.mark.parametrize(
    ("act", "outcome"),
    [(more, "sendInput"), (close, "closeAgent"), (resume, "resumeAgent")],
)
async def test_every_agent_tool_finds_a_child_after_a_kill(
    home: Path, team: Team, tmp_path: Path, act: Callable[[str], Response], outcome: str
) -> None:
    thread_id, child_id = await killed_while_waiting(home, tmp_path, is_child_done=True)
    team.plays(act(child_id), wait(child_id))
    async with playing(home, team.model) as server, client_of(server) as client:
        await resume_and_answer(client, thread_id)
        messages = await client.until("turn/completed", is_over(thread_id))
    done = [(deed["tool"], deed["status"]) for deed in deeds(messages)]
    assert done == [(outcome, "completed"), ("wait", "completed")]


async def test_a_closed_child_stays_closed_after_a_restart(home: Path, team: Team) -> None:
    async with playing(home, team.model) as server, client_of(server) as client:
        thread_id = await client.start()
        team.plays(spawn(), wait, close)
        await client.run(thread_id)
    child_id = team.child_id
    async with playing(home, team.model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        team.plays(wait(child_id), more(child_id))
        messages = await client.run(thread_id)
        refused = team.last_output()
        team.plays(resume(child_id), more(child_id), wait(child_id))
        after = await client.run(thread_id)
    assert deeds(messages)[0]["agentsStates"] == {child_id: {"status": "shutdown", "message": None}}
    assert refused == f"agent {child_id} is closed; resume it first"
    assert [deed["status"] for deed in deeds(after)] == ["completed"] * 3


async def test_a_resumed_child_is_closed_with_its_parent(home: Path, team: Team) -> None:
    """It does not count against the limit when the parent is loaded again."""
    (home / "config.toml").write_text("[agents]\nmax_threads = 1\n")
    async with playing(home, team.model) as server, client_of(server) as client:
        thread_id = await client.start()
        team.plays(spawn(), wait, close)
        await client.run(thread_id)
    child_id = team.child_id
    async with playing(home, team.model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        team.plays(resume(child_id), more(child_id), wait(child_id))
        await client.run(thread_id)
        await client.request("thread/unsubscribe", {"threadId": thread_id})
        await client.until("thread/status/changed", is_unloaded(thread_id))
        await client.request("thread/resume", {"threadId": thread_id})
        team.plays(spawn(), wait)
        messages = await client.run(thread_id)
    assert [deed["status"] for deed in deeds(messages)] == ["completed", "completed"]


async def test_a_child_of_another_thread_is_not_found(home: Path, team: Team) -> None:
    async with playing(home, team.model) as server, client_of(server) as client:
        team.plays(spawn(), wait)
        await client.run(await client.start())
    async with playing(home, team.model) as server, client_of(server) as client:
        other_id = await client.start()
        team.plays(wait(team.child_id), more(team.child_id))
        messages = await client.run(other_id)
        loaded = server.threads.loaded_ids()
    assert [deed["status"] for deed in deeds(messages)] == ["failed", "failed"]
    assert loaded == [other_id]


async def test_a_parent_waits_for_a_turn_that_a_client_starts_in_a_child(
    home: Path, team: Team
) -> None:
    held = asyncio.Event()
    async with playing(home, team.model) as server, client_of(server) as client:
        thread_id = await client.start()
        team.children = ["child done", [waits_for(held), "for the client"]]
        team.plays(spawn(), wait)
        await client.run(thread_id)
        await client.start_turn(team.child_id, "more, please")
        await client.until("turn/started", is_over(team.child_id))
        team.plays(wait(team.child_id))
        await client.start_turn(thread_id)
        await client.until("item/started", lambda params: params["item"].get("tool") == "wait")
        held.set()
        messages = await client.until("turn/completed", is_over(thread_id))
    (waited,) = deeds(messages)
    assert waited["agentsStates"][team.child_id]["message"] == "for the client"
    assert len(params_of(of(messages, team.child_id), "turn/completed")) == 1


async def test_a_turn_of_a_killed_server_reads_as_interrupted_before_it_is_loaded(
    home: Path, tmp_path: Path
) -> None:
    endless = [{"type": "waits", "seconds": 600}]
    script = write_script(tmp_path / "script.json", [BEGINS, endless, endless])
    killed = spawn_server(home, TREADLE_SCRIPT=str(script))
    async with playing(home, []) as server, client_of(server) as reader:
        async with asyncio.timeout(SECONDS), over(killed) as client:
            thread_id = await client.start()
            await client.start_turn(thread_id)
            messages = await client.until(
                "turn/started", lambda params: params["threadId"] != thread_id
            )
            child_id = messages[-1]["params"]["threadId"]
            alive = [await statuses(reader, id_) for id_ in (thread_id, child_id)]
            os.kill(killed.pid, signal.SIGKILL)
        dead = [await statuses(reader, id_) for id_ in (thread_id, child_id)]
        assert server.threads.loaded_ids() == []
    assert alive == [["inProgress"] * 2] * 2
    assert dead == [["interrupted"] * 2] * 2


async def statuses(client: Client, thread_id: str) -> list[str]:
    """The status of a thread's last turn, read in both ways."""
    listed = await client.request("thread/turns/list", {"threadId": thread_id})
    return [(await client.read(thread_id))["turns"][-1]["status"], listed["data"][0]["status"]]
