"""Steps of the reference's own transcripts that no other file plays, side by side with it.

The differences are written down here with their reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.harness.commands import session_of
from tests.harness.golden import Golden
from tests.harness.model_server import calls, patches, says
from tests.harness.repositories import git, repository
from tests.harness.scenarios import Scenario, Scene, check
from tests.harness.threads import text_input
from treadle.protocol.base import JsonValue

Steps = Callable[[Scene], Awaitable[None]]

COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
USER_INPUT = "item/tool/requestUserInput"
ASKING = {"approvalPolicy": "on-request", "sandbox": "read-only"}
FREE = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
WISH = {"sandbox_permissions": "require_escalated", "justification": "need to write"}


async def asked(scene: Scene, thread_id: str, method: str, decision: JsonValue) -> None:
    """Run a turn in which one question is put."""
    turn_id = await scene.client.start_turn(thread_id, "go")
    question = (await scene.client.until(method))[-1]
    await scene.client.peer.send({"id": question["id"], "result": {"decision": decision}})
    await scene.client.end_of(turn_id)


async def proposed(scene: Scene) -> None:
    """Commands for which the model proposes a rule, one that fits and one that does not."""
    thread_id = await scene.client.start(cwd=scene.cwd, **ASKING)
    for number, rule in enumerate((["touch"], ["mkdir"])):
        wish = {"cmd": "touch zz && echo ok", **WISH, "prefix_rule": rule}
        scene.model.plays(calls("exec_command", wish, f"call-{number}"), says("ok", f"m{number}"))
        await asked(scene, thread_id, COMMAND, "accept")


def kept(decision: JsonValue) -> Steps:
    """Steps: a decision, and what is in the user's rules then."""

    async def steps(scene: Scene) -> None:
        client = scene.client
        scene.model.plays(calls("exec_command", {"cmd": "touch a", **WISH}), says("ok", "m1"))
        thread_id = await client.start(cwd=scene.cwd, **ASKING)
        await asked(scene, thread_id, COMMAND, decision)
        look = {"cmd": "cd; cat rules/default.rules"}
        scene.model.plays(calls("exec_command", look, "call-2"), says("ok", "m2"))
        await client.run(thread_id, "look")

    return steps


async def streamed(scene: Scene) -> None:
    """A command that prints while it runs, and fails."""
    script = "for i in 1 2 3; do echo line $i; sleep 0.1; done; exit 3"
    scene.model.plays(calls("exec_command", {"cmd": script}), says("ok"))
    thread_id = await scene.client.start(cwd=scene.cwd, **FREE)
    await scene.client.run(thread_id, "go")


async def typed(scene: Scene) -> None:
    """A command that stays open, gets input, and is ended with all others."""
    client = scene.client
    shell = {"cmd": "cat", "tty": True, "yield_time_ms": 300}
    scene.model.plays(calls("exec_command", shell, "call-1"), says("ok", "m1"))
    thread_id = await client.start(cwd=scene.cwd, **FREE)
    await client.run(thread_id, "go")
    session = session_of(scene.model.requests[-1].outputs()["call-1"])
    typing = {"session_id": session, "chars": "hey\n", "yield_time_ms": 300}
    scene.model.plays(calls("write_stdin", typing, "call-2"), says("ok", "m2"))
    await client.run(thread_id, "type")
    await client.request("thread/backgroundTerminals/clean", {"threadId": thread_id})
    await client.until("item/completed")


def patch(text: str) -> str:
    """A patch of the one file."""
    return f"*** Begin Patch\n*** Update File: a.txt\n@@\n-{text}\n+{text}!\n*** End Patch"


def work(scene: Scene) -> None:
    """Put the file into the workspace."""
    Path(scene.cwd, "a.txt").write_text("hello\n")


async def remembered(scene: Scene, model: str = "gpt-5.5") -> None:
    """A file that may be changed for the session, and is."""
    work(scene)
    params = {"approvalPolicy": "untrusted", "sandbox": "workspace-write", "model": model}
    thread_id = await scene.client.start(cwd=scene.cwd, **params)
    scene.model.plays(patches(patch("hello"), "call-1"), says("ok", "m1"))
    await asked(scene, thread_id, FILES, "acceptForSession")
    scene.model.plays(patches(patch("hello!"), "call-2"), says("ok", "m2"))
    await scene.client.run(thread_id, "again")


async def described(scene: Scene) -> None:
    """Tools of the client's, by what is wrong with them."""
    plain = {"name": "a", "description": "d", "inputSchema": {"type": "object"}}
    bare = {"name": "a", "description": "d"}
    for tool in ({**plain, "name": "mcp__x"}, {**plain, "inputSchema": 5}, bare):
        await scene.client.refusal("thread/start", {"cwd": scene.cwd, "dynamicTools": [tool]})
    await scene.client.start(
        cwd=scene.cwd, dynamicTools=[{**plain, "inputSchema": {"type": "wat"}}]
    )


QUESTION = {
    "id": "color",
    "header": "Color",
    "question": "Which color?",
    "options": [
        {"label": "Red (Recommended)", "description": "warm"},
        {"label": "Blue", "description": "cold"},
    ],
}
PLAN = {"mode": "plan", "settings": {"model": "mock-model", "developer_instructions": None}}


