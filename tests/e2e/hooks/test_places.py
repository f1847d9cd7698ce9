"""The places besides plain commands where hooks decide: hosts, permissions, reviews, samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.approvals.test_network import ASK, HOST, fetching, managed, verdict
from tests.harness.hooks import Hooks, matched, outcomes
from tests.harness.model_server import calls, patches, says
from tests.harness.questions import answer, question
from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client, Stage, outline, params_of
from tests.sandbox.network.commands import website
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import ScriptedModel
from treadle.model.scripted.model import calls as scripted_call
from treadle.model.scripted.script import Response
from treadle.protocol.base import JsonValue

ADD = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch\n"


def decides(behavior: str) -> JsonValue:
    """The output of a hook that decides about a permission."""
    decision = {"behavior": behavior, "message": "by a hook"}
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


@pytest.mark.parametrize("behavior", ["allow", "deny"])
async def test_a_hook_decides_about_a_host(home: Path, behavior: str) -> None:
    """Upstream: the command is `network-access` with the address."""
    async with website(HOST) as (port, heads), managed(home) as on:
        hooks = Hooks(on.stage.home, on.client)
        await hooks.install(PermissionRequest=hooks.says(decides(behavior)))
        turn_id = await on.start_call("exec_command", fetching(f"http://{HOST}:{port}/"))
        messages = await on.client.end_of(turn_id)

    assert ASK not in outline(messages)
    assert bool(heads) == (behavior == "allow")
    command = {"command": f"network-access http://{HOST}:{port}"}
    assert [each["tool_input"] for each in hooks.given()] == [command]


@pytest.mark.parametrize("behavior", ["allow", "deny"])
async def test_a_hook_decides_about_permissions(
    stage: Stage, client: Client, hooks: Hooks, behavior: str
) -> None:
    """Ours: all that the model asks for, or nothing."""
    stage.configure("features.request_permissions_tool = true")
    await hooks.install(PermissionRequest=hooks.says(decides(behavior)))
    thread_id = await client.start(approvalPolicy="on-request", cwd=str(stage.workspace))
    wanted = {"permissions": {"network": {"enabled": True}}}
    stage.model.plays(calls("request_permissions", wanted), says("done"))
    messages = await client.run(thread_id)
    output = str(stage.model.requests[-1].outputs()["call-1"])

    assert "item/permissions/requestApproval" not in outline(messages)
    assert hooks.given()[0]["tool_input"] == wanted
    if behavior == "allow":
        assert json.loads(output)["permissions"]["network"] == {"enabled": True}
    else:
        assert output == "permissions denied: by a hook"


async def test_a_hook_asks_the_user_about_a_patch(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours."""
    specific = {"hookEventName": "PreToolUse", "permissionDecision": "ask"}
    await hooks.install(PreToolUse=matched("Edit", hooks.says({"hookSpecificOutput": specific})))
    where = {"cwd": str(stage.workspace), "sandbox": "workspace-write"}
    thread_id = await client.start(approvalPolicy="on-request", **where)
    stage.model.plays(patches(ADD), says("done"))
    turn_id = await client.start_turn(thread_id)
    asked = await question(client, "item/fileChange/requestApproval")
    await answer(client, asked, {"decision": "decline"})
    await client.end_of(turn_id)

    assert asked["params"]["reason"] == "a PreToolUse hook asks for approval"
    assert not (stage.workspace / "new.txt").exists()


