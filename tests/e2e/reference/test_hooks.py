"""Hooks, side by side with the reference server and the same model.

The differences are written down here with their reasons.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.golden import Golden
from tests.harness.model_server import calls, says
from tests.harness.scenarios import Scenario, Scene, check
from tests.harness.threads import text_input
from treadle.protocol.base import JsonValue


def hook(event: str, command: str, matcher: str | None = None) -> str:
    """The tables of a hook in `config.toml`."""
    name = "" if matcher is None else f"matcher = {json.dumps(matcher)}\n"
    quoted = json.dumps(command)
    return (
        f'[[hooks.{event}]]\n{name}[[hooks.{event}.hooks]]\ntype = "command"\ncommand = {quoted}\n'
    )


def prints(output: JsonValue) -> str:
    """A command that prints JSON."""
    return f"printf '%s' '{json.dumps(output)}'"


def specific(event: str, **fields: JsonValue) -> str:
    """A command that prints what is specific to an event."""
    return prints({"hookSpecificOutput": {"hookEventName": event, **fields}})


async def trust(scene: Scene) -> None:
    """Trust all hooks, as the terminal does."""
    (entry,) = (await scene.client.request("hooks/list", {"cwds": [scene.cwd]}))["data"]
    state = {each["key"]: {"trusted_hash": each["currentHash"]} for each in entry["hooks"]}
    edit = {"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}
    params = {"edits": [edit], "reloadUserConfig": True}
    await scene.client.request("config/batchWrite", params)
    await scene.client.request("hooks/list", {"cwds": [scene.cwd]})


async def talk(scene: Scene) -> None:
    """A turn with trusted hooks."""
    await trust(scene)
    thread_id = await scene.client.start(cwd=scene.cwd)
    await scene.client.run(thread_id, "hello")


async def compact(scene: Scene) -> None:
    """A turn, a compaction, and another turn."""
    await trust(scene)
    thread_id = await scene.client.start(cwd=scene.cwd)
    await scene.client.run(thread_id, "hello")
    await scene.client.request("thread/compact/start", {"threadId": thread_id})
    await scene.client.until("turn/completed")
    await scene.client.run(thread_id, "again")


async def command(scene: Scene) -> None:
    """A turn with one command."""
    scene.model.plays(calls("exec_command", {"cmd": "echo hi"}), says("done"))
    await talk(scene)


async def escalated(scene: Scene) -> None:
    """A command that needs approval, which the client gives if it is asked."""
    await trust(scene)
    call = {"cmd": "echo hi", "sandbox_permissions": "require_escalated", "justification": "why"}
    scene.model.plays(calls("exec_command", call), says("done"))
    thread_id = await scene.client.start(cwd=scene.cwd, approvalPolicy="on-request")
    params = {"threadId": thread_id, "input": [text_input("hello")]}
    turn_id = (await scene.client.request("turn/start", params))["turn"]["id"]
    await scene.client.end_of(turn_id)


AGAIN = "if grep -q '\"stop_hook_active\":false'; then echo go on >&2; exit 2; fi"
DENIED = {"permissionDecision": "deny", "permissionDecisionReason": "not that"}
CHANGED = {"permissionDecision": "allow", "updatedInput": {"command": "echo changed"}}
OUTPUT = frozenset({"item/commandExecution/outputDelta"})

SCENARIOS = {
    "contexts": Scenario(
        talk,
        config=hook("SessionStart", "echo session", "startup")
        + hook("UserPromptSubmit", "echo prompt")
        + hook("Stop", "true"),
    ),
    "continued": Scenario(talk, config=hook("Stop", AGAIN)),
    "blocked_prompt": Scenario(talk, config=hook("UserPromptSubmit", "echo no >&2; exit 2")),
    "denied": Scenario(
        command, config=hook("PreToolUse", specific("PreToolUse", **DENIED), "Bash")
    ),
    "changed": Scenario(
        command,
        loose=OUTPUT,
        config=hook("PreToolUse", specific("PreToolUse", **CHANGED), "^Ba")
        + hook("PostToolUse", prints({"systemMessage": "seen"})),
    ),
    "replaced": Scenario(
        command,
        loose=OUTPUT,
        config=hook("PostToolUse", prints({"decision": "block", "reason": "hidden"})),
    ),
    # 0.118 sends this notification, and clients of that age wait for it.
    "compacted": Scenario(
        compact,
        ["+ thread/compacted"],
        config=hook("PreCompact", "true", "manual")
        + hook("PostCompact", "true")
        + hook("SessionStart", "true", "compact"),
    ),
    "not_compacted": Scenario(
        compact, config=hook("PreCompact", prints({"continue": False, "stopReason": "keep"}))
    ),
    "permitted": Scenario(
        escalated,
        loose=OUTPUT,
        config=hook(
            "PermissionRequest", specific("PermissionRequest", decision={"behavior": "allow"})
        ),
    ),
    # Clients see what was denied.
    "forbidden": Scenario(
        escalated,
        ["+ item/started commandExecution", "+ item/completed commandExecution"],
        config=hook(
            "PermissionRequest",
            specific("PermissionRequest", decision={"behavior": "deny", "message": "no"}),
        ),
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_hooks_do_what_those_of_the_reference_do(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    await check(golden, name, SCENARIOS[name], tmp_path)
