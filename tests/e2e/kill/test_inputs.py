"""User input and tool results from before a kill of the server reach the model."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from tests.harness.processes import spawn_server
from tests.harness.questions import answer, question
from tests.harness.scripted import SECONDS, client_of, over, playing, write_script
from tests.harness.threads import Client, params_of, text_input, words
from treadle.model.scripted.model import ScriptedModel
from treadle.model.scripted.script import AnyStep, Response, calls, says, waits
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import SubprocessTransport

ASK = "item/commandExecution/requestApproval"
POLICY: dict[str, JsonValue] = {"approvalPolicy": "on-request", "sandbox": "danger-full-access"}
THINKS = waits(600)


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


def playing_apart(home: Path, *steps: AnyStep) -> SubprocessTransport:
    """A server in its own process whose model gives one answer."""
    script = write_script(home / "script.json", [msgspec.to_builtins(list(steps))])
    return spawn_server(home, TREADLE_SCRIPT=str(script))


async def steer(client: Client, thread_id: str, turn_id: str, text: str) -> None:
    """Steer a turn."""
    params = {"threadId": thread_id, "expectedTurnId": turn_id, "input": [text_input(text)]}
    await client.request("turn/steer", params)


async def completed(client: Client, item_id: str) -> None:
    """Wait until an item is completed."""
    await client.until("item/completed", lambda params: params["item"]["id"] == item_id)


def cut_before_turn(path: Path, text: bytes) -> None:
    """Leave the journal of a server that answers `turn/start` and dies before the turn starts."""
    rollout = path.read_bytes()
    begins = rollout.index(b'"method":"turn/started"', rollout.index(text))
    path.write_bytes(rollout[:begins])


def cut_after_item(path: Path, item_id: str) -> None:
    """Leave the journal of a server that dies right after the end of an item."""
    rollout = path.read_bytes()
    completed = rollout.index(b'"method":"item/completed"', rollout.index(item_id.encode()))
    path.write_bytes(rollout[: rollout.index(b"\n", completed) + 1])


def cut_after_answer(path: Path) -> None:
    """Leave the journal of a server that dies right after it received an answer."""
    rollout = path.read_bytes()
    answered = rollout.index(b'{"record":"askAnswered"')
    path.write_bytes(rollout[: rollout.index(b"\n", answered) + 1])


def user_texts(model: ScriptedModel, among: tuple[str, ...]) -> list[str]:
    """Which of these texts of the user the model was shown last, in order."""
    return [
        part["text"]
        for item in model.requests[-1].input
        if item.get("role") == "user"
        for part in item["content"]
        if part.get("text") in among
    ]


def outputs(model: ScriptedModel) -> dict[str, str]:
    """The outputs that the model received for its calls."""
    items = model.requests[-1].input
    return {item["call_id"]: item["output"] for item in items if "output" in item}


async def test_input_to_a_turn_that_continues_after_a_kill_reaches_it(
    home: Path, work: Path
) -> None:
    killed = playing_apart(home, asks("true", "call-1"))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id, "first")
        await question(client, ASK)
        await steer(client, thread_id, turn_id, "second")
        os.kill(killed.pid, signal.SIGKILL)
    model = ScriptedModel([[says("done")]])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await answer(client, await question(client, ASK), {"decision": "accept"})
        await client.end_of(turn_id)
        thread = await client.read(thread_id)
    assert words(thread) == [["first", "commandExecution", "second", "done"]]
    assert user_texts(model, ("first", "second")) == ["first", "second"]


async def test_input_to_a_turn_that_a_kill_ends_is_kept_in_the_history(
    home: Path, work: Path
) -> None:
    killed = playing_apart(home, THINKS)
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id, "first")
        await client.until("item/completed")
        await steer(client, thread_id, turn_id, "second")
        os.kill(killed.pid, signal.SIGKILL)
    model = ScriptedModel(["done"])
    async with playing(home, model) as server, client_of(server) as client:
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        await client.run(thread_id, "third")
        thread = await client.read(thread_id)
    assert words(resumed["thread"]) == [["first", "second"]]
    assert [turn["status"] for turn in thread["turns"]] == ["interrupted", "completed"]
    assert words(thread) == [["first", "second"], ["third", "done"]]
    assert user_texts(model, ("first", "second", "third")) == ["first", "second", "third"]


async def test_a_message_whose_turn_never_started_is_kept_in_the_history(
    home: Path,
) -> None:
    async with playing(home, ["one", "two"]) as server, client_of(server) as client:
        answered = await client.request("thread/start", {})
        thread_id, path = answered["thread"]["id"], Path(answered["thread"]["path"])
        await client.run(thread_id, "first")
        turn_id = await client.start_turn(thread_id, "second")
        await client.end_of(turn_id)
    cut_before_turn(path, b"second")
    model = ScriptedModel(["three"])
    async with playing(home, model) as server, client_of(server) as client:
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        await client.run(thread_id, "third")
    turns = resumed["thread"]["turns"]
    assert [(turn["id"], turn["status"]) for turn in turns[1:]] == [(turn_id, "interrupted")]
    assert words(resumed["thread"]) == [["first", "one"], ["second"]]
    assert user_texts(model, ("first", "second", "third")) == ["first", "second", "third"]


async def test_the_output_of_a_user_command_beside_a_server_request_survives_a_kill(
    home: Path, work: Path
) -> None:
    killed = playing_apart(home, asks("true", "call-1"))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id, "first")
        await question(client, ASK)
        await client.request("thread/shellCommand", {"threadId": thread_id, "command": "echo mine"})
        await client.until(
            "item/completed", lambda params: params["item"].get("source") == "userShell"
        )
        os.kill(killed.pid, signal.SIGKILL)
    model = ScriptedModel([[says("done")]])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await answer(client, await question(client, ASK), {"decision": "accept"})
        await client.end_of(turn_id)
    shown = [str(item["content"]) for item in model.requests[-1].input if "content" in item]
    assert ["mine" in text for text in shown if "<user_shell_command>" in text] == [True]


async def test_settings_changed_during_a_turn_hold_when_it_continues_after_a_kill(
    home: Path, work: Path
) -> None:
    killed = playing_apart(home, asks("true", "call-1"))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(work), model="usual", **POLICY)
        turn_id = await client.start_turn(thread_id)
        await question(client, ASK)
        params = {"threadId": thread_id, "turnId": turn_id, "model": "other"}
        await client.request("turn/settings/update", params)
        os.kill(killed.pid, signal.SIGKILL)
    model = ScriptedModel(["done", "done"])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await answer(client, await question(client, ASK), {"decision": "accept"})
        await client.end_of(turn_id)
        await client.run(thread_id)
    assert [request.model for request in model.requests] == ["other", "usual"]


async def test_a_tool_result_from_an_unfinished_model_response_survives_a_kill(
    home: Path, work: Path
) -> None:
    killed = playing_apart(home, runs("echo 1 | tee -a a", "call-1"), THINKS)
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        await client.start_turn(thread_id)
        await completed(client, "call-1")
        os.kill(killed.pid, signal.SIGKILL)
    model = ScriptedModel(["done"])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await client.run(thread_id)
    assert outputs(model)["call-1"].endswith("Output:\n1\n")
    assert (work / "a").read_text() == "1\n"


async def test_a_turn_that_continues_has_the_tool_results_of_an_unfinished_response(
    home: Path, work: Path
) -> None:
    steps = runs("echo 1 | tee -a a", "call-1"), asks("echo 2 >> b", "call-2"), THINKS
    killed = playing_apart(home, *steps)
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id)
        messages = await client.until(ASK)
        if "call-1" not in [
            params["item"]["id"] for params in params_of(messages, "item/completed")
        ]:
            await completed(client, "call-1")
        os.kill(killed.pid, signal.SIGKILL)
    model = ScriptedModel(["done"])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await answer(client, await question(client, ASK), {"decision": "accept"})
        await client.end_of(turn_id)
    assert outputs(model)["call-1"].endswith("Output:\n1\n")
    assert "Process exited with code 0" in outputs(model)["call-2"]
    assert ((work / "a").read_text(), (work / "b").read_text()) == ("1\n", "2\n")


async def test_a_call_whose_item_had_ended_counts_as_done_without_a_stored_output(
    home: Path, work: Path
) -> None:
    script = [[runs("echo 1 | tee -a a", "call-1")], "done"]
    async with playing(home, script) as server, client_of(server) as client:
        answered = await client.request("thread/start", {"cwd": str(work), **POLICY})
        thread_id, path = answered["thread"]["id"], Path(answered["thread"]["path"])
        await client.run(thread_id)
    cut_after_item(path, "call-1")
    model = ScriptedModel(["done"])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await client.run(thread_id)
    known, end = outputs(model)["call-1"].split("\n", 1)
    assert known.startswith("The server was restarted after this call had ended.")
    assert (json.loads(end)["exitCode"], json.loads(end)["aggregatedOutput"]) == (0, "1\n")


async def test_an_answer_of_the_user_reaches_the_model_even_if_the_server_is_killed_at_once(
    home: Path,
) -> None:
    option = {"label": "Blue", "description": "cold"}
    asked = {"id": "color", "header": "Color", "question": "Which?", "options": [option]}
    config = {"features.default_mode_request_user_input": True}
    asks_user = calls("request_user_input", {"questions": [asked]}, call_id="call-1")
    script: list[Response] = [asks_user, "done"]
    given = {"answers": {"color": {"answers": ["Blue"]}}}
    async with playing(home, script) as server, client_of(server) as client:
        answered = await client.request("thread/start", {"config": config})
        thread_id, path = answered["thread"]["id"], Path(answered["thread"]["path"])
        turn_id = await client.start_turn(thread_id)
        await answer(client, await question(client, "item/tool/requestUserInput"), given)
        await client.end_of(turn_id)
    cut_after_answer(path)
    model = ScriptedModel(["done"])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await client.run(thread_id)
    assert json.loads(outputs(model)["call-1"]) == given


async def test_queued_input_survives_a_kill(home: Path, work: Path) -> None:
    killed = playing_apart(home, THINKS)
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(work))
        await client.start_turn(thread_id)
        for name in ("a", "b"):
            params = {"threadId": thread_id, "clientUserMessageId": name}
            await client.request("thread/queue/add", {**params, "input": [text_input(name)]})
        os.kill(killed.pid, signal.SIGKILL)
    async with playing(home, ["done"]) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        left = await client.request("thread/queue/list", {"threadId": thread_id})
        await client.request("thread/queue/start", {"threadId": thread_id})
        await client.until("turn/completed")
    assert [each["clientUserMessageId"] for each in left["data"]] == ["a", "b"]
