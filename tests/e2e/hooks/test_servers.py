"""Hooks and the server that owns them: its end, its restart, and many hooks at once."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.harness.hooks import Hooks, appears, handler, outcomes, runs, warnings
from tests.harness.mcp import gone
from tests.harness.model_server import Reply, calls, completed, created, done, model_server, says
from tests.harness.processes import TREADLE
from tests.harness.questions import answer, question
from tests.harness.threads import Client, Stage, configure, outline, spawned
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import SubprocessTransport

APPROVAL = "item/commandExecution/requestApproval"


def slow(home: Path) -> str:
    """A command that names its process and does not end."""
    pid = home / "pid"
    return (
        f"trap '' TERM HUP INT; echo $$ > {pid}.new; mv {pid}.new {pid}; while :; do sleep 1; done"
    )


async def test_a_server_that_ends_ends_its_hooks(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours."""
    await hooks.install(UserPromptSubmit=slow(stage.home))
    await client.start_turn(await client.start())
    await appears(stage.home / "pid")
    await stage.close()

    await gone(int((stage.home / "pid").read_text()))


async def test_a_server_that_is_killed_takes_its_hooks_along(home: Path) -> None:
    """Ours: the supervisor ends them."""
    async with model_server() as model:
        configure(home, model, "[features]\n")
        async with spawned((TREADLE, "app-server"), home) as client:
            hooks = Hooks(home, client)
            await hooks.install(UserPromptSubmit=slow(home))
            await client.start_turn(await client.start())
            await appears(home / "pid")
            transport = client.peer.transport
            assert isinstance(transport, SubprocessTransport)
            os.kill(transport.pid, signal.SIGKILL)
            await gone(int((home / "pid").read_text()))


async def test_a_call_that_waits_for_the_user_passes_its_hooks_again_after_a_restart(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: before the tool, as the call runs again; the permission is the user's by then."""
    await hooks.install(PreToolUse=hooks.records(), PermissionRequest=hooks.records())
    thread_id = await client.start(cwd=str(stage.workspace), approvalPolicy="on-request")
    asked = {"cmd": "echo hi", "sandbox_permissions": "require_escalated"}
    stage.model.plays(calls("exec_command", asked))
    await client.start_turn(thread_id)
    await question(client, APPROVAL)
    await stage.restart()
    other = await stage.client()
    stage.model.plays(says("done"))
    await other.request("thread/resume", {"threadId": thread_id})
    await answer(other, await question(other, APPROVAL), {"decision": "accept"})
    messages = await other.until("turn/completed")

    assert outline(messages)[-1] == "turn/completed completed"
    assert hooks.events() == ["PreToolUse", "PermissionRequest", "PreToolUse"]


async def test_many_calls_run_their_hooks_a_few_at_a_time(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: a response with many calls does not start as many processes."""
    running = stage.home / "running"
    running.mkdir()
    counts = stage.home / "counts"
    own = f"{running}/$$"
    count = f"mkdir {own}; ls {running} | wc -l >> {counts}; sleep 0.2; rmdir {own}"
    await hooks.install(PreToolUse={"hooks": [handler(count), handler(count)]})
    plan: JsonValue = '{"plan": []}'
    items = [
        done(
            {
                "type": "function_call",
                "call_id": f"c{number}",
                "name": "update_plan",
                "arguments": plan,
            }
        )
        for number in range(30)
    ]
    stage.model.plays(Reply([created(), *items, completed()]), says("done"))
    messages = await client.run(await client.start())
    numbers = [int(line) for line in counts.read_text().split()]

    assert len(runs(messages)) == len(numbers) == 60
    assert max(numbers) <= 8


async def test_a_call_that_was_refused_has_no_hooks_after_it(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: nothing ran."""
    await hooks.install(PostToolUse=hooks.records())
    stage.model.plays(calls("write_stdin", {"session_id": 99, "chars": "x"}), says("done"))
    messages = await client.run(await client.start())

    assert outcomes(messages) == []
    assert "Unknown process id 99" in str(stage.model.requests[-1].outputs()["call-1"])


async def test_hooks_in_the_background_end_with_their_thread(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours."""
    await hooks.install(Stop=handler(slow(stage.home), **{"async": True}))
    thread_id = await client.start()
    await client.run(thread_id)
    await appears(stage.home / "pid")
    await client.request("thread/archive", {"threadId": thread_id})

    await gone(int((stage.home / "pid").read_text()))


async def test_hooks_in_the_background_are_limited_in_number(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours."""
    slow_hook = handler("sleep 600", **{"async": True})
    await hooks.install(UserPromptSubmit={"hooks": [slow_hook] * 9})
    async with asyncio.timeout(30):
        messages = await client.run(await client.start())

    assert [text for text in warnings(messages) if "too many" in text] != []
    assert len(runs(messages, "hook/started")) == 8


async def test_input_that_was_not_checked_is_reported_when_its_turn_ends(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours."""
    await hooks.install(UserPromptSubmit="sleep 600")
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    await client.until("hook/started")
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    messages = await client.end_of(turn_id)

    assert "input was dropped: the turn ended before hooks could check it" in warnings(messages)
