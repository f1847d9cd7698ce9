"""Open server requests when a server ends: waiting calls continue, and no command runs twice."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from tests.harness.commands import wait_until_gone
from tests.harness.processes import spawn_server
from tests.harness.questions import answer, question
from tests.harness.scripted import SECONDS, client_of, over, playing, write_script
from tests.harness.threads import Client, params_of, text_input, words
from treadle.model.scripted.model import ScriptedModel
from treadle.model.scripted.script import AnyStep, calls, says
from treadle.protocol.base import JsonValue

ASK = "item/commandExecution/requestApproval"
POLICY: dict[str, JsonValue] = {"approvalPolicy": "on-request", "sandbox": "danger-full-access"}

NO_TEMPORARY_FOLDERS = """\
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder to work in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def runs(command: str, call_id: str) -> AnyStep:
    """A command that needs no approval."""
    return calls("exec_command", {"cmd": command, "login": False}, call_id=call_id)


def asks(command: str, call_id: str) -> AnyStep:
    """A command that requires approval: it looks dangerous, but is not."""
    return runs(f"rm -rf none; {command}", call_id)


def stored(folder: Path, *steps: AnyStep) -> str:
    """A script of one answer for a server in its own process."""
    return str(write_script(folder / "script.json", [msgspec.to_builtins(list(steps))]))


def commands(messages: list[JsonValue]) -> dict[str, JsonValue]:
    """How commands ended, by id."""
    items = [params["item"] for params in params_of(messages, "item/completed")]
    return {item["id"]: item["status"] for item in items if item["type"] == "commandExecution"}


def outputs(model: ScriptedModel) -> dict[str, str]:
    """The outputs that the model received for its calls."""
    items = model.requests[-1].input
    return {item["call_id"]: item["output"] for item in items if "output" in item}


async def completed(client: Client, call_id: str) -> list[JsonValue]:
    """Wait until a command has ended."""
    return await client.until("item/completed", lambda params: params["item"]["id"] == call_id)


async def test_two_waiting_calls_are_both_requested_again(home: Path, work: Path) -> None:
    script = [[asks("echo 1 >> a", "call-1"), asks("echo 2 >> b", "call-2")]]
    async with playing(home, script) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id)
        for _ in range(2):
            await question(client, ASK)
        await server.close()
    model = ScriptedModel([[says("done")]])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        asked = [await question(client, ASK) for _ in range(2)]
        assert [one["params"]["itemId"] for one in asked] == ["call-1", "call-2"]
        await answer(client, asked[1], {"decision": "decline"})
        await answer(client, asked[0], {"decision": "accept"})
        messages = await client.end_of(turn_id)
    assert commands(messages) == {"call-1": "completed", "call-2": "declined"}
    assert (work / "a").read_text() == "1\n"
    assert not (work / "b").exists()


@pytest.mark.parametrize("end", ["close", "kill"])
async def test_a_finished_command_does_not_run_again_and_its_output_is_kept(
    home: Path, work: Path, end: str
) -> None:
    script = stored(home, runs("echo 1 | tee -a a", "call-1"), asks("echo 2 >> b", "call-2"))
    server = spawn_server(home, TREADLE_SCRIPT=script)
    async with asyncio.timeout(SECONDS), over(server) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id)
        messages = await client.until(ASK)
        if "call-1" not in commands(messages):
            await completed(client, "call-1")
        # The model receives the output a moment later; a model request follows.
        await client.read(thread_id)
        os.kill(server.pid, signal.SIGKILL if end == "kill" else signal.SIGTERM)
    model = ScriptedModel([[says("done")]])
    async with playing(home, model) as second, client_of(second) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        asked = await question(client, ASK)
        assert asked["params"]["itemId"] == "call-2"
        await answer(client, asked, {"decision": "accept"})
        messages = await client.end_of(turn_id)
        assert commands(messages) == {"call-2": "completed"}
        given = outputs(model)
        thread = await client.read(thread_id)
    assert given["call-1"].endswith("Output:\n1\n")
    assert "Process exited with code 0" in given["call-2"]
    items = [item for item in thread["turns"][0]["items"] if item["type"] == "commandExecution"]
    assert [(item["id"], item["status"]) for item in items] == [
        ("call-1", "completed"),
        ("call-2", "completed"),
    ]
    assert ((work / "a").read_text(), (work / "b").read_text()) == ("1\n", "2\n")


async def test_a_command_that_ran_beside_a_server_request_is_over_after_a_kill(
    home: Path, work: Path
) -> None:
    script = stored(home, runs("echo $$ > pid; sleep 600", "call-1"), asks("echo 2 >> b", "call-2"))
    server = spawn_server(home, TREADLE_SCRIPT=script)
    os.mkfifo(work / "pid")
    async with asyncio.timeout(SECONDS), over(server) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id)
        pid = int(await asyncio.to_thread((work / "pid").read_text))
        messages = await client.until(ASK)
        if "call-1" not in [params["item"]["id"] for params in params_of(messages, "item/started")]:
            await client.until("item/started", lambda params: params["item"]["id"] == "call-1")
        os.kill(server.pid, signal.SIGKILL)
    wait_until_gone(pid)
    model = ScriptedModel([[says("done")]])
    async with playing(home, model) as second, client_of(second) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await answer(client, await question(client, ASK), {"decision": "accept"})
        await client.end_of(turn_id)
        given = outputs(model)
        thread = await client.read(thread_id)
    assert given["call-1"] == "aborted: the server was restarted"
    items = [item for item in thread["turns"][0]["items"] if item["type"] == "commandExecution"]
    assert {item["id"]: item["status"] for item in items} == {
        "call-1": "failed",
        "call-2": "completed",
    }