async def test_input_for_a_free_terminal_needs_the_permission_of_a_hook(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: what is typed into a command outside the sandbox."""
    deny = hooks.says(decides("deny"))
    await hooks.install(
        PermissionRequest=[
            matched("Bash", hooks.says(decides("allow"))),
            matched("write_stdin", deny),
        ]
    )
    thread_id = await client.start(approvalPolicy="on-request", cwd=str(stage.workspace))
    asked = {"cmd": "cat", "tty": True, "sandbox_permissions": "require_escalated"}
    stage.model.plays(calls("exec_command", {**asked, "yield_time_ms": 250}))
    messages = await client.run(thread_id)
    items = [p["item"] for p in params_of(messages, "item/started")]
    (number,) = [item["processId"] for item in items if item["type"] == "commandExecution"]
    typed = {"session_id": int(number), "chars": "rm x\n"}
    stage.model.plays(calls("write_stdin", typed, "call-2"), says("done"))
    await client.run(thread_id)

    output = str(stage.model.requests[-1].outputs()["call-2"])
    assert output == "write_stdin rejected: by a hook"
    assert hooks.given()[-1]["tool_input"] == typed


async def test_hooks_see_the_commands_of_the_automatic_reviewer(home: Path) -> None:
    """Ours: a hook for commands must not miss those that look for evidence."""

    def play(request: ModelRequest) -> Response:
        outputs = [item["output"] for item in request.input if "output" in item]
        if request.subagent == "guardian" and not outputs:
            return scripted_call("exec_command", {"cmd": "cat secrets"}, call_id="look")
        if request.subagent == "guardian":
            seen.extend(outputs)
            return verdict("deny")
        if outputs:
            return "done"
        free = {"sandbox_permissions": "require_escalated", "justification": "x"}
        return scripted_call("exec_command", {"cmd": "true", **free}, call_id="c1")

    seen: list[JsonValue] = []
    async with playing(home, ScriptedModel(play)) as server, client_of(server) as client:
        hooks = Hooks(home, client)
        check = "if grep -q secrets; then echo no secrets >&2; exit 2; fi"
        await hooks.install(PreToolUse=check)
        reviewed = {"approvalPolicy": "on-request", "approvalsReviewer": "auto_review"}
        await client.run(await client.start(**reviewed))

    assert seen == ["Command blocked by PreToolUse hook: no secrets. Command: cat secrets"]


async def test_hooks_run_in_reviews(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Ours: the reviewer has separate tools and requests."""
    await hooks.install(
        PreToolUse=hooks.says(error="not now", code=2), PreModelRequest=hooks.records()
    )
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(calls("exec_command", {"cmd": "touch made"}), says("{}"))
    target = {"type": "custom", "instructions": "look"}
    review = {"threadId": thread_id, "target": target, "delivery": "inline"}
    await client.request("review/start", review)
    await client.until("turn/completed")

    assert hooks.events() == ["PreModelRequest", "PreToolUse", "PreModelRequest"]
    assert not (stage.workspace / "made").exists()


async def test_hooks_decide_about_a_question_beside_the_turns(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: `thread/sample` is a request to the model too."""
    thread_id = await client.start()
    messages = await client.run(thread_id)
    turn_id = messages[-1]["params"]["turn"]["id"]
    await hooks.install(PreModelRequest=hooks.says(error="no", code=2))
    asked = {"threadId": thread_id, "expectedTurnId": turn_id, "prompt": "a title?"}
    error = await client.refusal("thread/sample", asked)

    assert "denied by a PreModelRequest hook: no" in error.message
    assert len(stage.model.requests) == 1


async def test_hooks_decide_about_the_request_for_a_summary(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours."""
    thread_id = await client.start()
    await client.run(thread_id)
    await hooks.install(PreModelRequest=hooks.says(error="no", code=2))
    await client.request("thread/compact/start", {"threadId": thread_id})
    messages = await client.until("turn/completed")

    (failure,) = params_of(messages, "error")
    assert failure["error"]["codexErrorInfo"] == "inferenceHookDenied"
    assert outcomes(messages)[0][:2] == ("preModelRequest", "blocked")


async def test_a_thread_without_a_file_has_no_transcript(client: Client, hooks: Hooks) -> None:
    """Upstream: null."""
    await hooks.install(Stop=hooks.records())
    await client.run(await client.start(ephemeral=True))

    assert hooks.given()[0]["transcript_path"] is None
