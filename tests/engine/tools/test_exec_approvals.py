"""`exec_command` under a policy: approved, confined, retried without the sandbox."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.commands import (
    bench,
    commands,
    exited,
    streamed,
)
from tests.harness.sandbox import find_backend
from tests.harness.threads import PROLOGUE, outline
from treadle.protocol.base import JsonValue


async def test_a_command_runs_once_it_is_approved(home: Path) -> None:
    """Upstream: command approval, decision accept."""
    async with bench(home, approvalPolicy="untrusted", sandbox="danger-full-access") as b:
        wanted = {"cmd": "touch hello.txt && echo made"}
        turn_id = await b.start_call("exec_command", wanted)
        messages = await b.client.until("item/commandExecution/requestApproval")
        assert outline(messages) == [
            *PROLOGUE,
            "thread/tokenUsage/updated",
            "thread/status/changed active",
            "item/started commandExecution",
            "item/commandExecution/requestApproval",
        ]
        (started,) = commands(messages, "item/started")
        assert (started["source"], started["processId"]) == ("agent", None)
        assert not (b.stage.workspace / "hello.txt").exists()

        answer = {"id": messages[-1]["id"], "result": {"decision": "accept"}}
        await b.client.peer.send(answer)
        messages = await b.client.end_of(turn_id)

    assert (b.stage.workspace / "hello.txt").exists()
    (ended,) = commands(messages)
    assert (ended["source"], ended["status"]) == ("unifiedExecStartup", "completed")
    assert ended["processId"].isdigit()
    assert commands(messages, "item/started") == []
    assert re.match(exited(0, 2, "made\n"), b.output())


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        ({"result": {"decision": "decline"}}, "declined", "rejected by user"),
        ({"result": {"decision": "nope"}}, "failed", "approval request failed"),
        ({"error": {"code": -32000, "message": "no"}}, "failed", "approval request failed"),
    ],
)
async def test_a_command_that_is_not_approved_does_not_run(
    home: Path, reply: JsonValue, status: str, words: str
) -> None:
    """Upstream: decline, garbage and error."""
    async with bench(home, approvalPolicy="untrusted", sandbox="danger-full-access") as b:
        turn_id = await b.start_call("exec_command", {"cmd": "touch hello.txt"})
        messages = await b.client.until("item/commandExecution/requestApproval")
        await b.client.peer.send({"id": messages[-1]["id"], **reply})
        messages = await b.client.end_of(turn_id)

    assert not (b.stage.workspace / "hello.txt").exists()
    (ended,) = commands(messages)
    assert (ended["status"], ended["source"], ended["exitCode"]) == (status, "agent", None)
    rejected = f'exec_command failed: CreateProcess {{ message: "Rejected(\\"{words}\\")" }}'
    assert b.output() == rejected
    assert outline(messages)[-1] == "turn/completed completed"


async def test_a_cancelled_command_ends_the_turn(home: Path) -> None:
    """Upstream: command approval, decision cancel."""
    async with bench(home, approvalPolicy="untrusted", sandbox="danger-full-access") as b:
        turn_id = await b.start_call("exec_command", {"cmd": "touch hello.txt"})
        messages = await b.client.until("item/commandExecution/requestApproval")
        await b.client.peer.send({"id": messages[-1]["id"], "result": {"decision": "cancel"}})
        messages = await b.client.end_of(turn_id)

    assert [item["status"] for item in commands(messages)] == ["declined"]
    assert outline(messages)[-1] == "turn/completed interrupted"


async def test_a_command_that_the_sandbox_stops_is_reported_to_the_model(home: Path) -> None:
    """Upstream: on-request, read-only sandbox: command fails in the sandbox."""
    async with bench(home, approvalPolicy="on-request", sandbox="read-only") as b:
        messages, output = await b.call("exec_command", {"cmd": "touch made", "login": False})

    words = "touch: cannot touch 'made': Read-only file system\n"
    assert re.match(exited(1, 13, words), output)
    assert [item["status"] for item in commands(messages)] == ["failed"]
    assert not (b.stage.workspace / "made").exists()


async def test_after_a_failure_the_user_may_accept_a_run_without_the_sandbox(home: Path) -> None:
    async with bench(home, approvalPolicy="on-failure", sandbox="read-only") as b:
        wanted = {"cmd": "touch made && echo done", "login": False}
        turn_id = await b.start_call("exec_command", wanted)
        messages = await b.client.until("item/commandExecution/requestApproval")
        assert len(commands(messages, "item/started")) == 1
        assert not (b.stage.workspace / "made").exists()
        await b.client.peer.send({"id": messages[-1]["id"], "result": {"decision": "accept"}})
        rest = await b.client.end_of(turn_id)

    assert (b.stage.workspace / "made").exists()
    assert commands(rest, "item/started") == []
    (ended,) = commands(rest)
    assert (ended["status"], ended["exitCode"]) == ("completed", 0)
    assert streamed([*messages, *rest]) == ended["aggregatedOutput"]
    # The model reads of the second attempt only.
    assert re.match(exited(0, 2, "done\n"), b.output())


async def test_after_a_failure_the_user_may_decline_a_retry(home: Path) -> None:
    async with bench(home, approvalPolicy="on-failure", sandbox="read-only") as b:
        turn_id = await b.start_call("exec_command", {"cmd": "touch made", "login": False})
        messages = await b.client.until("item/commandExecution/requestApproval")
        await b.client.peer.send({"id": messages[-1]["id"], "result": {"decision": "decline"}})
        messages = await b.client.end_of(turn_id)

    assert [(item["status"], item["exitCode"]) for item in commands(messages)] == [("failed", 1)]
    assert "Process exited with code 1" in b.output()
    assert not (b.stage.workspace / "made").exists()


async def test_a_command_that_cannot_be_confined_does_not_run(home: Path) -> None:
    if (await find_backend()).name != "bubblewrap":
        pytest.skip("another means of confinement can do it")
    async with bench(home, approvalPolicy="never", sandbox="workspace-write") as b:
        (b.stage.workspace / ".codex").symlink_to(home)
        messages, output = await b.call("exec_command", {"cmd": "touch made"})

    assert not (b.stage.workspace / "made").exists()
    (ended,) = commands(messages)
    why = ended["aggregatedOutput"]
    assert (ended["status"], ended["exitCode"], ended["processId"]) == ("failed", -1, None)
    assert why.startswith("Failed to create unified exec process: ")
    assert f"{b.stage.workspace}/.codex is a link" in why
    assert why in output
