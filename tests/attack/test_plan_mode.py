"""In plan mode nothing is written without an approval for it, whatever allows it otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.model_server import calls, says
from tests.harness.scripted import client_of, playing
from tests.harness.team import Team, spawn, wait
from tests.harness.threads import Stage
from treadle.model.scripted.model import calls as scripted_call
from treadle.protocol.base import JsonValue

PLAN: JsonValue = {
    "mode": "plan",
    "settings": {
        "model": "mock-model",
        "reasoning_effort": None,
        "developer_instructions": None,
    },
}
RULE = 'prefix_rule(pattern=["touch"], decision="allow")\n'
FULL: JsonValue = {"type": "dangerFullAccess"}
EXTERNAL: JsonValue = {"type": "externalSandbox", "networkAccess": "enabled"}
WORKSPACE: JsonValue = {"type": "workspaceWrite"}


def allow_touch(home: Path) -> None:
    (home / "rules").mkdir()
    (home / "rules" / "default.rules").write_text(RULE, "utf-8")


@pytest.mark.parametrize("policy", [FULL, EXTERNAL, WORKSPACE], ids=lambda each: each["type"])
@pytest.mark.parametrize("has_rule", [False, True])
async def test_a_command_writes_nothing(stage: Stage, policy: JsonValue, *, has_rule: bool) -> None:
    """An external sandbox does not know of the mode, and a rule is for doing the work."""
    if has_rule:
        allow_touch(stage.home)
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(calls("exec_command", {"cmd": "touch made"}), says("done"))
    await client.run(thread_id, collaborationMode=PLAN, sandboxPolicy=policy)
    planned = (stage.workspace / "made").exists()
    default = {**PLAN, "mode": "default"}
    stage.model.plays(calls("exec_command", {"cmd": "touch made"}), says("done"))
    await client.run(thread_id, collaborationMode=default)

    assert (planned, (stage.workspace / "made").exists()) == (False, True)


@pytest.mark.parametrize("sandbox", ["danger-full-access", "workspace-write"])
async def test_an_agent_of_a_thread_that_plans_writes_nothing(
    home: Path, workspace: Path, sandbox: str
) -> None:
    """It has the rules of its parent, but not its mode."""
    allow_touch(home)
    team = Team()
    patch = "*** Begin Patch\n*** Add File: patched\n+x\n*** End Patch\n"
    team.children = [
        scripted_call("exec_command", {"cmd": "touch made"}),
        scripted_call("apply_patch", {"input": patch}),
        "done",
    ]
    team.plays(spawn(), wait)
    async with playing(home, team.model) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(workspace), sandbox=sandbox, approvalPolicy="never")
        await client.run(thread_id, collaborationMode=PLAN)

    assert not team.children
    assert not (workspace / "made").exists()
    assert not (workspace / "patched").exists()
