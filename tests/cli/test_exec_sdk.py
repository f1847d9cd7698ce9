"""The official TypeScript SDK, written for Codex only, runs on `treadle exec`."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.harness.execs import KNOWN, SECONDS, Bench, bench
from tests.harness.model_server import calls, refuses, says
from tests.harness.processes import TREADLE
from treadle.protocol.base import JsonValue

SDK = Path(sys.prefix, "sdk", "node_modules", "@openai", "codex-sdk", "dist", "index.js")
SCRIPT = Path(__file__).with_name("exec_sdk.mjs")
pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not SDK.exists(), reason="make setup installs the SDK when npm is there"),
]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


async def play(at: Bench, scene: str, **settings: JsonValue) -> JsonValue:
    """Play a scene of the script and return its outcome."""
    settings = {"thread": {"model": KNOWN[1]}, **settings}
    # The SDK passes on either our environment or the given one, never a mixture.
    process = await asyncio.create_subprocess_exec(
        *("node", str(SCRIPT), SDK.as_uri(), TREADLE, scene, json.dumps(settings)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=at.cwd,
        env=at.environ(),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SECONDS):
            stdout, stderr = await process.communicate()
    finally:
        # Its child processes are killed with it, in case it did not end by itself.
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert stderr == b""
    return json.loads(stdout)


def usage(spent: int, made: int) -> JsonValue:
    """Return the usage at the end of a turn."""
    kinds = ("cached_input_tokens", "cache_write_input_tokens", "reasoning_output_tokens")
    return {"input_tokens": spent, "output_tokens": made, **dict.fromkeys(kinds, 0)}


async def test_a_thread_runs_several_turns(tmp_path: Path) -> None:
    async with bench(TREADLE, tmp_path) as at:
        at.model.plays(says("first", "r1"), says("second", "r2"))
        outcome = (await play(at, "run"))["value"]
        conversation = at.model.requests[1].conversation()
        originator = at.model.requests[0].headers["originator"]
    thread_id = outcome.pop("id")
    messages = [
        {"id": "item_0", "type": "agent_message", "text": text} for text in ("first", "second")
    ]
    assert outcome == {
        "first": {"finalResponse": "first", "items": messages[:1], "usage": usage(10, 5)},
        "second": {"finalResponse": "second", "items": messages[1:], "usage": usage(20, 10)},
    }
    assert len(thread_id) == 36
    assert conversation == [("user", "one"), ("assistant", "first"), ("user", "two")]
    assert originator == "codex_sdk_ts"


async def test_events_are_streamed(tmp_path: Path) -> None:
    plan = {"plan": [{"step": "one", "status": "pending"}]}
    async with bench(TREADLE, tmp_path) as at:
        at.model.plays(
            calls("update_plan", plan, "c1"),
            calls("exec_command", {"cmd": "true"}, "c2"),
            says("x"),
        )
        outcome = await play(
            at, "streamed", thread={"model": KNOWN[1], "sandboxMode": "danger-full-access"}
        )
    assert outcome["value"] == [
        ["thread.started"],
        ["turn.started"],
        ["item.started", "todo_list"],
        ["item.started", "command_execution"],
        ["item.completed", "command_execution"],
        ["item.completed", "agent_message"],
        ["item.completed", "todo_list"],
        ["turn.completed"],
    ]


async def test_an_earlier_thread_is_resumed(tmp_path: Path) -> None:
    async with bench(TREADLE, tmp_path) as at:
        first = await at.run("--json", "--skip-git-repo-check", "one", replies=[says("1", "r1")])
        at.model.plays(says("2", "r2"))
        outcome = await play(at, "resumed", id=first.thread_id)
        conversation = at.model.requests[1].conversation()
    assert outcome["value"] == {"id": first.thread_id, "finalResponse": "2"}
    assert conversation == [("user", "one"), ("assistant", "1"), ("user", "again")]


async def test_an_answer_matches_a_schema(tmp_path: Path) -> None:
    async with bench(TREADLE, tmp_path) as at:
        at.model.plays(says('{"n": 3}'))
        outcome = await play(at, "structured", schema=SCHEMA)
        asked = at.model.requests[0].body["text"]["format"]["schema"]
    assert (outcome["value"], asked) == ({"n": 3}, SCHEMA)


async def test_images_reach_the_model(tmp_path: Path) -> None:
    async with bench(TREADLE, tmp_path) as at:
        picture = at.cwd / "a.png"
        picture.write_bytes(PIXEL)
        outcome = await play(at, "pictured", image=str(picture))
        parts = at.model.requests[0].body["input"][-1]["content"]
    url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    assert outcome["value"] == "done"
    assert [part["image_url"] for part in parts if part["type"] == "input_image"] == [url]
    assert parts[-1]["text"] == "a\n\nb"


async def test_options_of_a_thread_are_applied(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    options = {
        "model": KNOWN[1],
        "threadSource": "tests",
        "sandboxMode": "workspace-write",
        "workingDirectory": str(other),
        "additionalDirectories": [str(tmp_path)],
        "networkAccessEnabled": True,
        "modelReasoningEffort": "high",
        "webSearchMode": "disabled",
        "approvalPolicy": "on-request",
    }
    codex = {"config": {"developer_instructions": "Be kind."}}
    escalates = {"cmd": "true", "sandbox_permissions": "require_escalated", "justification": "x"}
    async with bench(TREADLE, tmp_path) as at:
        at.model.plays(calls("exec_command", escalates, "c1"))
        outcome = await play(at, "run", thread=options, codex=codex)
        body = at.model.requests[0].body
        refused = at.model.requests[1].outputs()["c1"]
    assert outcome["value"]["first"]["finalResponse"] == "done"
    assert body["reasoning"]["effort"] == "high"
    assert "web_search" not in [tool["type"] for tool in body["tools"]]
    messages = json.dumps(body["input"])
    assert f"<cwd>{other}</cwd>" in messages
    assert "Be kind." in messages
    # No user can approve, whatever the policy says.
    assert "the approval policy does not allow requests" in refused


async def test_key_and_address_are_taken_from_the_sdk(tmp_path: Path) -> None:
    async with bench(TREADLE, tmp_path) as at:
        (at.home / "config.toml").unlink()
        # The key of this run overrides the stored one.
        (at.home / "auth.json").write_text('{"OPENAI_API_KEY": "sk-other"}')
        codex = {"apiKey": "sk-given", "baseUrl": at.model.base_url, "env": at.environ()}
        outcome = await play(at, "run", codex=codex)
        asked = at.model.requests[0]
    assert outcome["value"]["first"]["finalResponse"] == "done"
    assert (asked.path, asked.headers["authorization"]) == ("/v1/responses", "Bearer sk-given")


async def test_a_failed_turn_is_an_exception(tmp_path: Path) -> None:
    async with bench(TREADLE, tmp_path) as at:
        at.model.plays(refuses(400, {"error": {"message": "no such thing"}}))
        outcome = await play(at, "run")
    assert "no such thing" in outcome["error"]["message"]


async def test_an_abort_ends_the_program_and_its_commands(tmp_path: Path) -> None:
    async with bench(TREADLE, tmp_path) as at:
        ready, held = at.cwd / "ready", at.cwd / "held"
        for fifo in (ready, held):
            os.mkfifo(fifo)
        command = "exec 3>held; echo up >ready; sleep 600"
        at.model.plays(calls("exec_command", {"cmd": command}, "c1"))
        thread = {"model": KNOWN[1], "sandboxMode": "danger-full-access"}
        async with asyncio.TaskGroup() as tasks:
            # The pipe ends when no process holds its other end.
            gone = tasks.create_task(asyncio.to_thread(held.read_bytes))
            outcome = await play(at, "aborted", thread=thread, ready=str(ready))
        assert gone.result() == b""
    assert outcome["error"]["name"] == "AbortError"
