"""Input to a command with more rights than the sandbox allows now needs approval."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.commands import Bench, bench, commands, session_of
from tests.harness.questions import answer, question
from tests.harness.threads import outline, params_of
from treadle.protocol.base import JsonValue

ASK = "item/commandExecution/requestApproval"
TYPED = "item/commandExecution/terminalInteraction"
POLICY: dict[str, JsonValue] = {"approvalPolicy": "on-request", "sandbox": "read-only"}
SHELL: JsonValue = {"cmd": "sh", "login": False, "tty": True, "yield_time_ms": 250}


async def free_shell(on: Bench) -> int:
    """A shell outside the sandbox, which the user has agreed to; gives its session."""
    turn_id = await on.start_call(
        "exec_command", {**SHELL, "sandbox_permissions": "require_escalated"}
    )
    await answer(on.client, await question(on.client, ASK), {"decision": "accept"})
    await on.client.end_of(turn_id)
    return session_of(on.output())


async def typed(
    on: Bench, session: int, chars: str, reply: JsonValue
) -> tuple[JsonValue, list[JsonValue]]:
    """Let the model type and the user decide; return the server request and what follows it."""
    arguments = {"session_id": session, "chars": chars, "yield_time_ms": 250}
    turn_id = await on.start_call("write_stdin", arguments, "call-2")
    asked = await question(on.client, ASK)
    await on.client.peer.send({"id": asked["id"], **reply})
    return asked["params"], await on.client.end_of(turn_id)


async def test_input_to_a_command_outside_the_sandbox_needs_approval(
    home: Path,
) -> None:
    async with bench(home, **POLICY) as on:
        session = await free_shell(on)
        asked, messages = await typed(
            on, session, "touch a; exit\n", {"result": {"decision": "accept"}}
        )
        workspace = on.stage.workspace

    assert asked.pop("startedAtMs") > 0
    turn_id = params_of(messages, "turn/completed")[0]["turn"]["id"]
    command = f"write_stdin --session-id {session} 'touch a; exit\n'"
    assert asked == {
        "kind": "writeStdin",
        "threadId": on.thread_id,
        "turnId": turn_id,
        "itemId": "call-1",
        "approvalId": "call-2",
        "environmentId": "local",
        "reason": "Send input to a running command. It runs outside the sandbox; its working "
        "folder and its state may have changed since it started.",
        "command": command,
        "commandActions": [{"type": "unknown", "command": command}],
        "cwd": str(workspace),
        "availableDecisions": ["accept", "cancel"],
    }
    assert [entry["stdin"] for entry in params_of(messages, TYPED)] == ["touch a; exit\n"]
    assert (workspace / "a").exists()


@pytest.mark.parametrize(
    ("reply", "output"),
    [
        ({"result": {"decision": "decline"}}, "write_stdin rejected: rejected by user"),
        ({"result": "nonsense"}, "write_stdin rejected: approval request failed"),
        ({"error": {"code": 1, "message": "no"}}, "write_stdin rejected: approval request failed"),
    ],
)
async def test_input_that_is_not_approved_is_not_sent_and_the_command_keeps_running(
    home: Path, reply: JsonValue, output: str
) -> None:
    async with bench(home, **POLICY) as on:
        session = await free_shell(on)
        _, messages = await typed(on, session, "touch a; exit\n", reply)
        assert on.output("call-2") == output
        assert params_of(messages, TYPED) == []
        listed = await on.client.request(
            "thread/backgroundTerminals/list", {"threadId": on.thread_id}
        )
        assert [each["processId"] for each in listed["data"]] == [str(session)]
        workspace = on.stage.workspace
    assert not (workspace / "a").exists()


async def test_cancel_ends_the_turn_and_leaves_the_command_of_the_earlier_one(home: Path) -> None:
    async with bench(home, **POLICY) as on:
        session = await free_shell(on)
        _, messages = await typed(on, session, "exit\n", {"result": {"decision": "cancel"}})
    assert outline(messages)[-1] == "turn/completed interrupted"
    assert commands(messages) == []


async def test_reading_output_needs_no_approval(home: Path) -> None:
    async with bench(home, **POLICY) as on:
        session = await free_shell(on)
        messages, _ = await on.call("write_stdin", {"session_id": session, "chars": ""}, "call-2")
    assert ASK not in outline(messages)


async def test_input_to_a_sandboxed_command_needs_no_approval(home: Path) -> None:
    async with bench(home, **POLICY) as on:
        _, output = await on.call("exec_command", SHELL)
        arguments = {"session_id": session_of(output), "chars": "exit\n"}
        messages, _ = await on.call("write_stdin", arguments, "call-2")
    assert ASK not in outline(messages)
    assert len(params_of(messages, TYPED)) == 1


async def test_without_approvals_input_to_a_freer_command_is_denied(home: Path) -> None:
    """A thread may have become stricter since the command was started."""
    async with bench(home, approvalPolicy="never", sandbox="danger-full-access") as on:
        _, output = await on.call("exec_command", SHELL)
        await on.client.run(on.thread_id, sandboxPolicy={"type": "readOnly"})
        arguments = {"session_id": session_of(output), "chars": "touch a\n"}
        messages, said = await on.call("write_stdin", arguments, "call-2")
        workspace = on.stage.workspace
    assert said.startswith("write_stdin rejected: the terminal has more permissions than the")
    assert params_of(messages, TYPED) == []
    assert not (workspace / "a").exists()
