"""Approval of a command in the sandbox is not approval of the same command outside it.

A command controls its own output, so any command can pretend that the sandbox stopped it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack.test_planted_settings import NO_TEMPORARY_FOLDERS
from tests.harness.commands import Bench, bench
from tests.harness.model_server import calls
from tests.sandbox.commands import names
from treadle.protocol.base import JsonValue

APPROVAL = "item/commandExecution/requestApproval"
REASON = "command failed; retry without sandbox?"


async def run_and_answer(
    b: Bench, arguments: dict[str, JsonValue], *decisions: str
) -> list[JsonValue]:
    """Have the model run a command, and answer each approval request; return the reasons shown.

    There must be as many approval requests as decisions.
    """
    b.thread_id = await b.client.start(
        cwd=str(b.stage.workspace), approvalPolicy="untrusted", sandbox="workspace-write"
    )
    turn_id = await b.start_call("exec_command", {**arguments, "login": False})
    reasons: list[JsonValue] = []
    for decision in decisions:
        approval = (await b.client.until(APPROVAL))[-1]
        reasons.append(approval["params"].get("reason"))
        await b.client.peer.send({"id": approval["id"], "result": {"decision": decision}})
    messages = await b.client.end_of(turn_id)
    assert [each for each in messages if each.get("method") == APPROVAL] == []
    return reasons


def leaving(outside: Path) -> str:
    """Return a script that counts its runs, and pretends to be denied if it is confined."""
    return f"echo run >> runs; echo x > {outside}/left || {{ echo permission denied; exit 1; }}"


@pytest.mark.parametrize("first", ["accept", "acceptForSession"])
@pytest.mark.parametrize("justification", [None, "it only reads a file"])
async def test_user_is_asked_before_an_approved_command_leaves_the_sandbox(
    home: Path, first: str, justification: str | None
) -> None:
    outside = home.parent / "outside"
    outside.mkdir()
    async with bench(home) as b:
        b.stage.configure(NO_TEMPORARY_FOLDERS)
        arguments: dict[str, JsonValue] = {"cmd": leaving(outside), "justification": justification}
        if first == "acceptForSession":
            arguments["cmd"] = f"if true; then {arguments['cmd']}; fi"
        reasons = await run_and_answer(b, arguments, first, "decline")
        assert reasons == [justification, REASON]
        assert (b.stage.workspace / "runs").read_text() == "run\n"
    assert names(outside) == []


async def test_command_leaves_the_sandbox_after_a_second_approval(home: Path) -> None:
    outside = home.parent / "outside"
    outside.mkdir()
    async with bench(home) as b:
        b.stage.configure(NO_TEMPORARY_FOLDERS)
        reasons = await run_and_answer(b, {"cmd": leaving(outside)}, "accept", "accept")
        assert reasons == [None, REASON]
        assert (b.stage.workspace / "runs").read_text() == "run\nrun\n"
    assert names(outside) == ["left"]


async def test_command_that_was_approved_to_run_outside_needs_one_approval(home: Path) -> None:
    outside = home.parent / "outside"
    outside.mkdir()
    async with bench(home) as b:
        b.stage.configure(NO_TEMPORARY_FOLDERS)
        arguments: dict[str, JsonValue] = {
            "cmd": f"{leaving(outside)}; echo permission denied; exit 1",
            "sandbox_permissions": "require_escalated",
            "justification": "why",
        }
        assert await run_and_answer(b, arguments, "accept") == ["why"]
        assert (b.stage.workspace / "runs").read_text() == "run\n"
    assert names(outside) == ["left"]


async def test_approval_for_the_session_in_the_sandbox_does_not_apply_outside(home: Path) -> None:
    arguments: dict[str, JsonValue] = {"cmd": "if true; then echo run >> runs; fi", "login": False}
    async with bench(home, approvalPolicy="untrusted", sandbox="workspace-write") as b:
        turn_id = await b.start_call("exec_command", arguments)
        approval = (await b.client.until(APPROVAL))[-1]
        await b.client.peer.send({"id": approval["id"], "result": {"decision": "acceptForSession"}})
        await b.client.end_of(turn_id)
        await b.call("exec_command", arguments, "call-2")
        assert (b.stage.workspace / "runs").read_text() == "run\nrun\n"

        b.stage.model.plays(calls("exec_command", arguments, "call-3"))
        free: JsonValue = {"type": "dangerFullAccess"}
        turn_id = await b.client.start_turn(b.thread_id, sandboxPolicy=free)
        approval = (await b.client.until(APPROVAL))[-1]
        await b.client.peer.send({"id": approval["id"], "result": {"decision": "decline"}})
        await b.client.end_of(turn_id)
        assert (b.stage.workspace / "runs").read_text() == "run\nrun\n"
