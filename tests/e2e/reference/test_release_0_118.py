"""What older clients know, side by side with release 0.118.0 and the same model.

In most things we follow 0.163.0. Here are those that only the older release has, and those in which
the two agree; the differences are written down with their reasons.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.reference import test_tools as tools
from tests.e2e.reference import test_transcripts as newer
from tests.harness.golden import Golden
from tests.harness.mcp import STATUS, settled, stdio
from tests.harness.model_server import calls, patches, says
from tests.harness.releases import OLDER
from tests.harness.repositories import repository
from tests.harness.scenarios import Scenario, Scene, check
from treadle.protocol.base import JsonValue

Steps = Callable[[Scene], Awaitable[None]]

CLASSIC = "[features]\nunified_exec = false\n"
COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
ELICITATION = "mcpServer/elicitation/request"
UNTRUSTED = {"approvalPolicy": "untrusted", "sandbox": "workspace-write"}
# A model that is known to take patches as free text.
KNOWN = "gpt-5.2"
FREE = {"approvalPolicy": "never", "sandbox": "danger-full-access"}


async def asked(scene: Scene, thread_id: str, method: str, result: JsonValue) -> None:
    """Run a turn in which one question is put."""
    turn_id = await scene.client.start_turn(thread_id, "go")
    question = (await scene.client.until(method))[-1]
    await scene.client.peer.send({"id": question["id"], "result": result})
    await scene.client.end_of(turn_id)


def arguments(tool: str, script: str, **more: JsonValue) -> JsonValue:
    """A script as one of the two tools takes it."""
    return {"command": ["bash", "-lc", script] if tool == "shell" else script, **more}


def decided(tool: str, decision: str) -> Steps:
    """Steps: a command that is asked about, and what is decided."""

    async def steps(scene: Scene) -> None:
        script = "touch hello.txt && echo made"
        thread_id = await scene.client.start(cwd=scene.cwd, **UNTRUSTED)
        scene.model.plays(calls(tool, arguments(tool, script)), says("ok"))
        await asked(scene, thread_id, COMMAND, {"decision": decision})
        if decision == "acceptForSession":
            scene.model.plays(calls(tool, arguments(tool, script), "call-2"), says("ok", "m2"))
            await scene.client.run(thread_id, "again")

    return steps


def ran(tool: str) -> Steps:
    """Steps: a command that fails, one that takes too long, and one that cannot be read."""

    async def steps(scene: Scene) -> None:
        thread_id = await scene.client.start(cwd=scene.cwd, **FREE)
        for number, wanted in enumerate(
            (
                arguments(tool, "echo one; exit 3"),
                arguments(tool, "echo one; sleep 5", timeout_ms=300),
            )
        ):
            scene.model.plays(calls(tool, wanted, f"call-{number}"), says("ok", f"m{number}"))
            await scene.client.run(thread_id, "go")

    return steps


def patched(decision: str) -> Steps:
    """Steps: a patch that is asked about, and what is decided."""

    async def steps(scene: Scene) -> None:
        text = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch"
        thread_id = await scene.client.start(cwd=scene.cwd, model=KNOWN, **UNTRUSTED)
        scene.model.plays(patches(text), says("ok"))
        await asked(scene, thread_id, FILES, {"decision": decision})

    return steps


async def detached(scene: Scene) -> None:
    """A review in a separate thread."""
    repository(Path(scene.cwd))
    scene.model.plays(says("fine", "m1"), says("not json at all", "m2"))
    thread_id = await scene.client.start(cwd=scene.cwd)
    await scene.client.run(thread_id, "hi")
    target = {"type": "custom", "instructions": "look"}
    review = {"threadId": thread_id, "target": target, "delivery": "detached"}
    await scene.client.request("review/start", review)
    await scene.client.until("turn/completed")


async def served(scene: Scene) -> None:
    """Tools of an MCP server: one that is free, one that asks, one that is asked about."""
    client = scene.client
    params = {"cwd": scene.cwd, "approvalPolicy": "on-request"}
    thread_id = (await client.request("thread/start", params))["thread"]["id"]
    await settled(client, "mini")
    scene.model.plays(calls("mcp__mini__echo", {"text": "hi"}, "call-0"), says("ok", "m0"))
    await client.run(thread_id)
    form = {"action": "accept", "content": {"name": "Bob"}}
    for number, (tool, result) in enumerate(
        (("ask", form), ("danger", {"action": "accept"}), ("danger", {"action": "decline"})), 1
    ):
        call = calls(f"mcp__mini__{tool}", {}, f"call-{number}")
        scene.model.plays(call, says("ok", f"m{number}"))
        await asked(scene, thread_id, ELICITATION, result)


LOOSE = frozenset({"item/commandExecution/outputDelta", "thread/status/changed active"})
# As in 0.163.0, which publishes a declined item once.
TWICE = {"decline": ("- item/completed commandExecution",)}
# As in 0.163.0, where a patch prints nothing; here in one piece or two.
PRINTED = frozenset({"item/fileChange/outputDelta"})
PATCHES: dict[str, tuple[str, ...]] = {
    "accept": (),
    "decline": ("- item/completed fileChange",),
    "cancel": (),
}
REVIEW = (
    # An answer goes out before what follows from it.
    "+ review/start -> ok",
    "- review/start -> ok",
    # The turn begins before its first item; the reviewer's own words are not shown.
    "+ thread/status/changed active",
    "+ turn/started",
    "- thread/status/changed active",
    "- turn/started",
    "- item/started agentMessage",
)
SCENARIOS: dict[str, Scenario] = {
    f"{tool}, {decision}": Scenario(
        decided(tool, decision), TWICE.get(decision, ()), config=CLASSIC, loose=LOOSE
    )
    for tool in ("shell", "shell_command")
    for decision in ("accept", "acceptForSession", "decline", "cancel")
}
SCENARIOS |= {
    f"{tool}, run": Scenario(ran(tool), config=CLASSIC, loose=LOOSE)
    for tool in ("shell", "shell_command")
}
SCENARIOS |= {
    # Outside of a repository, names in a turn's diff are relative here, as in 0.163.0.
    f"patch, {decision}": Scenario(
        patched(decision), differences, loose=LOOSE | PRINTED, values=frozenset({"diff"})
    )
    for decision, differences in PATCHES.items()
}
SCENARIOS |= {
    # A file that is new and moved in the same turn has one name in its diff, as in 0.163.0.
    # A patch in a shell command is reported to the model as that command, also as in 0.163.0.
    "patches": Scenario(
        partial(tools.patched, model=KNOWN),
        loose=LOOSE | PRINTED,
        values=frozenset({"diff"}),
        outputs=False,
    ),
    "patch, for the session": Scenario(
        partial(newer.remembered, model=KNOWN), loose=LOOSE | PRINTED, values=frozenset({"diff"})
    ),
    "compaction": Scenario(newer.compacted),
    "shell commands": Scenario(newer.commanded, loose=LOOSE),
    "no review": Scenario(newer.unreviewed, has_events=False),
    "detached review": Scenario(detached, REVIEW),
    # The model gets results as in 0.163.0, with the time that they took.
    "tools of a server": Scenario(served, config=stdio(), loose=LOOSE | {STATUS}, outputs=False),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_both_servers_do_the_same_in_the_same_order(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    await check(golden.of(OLDER), name, SCENARIOS[name], tmp_path)
