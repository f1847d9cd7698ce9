"""Deciding hooks: they allow, deny, ask and rewrite; what happens when they cannot decide."""

from __future__ import annotations

import json

import pytest

from tests.harness.hooks import Hooks, appears, handler, matched, outcomes, runs, warnings
from tests.harness.mcp import gone
from tests.harness.model_server import calls, patches, refuses, says
from tests.harness.questions import answer, question
from tests.harness.threads import Client, Stage, outline, params_of
from treadle.protocol.base import JsonValue

APPROVAL = "item/commandExecution/requestApproval"
ADD = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch\n"


def specific(event: str, **fields: JsonValue) -> JsonValue:
    """The output of a hook that is specific to its event."""
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def deny(reason: str = "not that") -> JsonValue:
    """The output of a hook that denies a call."""
    return specific("PreToolUse", permissionDecision="deny", permissionDecisionReason=reason)


async def run_command(
    stage: Stage, client: Client, command: str = "echo hi", **params: JsonValue
) -> tuple[list[JsonValue], str]:
    """Let the model run a command; return the messages, and the output that the model got."""
    thread_id = await client.start(cwd=str(stage.workspace), **params)
    stage.model.plays(calls("exec_command", {"cmd": command}), says("done"))
    messages = await client.run(thread_id)
    return messages, str(stage.model.requests[-1].outputs()["call-1"])


# -- before a tool


DENIALS: list[tuple[JsonValue, str, int]] = [
    (deny(), "", 0),
    ({"decision": "block", "reason": "not that"}, "", 0),
    ({"continue": False, "stopReason": "not that"}, "", 0),
    (None, "not that\n", 2),
]


@pytest.mark.parametrize("denial", DENIALS)
async def test_a_denied_command_does_not_run_and_the_model_learns_why(
    stage: Stage, client: Client, hooks: Hooks, denial: tuple[JsonValue, str, int]
) -> None:
    """Upstream: the text for the model, and no item for the command."""
    await hooks.install(PreToolUse=hooks.answers(denial))
    messages, given = await run_command(stage, client, "touch made")

    assert given == "Command blocked by PreToolUse hook: not that. Command: touch made"
    assert not (stage.workspace / "made").exists()
    assert "item/started commandExecution" not in outline(messages)
    assert outline(messages)[-1] == "turn/completed completed"
    assert runs(messages)[0]["id"].endswith(":call-1")


ALLOWED: list[tuple[JsonValue, str]] = [
    (None, ""),
    ({}, ""),
    ({"systemMessage": "seen"}, "warning: seen"),
    ({"decision": "approve"}, ""),
    ({"suppressOutput": True}, ""),
    (specific("PreToolUse", permissionDecision="allow"), ""),
    (specific("PreToolUse", additionalContext="be quick"), "context: be quick"),
]


@pytest.mark.parametrize(("output", "entry"), ALLOWED)
async def test_a_hook_that_does_not_object_lets_the_call_run(
    stage: Stage, client: Client, hooks: Hooks, output: JsonValue, entry: str
) -> None:
    """Ours for `approve`, `allow` and `suppressOutput`, which the reference calls unsupported."""
    await hooks.install(PreToolUse=hooks.says(output))
    messages, given = await run_command(stage, client)

    assert given.endswith("Output:\nhi\n")
    assert outcomes(messages) == [("preToolUse", "completed", [entry] if entry else [])]


