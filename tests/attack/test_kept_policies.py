"""A policy that a client was promised applies in reviews, and under the next server."""

from __future__ import annotations

import pytest

from tests.harness.model_server import calls, says
from tests.harness.questions import answer, question
from tests.harness.threads import Client, Stage
from treadle.protocol.base import JsonValue

COMMAND_APPROVAL = "item/commandExecution/requestApproval"
STRICT: JsonValue = {"approvalPolicy": "untrusted", "sandbox": "read-only"}
FREE: JsonValue = {"approvalPolicy": "never", "sandbox": "danger-full-access"}


async def start_thread(stage: Stage, **params: JsonValue) -> tuple[Client, str]:
    client = await stage.client()
    return client, await client.start(cwd=str(stage.workspace), **params)


async def policy_after_restart(stage: Stage, thread_id: str) -> tuple[str, str]:
    await stage.restart()
    client = await stage.client()
    resumed = await client.request("thread/resume", {"threadId": thread_id})
    return resumed["approvalPolicy"], resumed["sandbox"]["type"]


async def test_thread_without_turns_keeps_its_policy(stage: Stage) -> None:
    _, thread_id = await start_thread(stage, **STRICT)
    assert await policy_after_restart(stage, thread_id) == ("untrusted", "readOnly")


async def test_fork_keeps_the_policy_that_it_was_given(stage: Stage) -> None:
    client, thread_id = await start_thread(stage, **FREE)
    await client.run(thread_id)
    fork = await client.request("thread/fork", {"threadId": thread_id, **STRICT})
    kept = await policy_after_restart(stage, fork["thread"]["id"])
    assert kept == ("untrusted", "readOnly")


async def test_policy_that_was_changed_between_turns_is_stored(stage: Stage) -> None:
    client, thread_id = await start_thread(stage, **FREE)
    await client.run(thread_id)
    change = {"approvalPolicy": "untrusted", "sandboxPolicy": {"type": "readOnly"}}
    await client.request("thread/settings/update", {"threadId": thread_id, **change})
    assert await policy_after_restart(stage, thread_id) == ("untrusted", "readOnly")


async def test_policy_of_the_latest_turn_applies(stage: Stage) -> None:
    client, thread_id = await start_thread(stage, **STRICT)
    await client.run(thread_id, sandboxPolicy={"type": "dangerFullAccess"})
    assert await policy_after_restart(stage, thread_id) == ("untrusted", "dangerFullAccess")


@pytest.mark.parametrize("sandbox", ["read-only", "danger-full-access"])
async def test_reviewer_asks_where_every_command_needs_approval(stage: Stage, sandbox: str) -> None:
    client, thread_id = await start_thread(stage, approvalPolicy="untrusted", sandbox=sandbox)
    stage.model.plays(calls("exec_command", {"cmd": "touch made"}), says("{}"))
    target = {"type": "custom", "instructions": "look"}
    await client.request("review/start", {"threadId": thread_id, "target": target})
    approval = await question(client, COMMAND_APPROVAL)
    await answer(client, approval, {"decision": "decline"})
    await client.until("turn/completed")
    assert not (stage.workspace / "made").exists()
