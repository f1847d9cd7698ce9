"""Patches, client tools, questions, permissions and reviews, side by side with the reference.

The differences are written down here with their reasons.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.harness.golden import Golden
from tests.harness.model_server import calls, patches, says
from tests.harness.repositories import repository
from tests.harness.scenarios import Scenario, Scene, check
from tests.harness.threads import Client
from treadle.protocol.base import JsonValue

Steps = Callable[[Scene], Awaitable[None]]

FILES = "item/fileChange/requestApproval"
TOOL = "item/tool/call"
USER_INPUT = "item/tool/requestUserInput"
PERMISSIONS = "item/permissions/requestApproval"
# A model that is known to take patches as free text.
KNOWN = {"model": "gpt-5.5"}
NEVER = {"approvalPolicy": "never", "sandbox": "workspace-write", **KNOWN}
UNTRUSTED = {"approvalPolicy": "untrusted", "sandbox": "workspace-write", **KNOWN}


def patch(*lines: str) -> str:
    """A patch of these lines."""
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


FIRST = patch(
    "*** Update File: a.txt", "@@", "-hello", "+goodbye", "*** Add File: new.txt", "+one", "+two"
)


async def answer(client: Client, method: str, result: JsonValue) -> None:
    """Answer the question that comes next."""
    question = (await client.until(method))[-1]
    await client.peer.send({"id": question["id"], **result})


async def run(scene: Scene, thread_id: str, method: str, result: JsonValue) -> None:
    """Run a turn in which one question is asked."""
    turn_id = await scene.client.start_turn(thread_id, "go")
    await answer(scene.client, method, result)
    await scene.client.end_of(turn_id)


def work(scene: Scene) -> None:
    """Make the workspace a repository, wherever it is, with a file in it."""
    subprocess.run(["git", "init", "-q", scene.cwd], check=True)
    Path(scene.cwd, "a.txt").write_text("hello\n")


async def patched(scene: Scene, model: str = "gpt-5.5") -> None:
    """Patches that apply, do not apply, and are none; moves, deletes, and a heredoc."""
    work(scene)
    move = ("*** Update File: new.txt", "*** Move to: sub/moved.txt", "@@", "-one", "+ONE")
    heredoc = patch("*** Add File: doc.txt", "+text")
    scene.model.plays(
        patches(FIRST, "call-1"),
        patches(patch("*** Update File: a.txt", "@@", "-nope", "+x"), "call-2"),
        patches("garbage", "call-3"),
        patches(patch(*move, "*** Delete File: a.txt"), "call-4"),
        calls("exec_command", {"cmd": f"apply_patch <<'EOF'\n{heredoc}\nEOF"}, "call-5"),
        patches(patch("*** Add File: /outside.txt", "+x"), "call-6"),
    )
    thread_id = await scene.client.start(cwd=scene.cwd, **NEVER | {"model": model})
    await scene.client.run(thread_id, "go")


def asked_about_a_patch(decision: str) -> Steps:
    """Steps: a patch that is asked about, and what is decided."""

    async def steps(scene: Scene) -> None:
        work(scene)
        scene.model.plays(patches(FIRST))
        thread_id = await scene.client.start(cwd=scene.cwd, **UNTRUSTED)
        await run(scene, thread_id, FILES, {"result": {"decision": decision}})

    return steps


LOOKUP = {
    "type": "function",
    "name": "lookup_ticket",
    "description": "Fetch a ticket",
    "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}},
}
TEXT = {"type": "inputText", "text": "Ticket is open."}
IMAGE = {"type": "inputImage", "imageUrl": "data:image/png;base64,AAA"}


async def called_back(scene: Scene) -> None:
    """A tool of the client that works, fails, and breaks in three ways."""
    replies: list[JsonValue] = [
        {"result": {"contentItems": [TEXT, IMAGE], "success": True}},
        {"result": {"contentItems": [TEXT], "success": False}},
        {"error": {"code": -32000, "message": "boom"}},
        {"result": {"bad": 1}},
    ]
    thread_id = await scene.client.start(cwd=scene.cwd, dynamicTools=[LOOKUP])
    for number, reply in enumerate(replies):
        call = calls("lookup_ticket", {"id": f"T-{number}"}, f"call-{number}")
        scene.model.plays(call, says("ok", f"m{number}"))
        await run(scene, thread_id, TOOL, reply)
    scene.model.plays(calls("lookup_ticket", "{broken", "call-9"), says("ok", "m9"))
    await scene.client.run(thread_id, "go")


async def left_alone(scene: Scene) -> None:
    """A turn that is interrupted while a tool of the client is at work."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd, dynamicTools=[LOOKUP])
    scene.model.plays(calls("lookup_ticket", {"id": "T"}))
    turn_id = await client.start_turn(thread_id, "go")
    await client.until(TOOL)
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)