async def pending(scene: Scene) -> None:
    """The modes, and a thread that is read while it asks."""
    client = scene.client
    await client.request("collaborationMode/list", {})
    thread_id = await client.start(cwd=scene.cwd)
    scene.model.plays(calls("request_user_input", {"questions": [QUESTION]}))
    turn_id = await client.start_turn(thread_id, "plan", collaborationMode=PLAN)
    await client.until(USER_INPUT)
    await client.request("thread/read", {"threadId": thread_id})
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)


def reviewed(target: JsonValue) -> Steps:
    """Steps: a review that is not in JSON."""

    async def steps(scene: Scene) -> None:
        sha = git(repository(Path(scene.cwd)), "rev-parse", "HEAD")
        scene.model.plays(says("not json at all", "m1"))
        thread_id = await scene.client.start(cwd=scene.cwd)
        meant = {**target, "sha": sha} if target["type"] == "commit" else target
        await scene.client.request("review/start", {"threadId": thread_id, "target": meant})
        await scene.client.until("turn/completed")

    return steps


async def unreviewed(scene: Scene) -> None:
    """Reviews of nothing."""
    thread_id = await scene.client.start(cwd=scene.cwd)
    for target in (
        {"type": "custom", "instructions": "  "},
        {"type": "baseBranch", "branch": " "},
        {"type": "commit", "sha": ""},
    ):
        await scene.client.refusal("review/start", {"threadId": thread_id, "target": target})


async def compacted(scene: Scene) -> None:
    """A compaction that somebody wants to steer, and what is left after it."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    await client.run(thread_id, "hello there")
    going = asyncio.Event()
    scene.model.plays(says("in short", "m1", ("in ",), going))
    await client.request("thread/compact/start", {"threadId": thread_id})
    turn_id = (await client.until("turn/started"))[-1]["params"]["turn"]["id"]
    await client.until("item/started")
    steer = {"threadId": thread_id, "input": [text_input("x")], "expectedTurnId": turn_id}
    await client.refusal("turn/steer", steer)
    going.set()
    await client.end_of(turn_id)
    await client.run(thread_id, "after it")


async def commanded(scene: Scene) -> None:
    """Commands of the user's own: one that fails, none at all, and one beside a turn."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    run = {"threadId": thread_id, "command": "echo one; exit 4"}
    await client.request("thread/shellCommand", run)
    await client.until("turn/completed")
    await client.refusal("thread/shellCommand", {**run, "command": "   "})
    going = asyncio.Event()
    scene.model.plays(says("late", "m1", ("la",), going))
    turn_id = await client.start_turn(thread_id, "go")
    await client.until("item/agentMessage/delta")
    await client.request("thread/shellCommand", {**run, "command": "echo aux"})
    await client.until("item/completed", is_command)
    going.set()
    await client.end_of(turn_id)
    await client.read(thread_id)


def is_command(params: JsonValue) -> bool:
    """Whether it is a command that has ended."""
    return bool(params["item"]["type"] == "commandExecution")


LOOSE = frozenset({"item/commandExecution/outputDelta", "thread/status/changed active"})
RULE = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}
SCHEMA = "thread/start -> dynamic tool input schema is not supported for a:"
MISSING = "thread/start -> Invalid request: missing field `inputSchema`"
# The turn begins before its first item; the reviewer's own words, quoted at the end, are not shown.
REVIEW = (
    "+ thread/status/changed active",
    "+ turn/started",
    "- thread/status/changed active",
    "- turn/started",
    "- item/started agentMessage",
)
# Treadle includes git information from the start.
GIT = frozenset(
    f".{place}.thread.gitInfo.{name}"
    for place in ("result", "params")
    for name in ("sha", "branch", "originUrl")
)
SCENARIOS: dict[str, Scenario] = {
    "a proposed rule": Scenario(proposed, loose=LOOSE),
    "rules after a yes for the session": Scenario(kept("acceptForSession"), loose=LOOSE),
    "rules after a rule": Scenario(kept(RULE), loose=LOOSE),
    "streamed output": Scenario(streamed, loose=LOOSE),
    "an open command": Scenario(typed, loose=LOOSE, values=frozenset({"stdin"})),
    "a file for the session": Scenario(remembered, loose=LOOSE, values=frozenset({"diff"})),
    # Our own words in place of a parser's; and ours name the method too.
    "wrong tools": Scenario(
        described,
        (
            f"- {SCHEMA} invalid type: number, expected struct JsonSchema",
            f"+ {SCHEMA} expected an object",
            f"- {MISSING}",
            f"+ {MISSING} at `dynamicTools[0]` in the params of thread/start",
        ),
        has_events=False,
    ),
    "a pending question": Scenario(pending),
    "a review in words, of a commit": Scenario(
        reviewed({"type": "commit", "title": "Polish"}), REVIEW, GIT
    ),
    "a review in words, of a branch": Scenario(
        reviewed({"type": "baseBranch", "branch": "main"}), REVIEW, GIT
    ),
    "no review": Scenario(unreviewed, has_events=False),
    # Older clients wait for it.
    "a compaction": Scenario(compacted, ["+ thread/compacted"]),
    "shell commands": Scenario(commanded, loose=LOOSE),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_both_servers_do_the_same_in_the_same_order(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    await check(golden, name, SCENARIOS[name], tmp_path)
