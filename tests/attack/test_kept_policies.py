"""A policy that a client was promised applies in reviews, and under the next server."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.model_server import calls, says
from tests.harness.questions import answer, question
from tests.harness.threads import Client, Stage
from treadle.client.connectors import Connector
from treadle.protocol.base import JsonValue
from treadle.protocol.policy import ReadOnlySandboxPolicy
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.transport.base import Transport
from treadle.transport.memory import memory_pair
from treadle.unattended import Session, SessionOptions

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


PROFILE = """
[permissions.p]
extends = ":workspace"
{files}
[permissions.p.network]
enabled = true
[permissions.p.network.domains]
"example.test" = "allow"
"""


@pytest.mark.parametrize("change", ["root added", "profile removed"])
async def test_thread_keeps_the_hosts_of_a_profile_that_was_changed(
    stage: Stage, change: str
) -> None:
    """It kept its network and lost the list of hosts."""
    stage.configure(PROFILE.format(files=""))
    await stage.restart()
    _, thread_id = await start_thread(stage, permissions="p", approvalPolicy="never")
    started = stage.server.threads.get(thread_id).settings.network
    assert started is not None
    added = f'[permissions.p.filesystem]\n"{stage.home.parent}" = "write"'
    stage.configure(PROFILE.format(files=added) if change == "root added" else "")
    for _ in range(2):
        assert (await policy_after_restart(stage, thread_id))[0] == "never"
        settings = stage.server.threads.get(thread_id).settings
        assert (settings.network, settings.permission_profile) == (started, None)
        client = await stage.client()
        await client.request("thread/resume", {"threadId": thread_id})
        await client.run(thread_id)


async def test_policy_that_was_chosen_on_resume_is_stored(stage: Stage) -> None:
    client, thread_id = await start_thread(stage, **FREE)
    await client.run(thread_id)
    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id, **STRICT})
    assert await policy_after_restart(stage, thread_id) == ("untrusted", "readOnly")


async def test_policy_that_was_sent_to_a_running_turn_is_stored(stage: Stage) -> None:
    client, thread_id = await start_thread(stage, **{**FREE, "approvalPolicy": "on-request"})
    ask = {"questions": [{"id": "q", "header": "h", "question": "why?", "options": []}]}
    stage.model.plays(calls("request_user_input", ask), says("done"))
    await client.start_turn(thread_id)
    await client.until("turn/started")
    change = {"approvalPolicy": "untrusted", "sandboxPolicy": {"type": "readOnly"}}
    await client.start_turn(thread_id, "more", **change)
    assert await policy_after_restart(stage, thread_id) == ("untrusted", "readOnly")


@pytest.mark.parametrize("is_in_memory", [True, False])
async def test_an_unattended_session_does_not_take_over_the_policy_of_the_thread_that_it_resumes(
    stage: Stage, *, is_in_memory: bool
) -> None:
    client, thread_id = await start_thread(stage, **FREE)
    await client.run(thread_id)
    if not is_in_memory:
        await stage.restart()
    made = stage.home.parent / "made"
    stage.model.plays(calls("exec_command", {"cmd": f"touch {made}"}), says("done"))

    async def dial(_tasks: BackgroundTasks) -> Transport:
        ours, theirs = memory_pair()
        serving.create_task(stage.server.attach(theirs))
        return ours

    async with asyncio.TaskGroup() as serving:
        options = SessionOptions(
            cwd=stage.workspace,
            server=Connector(dial, can_return=False),
            resume=thread_id,
            sandbox="read-only",
            uses_git=False,
        )
        async with Session(options) as session:
            await session.run("go")

    settings = stage.server.threads.get(thread_id).settings
    assert settings.sandbox == ReadOnlySandboxPolicy()
    assert not made.exists()


LIMITS = """
allowed_sandbox_modes = ["read-only"]
allowed_approval_policies = ["untrusted"]
allowed_approvals_reviewers = ["user"]
"""


async def test_an_administrators_limits_apply_to_stored_threads(stage: Stage) -> None:
    """The thread was stored before the administrator set them."""
    client, thread_id = await start_thread(stage, **FREE, approvalsReviewer="auto_review")
    await client.run(thread_id)
    stage.require(LIMITS)
    assert await policy_after_restart(stage, thread_id) == ("untrusted", "readOnly")
    client = await stage.client()
    resumed = await client.request("thread/resume", {"threadId": thread_id})
    fork = await client.request("thread/fork", {"threadId": thread_id})

    assert resumed["approvalsReviewer"] == "user"
    assert (fork["approvalPolicy"], fork["sandbox"]["type"]) == ("untrusted", "readOnly")
