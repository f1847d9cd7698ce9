"""Grants of a turn survive a kill of its server, as long as the turn continues."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from tests.harness.mcp import settled, stdio
from tests.harness.model_server import calls as reply
from tests.harness.processes import spawn_server
from tests.harness.questions import answer, question
from tests.harness.scripted import SECONDS, client_of, over, playing, write_script
from tests.harness.threads import Client, Stage, outline, params_of
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import ScriptedModel, custom_call
from treadle.model.scripted.script import AnyStep, Response, calls
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import SubprocessTransport

COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"
ELICITATION = "mcpServer/elicitation/request"
ACCEPT: JsonValue = {"decision": "accept"}
FOR_SESSION: JsonValue = {"decision": "acceptForSession"}
LOOKUP: JsonValue = {"name": "lookup", "description": "d", "inputSchema": {"type": "object"}}
FEATURE: JsonValue = {"features.request_permissions_tool": True}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder to work in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that requires approval to be written."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def asks(command: str, call_id: str) -> AnyStep:
    """A command that requires approval: it looks dangerous, but is not."""
    arguments = {"cmd": f"rm -rf none; {command}", "login": False}
    return calls("exec_command", arguments, call_id=call_id)


def edits(path: Path, call_id: str) -> AnyStep:
    """An edit that creates a file."""
    patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    return custom_call("apply_patch", patch, call_id=call_id)


def requests(folder: Path) -> AnyStep:
    """A request for write access to a folder."""
    wanted = {"permissions": {"file_system": {"write": [str(folder)]}}}
    return calls("request_permissions", wanted, call_id="call-1")


def playing_apart(home: Path, *steps: AnyStep) -> SubprocessTransport:
    """A server in its own process whose model plays these steps one by one."""
    script = write_script(home / "script.json", [[msgspec.to_builtins(step)] for step in steps])
    return spawn_server(home, TREADLE_SCRIPT=str(script))


async def start(client: Client, work: Path, sandbox: str = "danger-full-access") -> str:
    """Start a thread with approvals enabled."""
    return await client.start(
        cwd=str(work), approvalPolicy="on-request", sandbox=sandbox, config=FEATURE
    )


async def resume_and_accept(client: Client, thread_id: str) -> list[JsonValue]:
    """Resume a waiting thread and accept its request; return the messages that follow."""
    resumed = await client.request("thread/resume", {"threadId": thread_id, "config": FEATURE})
    await answer(client, await question(client, COMMAND), ACCEPT)
    return await client.end_of(resumed["thread"]["turns"][-1]["id"])


def ends(messages: list[JsonValue]) -> dict[str, str]:
    """How commands and edits ended, by id."""
    items = (params["item"] for params in params_of(messages, "item/completed"))
    return {item["id"]: item["status"] for item in items if "status" in item}


async def test_a_session_approval_holds_in_a_turn_that_continues(
    home: Path, work: Path, elsewhere: Path
) -> None:
    made = elsewhere / "made"
    first = asks("true", "call-1"), edits(made, "call-2"), asks("echo", "call-3")
    killed = playing_apart(home, *first)
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await start(client, work, "read-only")
        await client.start_turn(thread_id)
        for method in (COMMAND, FILES):
            await answer(client, await question(client, method), FOR_SESSION)
        await question(client, COMMAND)
        os.kill(killed.pid, signal.SIGKILL)
    made.unlink()
    model = ScriptedModel([asks("true", "call-4"), edits(made, "call-5"), "done"])
    async with playing(home, model) as server, client_of(server) as client:
        messages = await resume_and_accept(client, thread_id)
    assert ends(messages) == dict.fromkeys(("call-3", "call-4", "call-5"), "completed")
    assert not params_of(messages, COMMAND) + params_of(messages, FILES)
    assert made.exists()


async def test_a_session_approval_ends_with_its_session(home: Path, work: Path) -> None:
    """As the reference does: a decision does not outlive the process that received it.

    This also holds after a turn that continued: it belongs to the earlier session.
    """
    killed = playing_apart(home, asks("true", "call-1"))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await start(client, work)
        await client.start_turn(thread_id)
        await answer(client, await question(client, COMMAND), FOR_SESSION)
        await client.until("turn/completed")
        os.kill(killed.pid, signal.SIGKILL)
    again = playing_apart(home, asks("echo", "call-2"))
    async with asyncio.timeout(SECONDS), over(again) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await client.start_turn(thread_id)
        await question(client, COMMAND)
        os.kill(again.pid, signal.SIGKILL)
    async with (
        playing(home, [asks("true", "call-3"), "done"]) as server,
        client_of(server) as client,
    ):
        await client.request("thread/resume", {"threadId": thread_id})
        await answer(client, await question(client, COMMAND), ACCEPT)
        asked = await question(client, COMMAND)
    assert asked["params"]["itemId"] == "call-3"


@pytest.mark.parametrize("scope", ["turn", "session"])
async def test_granted_permissions_hold_in_a_turn_that_continues(
    home: Path, work: Path, elsewhere: Path, scope: str
) -> None:
    killed = playing_apart(home, requests(elsewhere), asks("true", "call-2"))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await start(client, work, "read-only")
        await client.start_turn(thread_id)
        grant = {"permissions": {"fileSystem": {"write": [str(elsewhere)]}}, "scope": scope}
        await answer(client, await question(client, PERMISSIONS), grant)
        await question(client, COMMAND)
        os.kill(killed.pid, signal.SIGKILL)
    model = ScriptedModel(
        [edits(elsewhere / "a", "call-3"), "done", edits(elsewhere / "b", "call-4"), "done"]
    )
    async with playing(home, model) as server, client_of(server) as client:
        messages = await resume_and_accept(client, thread_id)
        turn_id = await client.start_turn(thread_id)
        if scope == "turn":
            await answer(client, await question(client, FILES), {"decision": "decline"})
        after = await client.end_of(turn_id)
    assert ends(messages)["call-3"] == "completed"
    assert ends(after) == {"call-4": "declined" if scope == "turn" else "completed"}


async def test_a_strict_review_holds_in_a_turn_that_continues(
    home: Path, work: Path, elsewhere: Path
) -> None:
    denies = json.dumps({"risk_level": "low", "outcome": "deny", "rationale": "not now"})
    # A call of a client tool, which is never reviewed.
    killed = playing_apart(home, requests(elsewhere), calls("lookup", {}, call_id="call-2"))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(
            cwd=str(work), approvalPolicy="on-request", config=FEATURE, dynamicTools=[LOOKUP]
        )
        await client.start_turn(thread_id)
        grant = {"permissions": {"fileSystem": {"write": [str(elsewhere)]}}}
        strictly: JsonValue = {**grant, "strictAutoReview": True}
        await answer(client, await question(client, PERMISSIONS), strictly)
        await question(client, "item/tool/call")
        os.kill(killed.pid, signal.SIGKILL)
    agent: list[Response] = [calls("exec_command", {"cmd": "true"}, call_id="call-3"), "done"]

    def play(request: ModelRequest) -> Response:
        return denies if request.subagent == "guardian" else agent.pop(0)

    async with playing(home, ScriptedModel(play)) as server, client_of(server) as client:
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        found = {"contentItems": [{"type": "inputText", "text": "x"}], "success": True}
        await answer(client, await question(client, "item/tool/call"), found)
        messages = await client.end_of(resumed["thread"]["turns"][-1]["id"])
    assert "item/autoApprovalReview/completed" in outline(messages)
    assert ends(messages)["call-3"] == "declined"


async def test_an_mcp_tool_approved_for_the_session_needs_no_approval_in_a_turn_that_continues(
    stage: Stage,
) -> None:
    stage.configure(stdio())
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="on-request")
    await settled(client, "mini")
    plays = [("plain", "call-1"), ("danger", "call-2"), ("plain", "call-3")]
    stage.model.plays(*(reply(f"mcp__mini__{tool}", {}, call_id) for tool, call_id in plays))
    turn_id = await client.start_turn(thread_id)
    for_session = {"action": "accept", "_meta": {"persist": "session"}}
    await answer(client, await question(client, ELICITATION), for_session)
    await question(client, ELICITATION)
    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})
    await answer(client, await question(client, ELICITATION), {"action": "decline"})
    messages = await client.end_of(turn_id)
    assert ends(messages) == {"call-2": "failed", "call-3": "completed"}