@pytest.mark.parametrize(("decision", "lines"), [("accept", "xx"), ("decline", "x")])
async def test_a_command_that_may_be_retried_does_not_run_again_without_approval(
    home: Path, work: Path, decision: str, lines: str
) -> None:
    """The sandbox had stopped it; it must not repeat its effects by itself."""
    # Of another shell, the sandbox may not recognize how it fails.
    command = f"bash -c 'printf x >> log; echo y > {home.parent}/outside'"
    (home / "config.toml").write_text(NO_TEMPORARY_FOLDERS, "utf-8")
    killed = spawn_server(home, TREADLE_SCRIPT=stored(home, runs(command, "e1")))
    policy = {"approvalPolicy": "on-failure", "sandbox": "workspace-write"}
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(work), **policy)
        turn_id = await client.start_turn(thread_id)
        await question(client, ASK)
        os.kill(killed.pid, signal.SIGKILL)
    model = ScriptedModel(["done"])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        asked = await question(client, ASK)
        before = (work / "log").read_text()
        await answer(client, asked, {"decision": decision})
        messages = await client.end_of(turn_id)

    status = "completed" if decision == "accept" else "declined"
    assert (before, (work / "log").read_text()) == ("x", lines)
    assert commands(messages) == {"e1": status}
    assert ("its output is lost" in outputs(model)["e1"]) == (decision == "decline")


async def test_a_deadline_that_passed_while_no_server_ran_counts(home: Path, work: Path) -> None:
    (home / "config.toml").write_text("[asks]\ndeadline_ms = 1500\n")
    script = [[asks("touch a", "call-1")]]
    async with playing(home, script) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id)
        await question(client, ASK)
        await server.close()
    late = 10_000_000_000_000
    async with playing(home, [[says("done")]]) as server, client_of(server) as client:
        server.threads.services.clock = lambda: late
        await client.request("thread/resume", {"threadId": thread_id})
        messages = await client.end_of(turn_id)
    assert commands(messages) == {"call-1": "declined"}
    assert len(params_of(messages, "serverRequest/resolved")) == 1
    assert not (work / "a").exists()


async def test_a_background_command_is_over_after_its_server_was_killed(
    home: Path, work: Path
) -> None:
    slow = {"cmd": "echo $$ > pid; sleep 600", "login": False, "yield_time_ms": 250}
    script = stored(home, calls("exec_command", slow, call_id="call-1"))
    server = spawn_server(home, TREADLE_SCRIPT=script)
    os.mkfifo(work / "pid")
    async with asyncio.timeout(SECONDS), over(server) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id)
        pid = int(await asyncio.to_thread((work / "pid").read_text))
        await client.end_of(turn_id)
        os.kill(server.pid, signal.SIGKILL)
    wait_until_gone(pid)
    async with playing(home, [[says("done")]]) as second, client_of(second) as client:
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        (item,) = (
            item for item in resumed["thread"]["turns"][0]["items"] if item["id"] == "call-1"
        )
        assert item["status"] == "failed"
        assert await client.read(thread_id) == resumed["thread"]


async def test_input_sent_while_a_server_request_was_open_is_not_lost(
    home: Path, work: Path
) -> None:
    async with playing(home, [[asks("true", "call-1")]]) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id, "first")
        await question(client, ASK)
        steered = {
            "threadId": thread_id,
            "expectedTurnId": turn_id,
            "input": [text_input("second")],
        }
        await client.request("turn/steer", steered)
        await server.close()
    model = ScriptedModel([[says("done")]])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await answer(client, await question(client, ASK), {"decision": "accept"})
        await client.end_of(turn_id)
        thread = await client.read(thread_id)
    assert words(thread) == [["first", "commandExecution", "second", "done"]]
    assert "second" in [
        part["text"]
        for item in model.requests[-1].input
        if item["type"] == "message"
        for part in item["content"]
    ]


async def test_a_turn_that_continues_keeps_its_output_schema_and_budget(
    home: Path, work: Path
) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    wanted: dict[str, JsonValue] = {"outputSchema": schema, "budget": {"maxModelRequests": 1}}
    async with playing(home, [[asks("true", "call-1")]]) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id, "go", **wanted)
        await question(client, ASK)
        await server.close()
    model = ScriptedModel([[says("no JSON")]])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await answer(client, await question(client, ASK), {"decision": "accept"})
        (ended,) = params_of(await client.end_of(turn_id), "turn/completed")
    assert [request.output_schema for request in model.requests] == [schema]
    # The answer does not match, and no model request is left to correct it.
    assert ended["turn"]["error"]["codexErrorInfo"] == "sessionBudgetExceeded"