async def refused_tools(scene: Scene) -> None:
    """Tools that no thread is started with."""
    plain = {"name": "a", "description": "d", "inputSchema": {"type": "object"}}
    for tools in (
        [{**plain, "name": "bad name!"}],
        [plain, plain],
        [{**plain, "name": ""}],
        [{**plain, "deferLoading": True}],
    ):
        await scene.client.refusal("thread/start", {"cwd": scene.cwd, "dynamicTools": tools})


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


async def questioned(scene: Scene) -> None:
    """Questions to the user: outside plan mode, inside, and given up."""
    client = scene.client
    thread_id = await client.start(cwd=scene.cwd)
    wanted = {"questions": [QUESTION]}
    scene.model.plays(calls("request_user_input", wanted, "call-1"), says("ok", "m1"))
    await client.run(thread_id, "go")
    scene.model.plays(calls("request_user_input", wanted, "call-2"), says("ok", "m2"))
    turn_id = await client.start_turn(thread_id, "plan", collaborationMode=PLAN)
    answers = {"color": {"answers": ["Red (Recommended)"]}}
    await answer(client, USER_INPUT, {"result": {"answers": answers}})
    await client.end_of(turn_id)
    scene.model.plays(calls("request_user_input", wanted, "call-3"))
    turn_id = await client.start_turn(thread_id, "again")
    await client.until(USER_INPUT)
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.until("serverRequest/resolved")


async def permitted(scene: Scene) -> None:
    """More rights, asked for with a tool of their own and with a command."""
    shared = Path(scene.cwd).parent / "shared"
    shared.mkdir(exist_ok=True)
    wanted = {"file_system": {"write": [str(shared)]}}
    scene.model.plays(
        calls("request_permissions", {"permissions": wanted, "reason": "need"}, "call-1"),
        says("ok", "m1"),
    )
    policies = {"approvalPolicy": "on-request", "sandbox": "workspace-write"}
    thread_id = await scene.client.start(cwd=scene.cwd, **policies)
    granted = {"scope": "turn", "permissions": {"fileSystem": {"write": [str(shared)]}}}
    await run(scene, thread_id, PERMISSIONS, {"result": granted})


def reviewed(target: JsonValue) -> Steps:
    """Steps: a review that finds something, and a turn after it."""

    async def steps(scene: Scene) -> None:
        repository(Path(scene.cwd))
        place = {"absolute_file_path": f"{scene.cwd}/a.txt", "line_range": {"start": 1, "end": 2}}
        finding = {"title": "[P1] Prefer X", "body": "Because.", "code_location": place}
        scores = {"confidence_score": 0.9, "priority": 1}
        report = {
            "findings": [{**finding, **scores}],
            "overall_correctness": "patch is incorrect",
            "overall_explanation": "Looks mostly fine.",
            "overall_confidence_score": 0.8,
        }
        scene.model.plays(says(json.dumps(report), "m1"), says("ok", "m2"))
        thread_id = await scene.client.start(cwd=scene.cwd)
        await scene.client.request("review/start", {"threadId": thread_id, "target": target})
        await scene.client.until("turn/completed")
        await scene.client.run(thread_id, "go on")

    return steps


# Whether the thread is active again before or after an item is complete depends on which of the
# reference's tasks comes first.
LOOSE = frozenset({"thread/status/changed active"})
REVIEW = (
    # The turn begins before its first item, and has one id.
    "+ thread/status/changed active",
    "+ turn/started",
    "- thread/status/changed active",
    "- turn/started",
    # The reviewer's own words, which are JSON, are not shown.
    "- item/started agentMessage",
)
# Treadle includes git information from the start.
GIT = frozenset(
    f".{place}.thread.gitInfo.{name}"
    for place in ("result", "params")
    for name in ("sha", "branch", "originUrl")
)
SCENARIOS: dict[str, Scenario] = {
    "patched": Scenario(patched, keys=GIT),
    "patch accepted": Scenario(asked_about_a_patch("accept"), keys=GIT, loose=LOOSE),
    "patch declined": Scenario(asked_about_a_patch("decline"), keys=GIT, loose=LOOSE),
    # Treadle completes every patch item that it has started.
    "patch cancelled": Scenario(
        asked_about_a_patch("cancel"), ["+ item/completed fileChange"], GIT, loose=LOOSE
    ),
    # A question is settled for every client, whatever it was about; and JSON that cannot be read
    # is explained by another parser.
    "called back": Scenario(called_back, ["+ serverRequest/resolved"] * 4, outputs=False),
    # An answer goes out before what follows from it.
    "left alone": Scenario(left_alone, ["+ turn/interrupt -> ok", "- turn/interrupt -> ok"]),
    "refused tools": Scenario(refused_tools, has_events=False),
    "questioned": Scenario(questioned),
    "permitted": Scenario(permitted, config="[features]\nrequest_permissions_tool = true\n"),
    "reviewed": Scenario(reviewed({"type": "uncommittedChanges"}), REVIEW, GIT),
    "reviewed at will": Scenario(
        reviewed({"type": "custom", "instructions": "look at a.txt"}), REVIEW, GIT
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_both_servers_do_the_same_in_the_same_order(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    await check(golden, name, SCENARIOS[name], tmp_path)