async def test_a_hook_adds_context_before_the_output_of_the_call(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: a developer message."""
    await hooks.install(PreToolUse=hooks.says(specific("PreToolUse", additionalContext="hint")))
    await run_command(stage, client)

    kinds = [
        item.get("role") or item["type"] for item in stage.model.requests[-1].body["input"][-3:]
    ]
    assert kinds == ["function_call", "developer", "function_call_output"]


async def test_a_hook_changes_the_input_of_a_call(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: what runs, and what the hooks after the tool are given, is the new input."""
    new = specific(
        "PreToolUse", permissionDecision="allow", updatedInput={"command": "echo changed"}
    )
    await hooks.install(PreToolUse=hooks.says(new), PostToolUse=hooks.records())
    messages, given = await run_command(stage, client)

    assert given.endswith("Output:\nchanged\n")
    items = [p["item"] for p in params_of(messages, "item/completed")]
    (item,) = [item for item in items if item["type"] == "commandExecution"]
    assert item["command"].endswith("'echo changed'")
    assert hooks.given("PostToolUse")[0]["tool_input"] == {"command": "echo changed"}


@pytest.mark.parametrize(
    "updated", ["text", {"command": 1}, {"cmd": "x"}, {"command": "x", "more": 1}, []]
)
async def test_an_input_that_does_not_fit_the_tool_denies_the_call(
    stage: Stage, client: Client, hooks: Hooks, updated: JsonValue
) -> None:
    """Ours."""
    new = specific("PreToolUse", permissionDecision="allow", updatedInput=updated)
    await hooks.install(PreToolUse=hooks.says(new))
    _, given = await run_command(stage, client)

    assert given.startswith("Command blocked by PreToolUse hook: the hook failed: updatedInput")


async def test_the_last_hook_to_end_changes_the_input(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: all see the original input."""

    def new(text: str) -> str:
        updated = {"command": f"echo {text}"}
        return hooks.says(specific("PreToolUse", permissionDecision="allow", updatedInput=updated))

    gate = stage.home / "gate"
    slow = f"while [ ! -e {gate} ]; do sleep 0.05; done; sleep 0.2; {new('slow')}"
    await hooks.install(
        PreToolUse={"hooks": [handler(slow), handler(f"({new('fast')}); touch {gate}")]}
    )
    _, given = await run_command(stage, client)

    assert given.endswith("Output:\nslow\n")


async def test_one_denial_outweighs_other_hooks(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Upstream."""
    new = specific("PreToolUse", permissionDecision="allow", updatedInput={"command": "true"})
    await hooks.install(
        PreToolUse={"hooks": [handler(hooks.says(new)), handler(hooks.says(deny()))]}
    )
    _, given = await run_command(stage, client)

    assert given.startswith("Command blocked by PreToolUse hook: not that")


@pytest.mark.parametrize("decision", ["accept", "decline"])
async def test_a_hook_that_asks_leaves_the_decision_to_the_user(
    stage: Stage, client: Client, hooks: Hooks, decision: str
) -> None:
    """Ours: the reference calls `ask` unsupported, and runs the call."""
    ask = specific("PreToolUse", permissionDecision="ask", permissionDecisionReason="sure?")
    await hooks.install(PreToolUse=hooks.says(ask))
    thread_id = await client.start(cwd=str(stage.workspace), approvalPolicy="on-request")
    stage.model.plays(calls("exec_command", {"cmd": "echo hi"}), says("done"))
    turn_id = await client.start_turn(thread_id)
    asked = await question(client, APPROVAL)
    await answer(client, asked, {"decision": decision})
    await client.end_of(turn_id)
    given = str(stage.model.requests[-1].outputs()["call-1"])

    assert asked["params"]["reason"] == "sure?"
    assert given.endswith("Output:\nhi\n") == (decision == "accept")


async def test_a_hook_that_asks_denies_where_no_approval_can_be_requested(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours."""
    await hooks.install(PreToolUse=hooks.says(specific("PreToolUse", permissionDecision="ask")))
    _, given = await run_command(stage, client)

    assert "the hook asks for approval, but the approval policy is never" in given


# -- after a tool


async def test_a_hook_replaces_the_output_of_a_tool(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: the model gets the reason, and the context first."""
    output = {"decision": "block", "reason": "the output is secret"}
    output |= specific("PostToolUse", additionalContext="ask again later")
    await hooks.install(PostToolUse=hooks.says(output))
    messages, given = await run_command(stage, client)

    assert given == "the output is secret"
    assert outcomes(messages) == [
        (
            "postToolUse",
            "blocked",
            ["context: ask again later", "feedback: the output is secret"],
        )
    ]
    assert ("developer", "ask again later") in stage.model.requests[-1].messages("developer")


async def test_a_failed_hook_after_a_tool_changes_nothing(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: it decides nothing."""
    await hooks.install(PostToolUse="exit 1")
    messages, given = await run_command(stage, client)

    assert given.endswith("Output:\nhi\n")
    assert outcomes(messages) == [("postToolUse", "failed", ["error: hook exited with code 1"])]


# -- permissions


async def start_escalated(stage: Stage, client: Client) -> str:
    """Let the model ask for a command outside the sandbox; return the turn."""
    thread_id = await client.start(cwd=str(stage.workspace), approvalPolicy="on-request")
    asked = {"cmd": "touch made", "sandbox_permissions": "require_escalated"}
    stage.model.plays(calls("exec_command", {**asked, "justification": "why"}), says("done"))
    return await client.start_turn(thread_id)


def permission(behavior: str, **fields: JsonValue) -> JsonValue:
    """The decision of a hook about a permission."""
    return specific("PermissionRequest", decision={"behavior": behavior, **fields})


async def test_a_hook_grants_a_permission_without_the_user(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: the input, and no request to clients."""
    await hooks.install(PermissionRequest=hooks.says(permission("allow")))
    turn_id = await start_escalated(stage, client)
    messages = await client.end_of(turn_id)

    assert (stage.workspace / "made").exists()
    assert APPROVAL not in outline(messages)
    (given,) = hooks.given()
    assert (given["tool_name"], given["tool_input"], given["permission_mode"]) == (
        "Bash",
        {"command": "touch made", "description": "why"},
        "default",
    )
    (journal,) = stage.home.glob("sessions/**/*.jsonl")
    assert '"decided"' in journal.read_text("utf-8")


async def test_a_hook_denies_a_permission(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Upstream: the text for the model."""
    await hooks.install(PermissionRequest=hooks.says(permission("deny", message="no way")))
    turn_id = await start_escalated(stage, client)
    await client.end_of(turn_id)

    assert not (stage.workspace / "made").exists()
    assert stage.model.requests[-1].outputs()["call-1"] == (
        'exec_command failed: CreateProcess { message: "Rejected(\\"no way\\")" }'
    )


async def test_a_hook_that_does_not_decide_leaves_a_permission_to_the_user(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream."""
    await hooks.install(PermissionRequest=hooks.records())
    turn_id = await start_escalated(stage, client)
    await answer(client, await question(client, APPROVAL), {"decision": "accept"})
    await client.end_of(turn_id)

    assert (stage.workspace / "made").exists()
    assert len(hooks.given()) == 1


@pytest.mark.parametrize(
    "decision",
    [
        {"behavior": "allow", "updatedInput": {}, "message": "x", "interrupt": True},
        {"behavior": "allow", "updatedPermissions": [1]},
        {"behavior": "perhaps"},
        {},
    ],
)
async def test_an_unsupported_decision_denies_a_permission(
    stage: Stage, client: Client, hooks: Hooks, decision: JsonValue
) -> None:
    """Ours: the reference leaves it to the user."""
    await hooks.install(
        PermissionRequest=hooks.says(specific("PermissionRequest", decision=decision))
    )
    turn_id = await start_escalated(stage, client)
    await client.end_of(turn_id)

    assert not (stage.workspace / "made").exists()
    assert "the hook failed" in str(stage.model.requests[-1].outputs()["call-1"])


async def test_a_hook_decides_about_a_patch(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Upstream: the name `apply_patch`, which `Edit` and `Write` match too."""
    await hooks.install(
        PermissionRequest=matched("Edit", hooks.says(permission("deny", message="no edits")))
    )
    thread_id = await client.start(cwd=str(stage.workspace), approvalPolicy="on-request")
    stage.model.plays(patches(ADD), says("done"))
    await client.run(thread_id)

    assert not (stage.workspace / "new.txt").exists()
    assert "no edits" in str(stage.model.requests[-1].outputs()["call-1"])
    assert hooks.given()[0]["tool_input"] == {"command": ADD}


# -- requests to the model


@pytest.mark.parametrize("denial", DENIALS[1:])
async def test_a_hook_prevents_a_request_to_the_model(
    stage: Stage, client: Client, hooks: Hooks, denial: tuple[JsonValue, str, int]
) -> None:
    """Ours: the reference of 0.169.0 ignores what such a hook answers."""
    await hooks.install(PreModelRequest=hooks.answers(denial))
    messages = await client.run(await client.start())

    (failure,) = params_of(messages, "error")
    assert failure["error"]["codexErrorInfo"] == "inferenceHookDenied"
    assert failure["error"]["message"] == (
        "the request to the model was denied by a PreModelRequest hook: not that"
    )
    assert outline(messages)[-1] == "turn/completed failed"
    assert stage.model.requests == []


async def test_hooks_after_a_request_learn_that_it_failed(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: `status` and `error`."""
    await hooks.install(PostModelRequest=hooks.records())
    stage.model.plays(refuses(400, {"error": {"message": "bad request"}}))
    await client.run(await client.start())

    (given,) = hooks.given()
    assert (given["status"], given["token_usage"]) == ("failed", None)
    assert "bad request" in given["error"]


# -- hooks that cannot decide


BROKEN: dict[str, str] = {
    "exit 1": "hook exited with code 1",
    "exit 127": "hook exited with code 127",
    "exit 2": "hook exited with code 2 but did not write a reason to stderr",
    "kill -9 $$": "hook exited with code 137",
    "/no/such/program": "hook exited with code 127",
    "echo '{'": "hook returned invalid",
    "echo '[]'": "hook returned invalid",
    "echo '{\"x\": 1}'": "unknown field `x`",
    "echo '{\"continue\": 3}'": "hook returned invalid",
    'echo \'{"hookSpecificOutput": {"hookEventName": "Stop"}}\'': "hook",
    "echo garbage": "text that is not JSON to stdout: 'garbage'",
    "head -c 2000000 /dev/zero | tr '\\0' x": "hook wrote more than 1048576 bytes to stdout",
    "head -c 300000 /dev/zero | tr '\\0' '['": "nested too deeply",
}


@pytest.mark.parametrize("command", BROKEN, ids=range(len(BROKEN)))
async def test_a_hook_of_tools_that_cannot_decide_denies(
    stage: Stage, client: Client, hooks: Hooks, command: str
) -> None:
    """Ours: the reference runs the call."""
    await hooks.install(PreToolUse=command)
    messages, given = await run_command(stage, client, "touch made")

    assert given.startswith("Command blocked by PreToolUse hook: the hook failed: ")
    assert BROKEN[command] in given
    assert not (stage.workspace / "made").exists()
    assert [run["status"] for run in runs(messages)] == ["failed"]
    assert BROKEN[command] in runs(messages)[0]["entries"][0]["text"]


@pytest.mark.parametrize("command", ["exit 1", "echo '{'", "exit 2"])
async def test_a_hook_of_prompts_that_cannot_decide_denies(
    stage: Stage, client: Client, hooks: Hooks, command: str
) -> None:
    """Ours: the reference sends the prompt."""
    await hooks.install(UserPromptSubmit=command)
    messages = await client.run(await client.start(), "hello")

    assert stage.model.requests == []
    assert warnings(messages)[0].startswith(
        "the input was blocked by a UserPromptSubmit hook: the hook failed: "
    )


@pytest.mark.parametrize("command", ["exit 1", "echo '{'", "echo garbage"])
async def test_a_hook_of_requests_that_cannot_decide_denies(
    stage: Stage, client: Client, hooks: Hooks, command: str
) -> None:
    """Ours: the reference sends the request."""
    await hooks.install(PreModelRequest=command)
    messages = await client.run(await client.start(), "hello")

    assert stage.model.requests == []
    assert params_of(messages, "error")[0]["error"]["codexErrorInfo"] == "inferenceHookDenied"


async def test_a_hook_that_takes_too_long_denies_and_is_ended(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: the reference runs the call."""
    pid = stage.home / "pid"
    await hooks.install(
        PreToolUse=handler(f"trap '' TERM; echo $$ > {pid}; while :; do sleep 1; done", timeout=1)
    )
    _, given = await run_command(stage, client)

    assert "the hook failed: hook timed out after 1s" in given
    await gone(int(pid.read_text()))


async def test_an_interrupt_ends_running_hooks(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Ours: the reference waits for the hook."""
    pid = stage.home / "pid"
    await hooks.install(PreToolUse=f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600")
    thread_id = await client.start()
    stage.model.plays(calls("exec_command", {"cmd": "touch made"}))
    turn_id = await client.start_turn(thread_id)
    await client.until("hook/started")
    await appears(pid)
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    messages = await client.end_of(turn_id)

    assert outcomes(messages) == [("preToolUse", "failed", ["error: interrupted"])]
    assert outline(messages)[-1] == "turn/completed interrupted"
    await gone(int(pid.read_text()))


async def test_a_prompt_whose_check_was_interrupted_never_reaches_the_model(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: it was not checked."""
    await hooks.install(UserPromptSubmit="sleep 600")
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id, "secret")
    await client.until("hook/started")
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)
    hooks.write()
    await client.run(thread_id, "hello")

    assert "secret" not in json.dumps(stage.model.requests[0].body)


async def test_what_a_hook_leaves_running_is_ended(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours."""
    pid = stage.home / "pid"
    await hooks.install(PreToolUse=f"setsid sleep 600 & echo $! > {pid}")
    _, given = await run_command(stage, client)

    assert given.endswith("Output:\nhi\n")
    await gone(int(pid.read_text()))


async def test_a_hook_that_closes_its_input_runs_and_one_gets_a_large_input_whole(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours."""
    await hooks.install(
        UserPromptSubmit={"hooks": [handler("exec <&-; sleep 0.1"), handler(hooks.records())]}
    )
    text = "long " * 100_000
    messages = await client.run(await client.start(), text)

    assert [run["status"] for run in runs(messages)] == ["completed", "completed"]
    assert hooks.given()[0]["prompt"] == text


async def test_a_hook_gets_the_environment_of_commands(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: `shell_environment_policy` applies."""
    stage.configure('[shell_environment_policy]\nset = { MARK = "set" }\ninherit = "core"\n')
    out = stage.home / "env"
    await hooks.install(Stop=f"env > {out}; pwd >> {out}")
    thread_id = await client.start(cwd=str(stage.workspace))
    await client.run(thread_id)

    lines = out.read_text("utf-8").splitlines()
    assert "MARK=set" in lines
    assert f"CODEX_THREAD_ID={thread_id}" in lines
    assert lines[-1] == str(stage.workspace)
