"""Calls of a model and files of a workspace that hooks must see, and must not run."""

from __future__ import annotations

import json

import pytest

from tests.harness.hooks import Hooks, matched, outcomes
from tests.harness.mcp import settled, stdio
from tests.harness.model_server import Reply, calls, completed, created, done, says
from tests.harness.threads import Client, Stage
from treadle.engine.mcp.names import model_names
from treadle.protocol.base import JsonValue


@pytest.fixture
async def client(stage: Stage) -> Client:
    """A client of the stage's server."""
    return await stage.client()


@pytest.fixture
def hooks(stage: Stage, client: Client) -> Hooks:
    """The hooks of the stage's home."""
    return Hooks(stage.home, client)


def called(arguments: str, **more: JsonValue) -> Reply:
    """A reply with a call of exec_command, with any arguments."""
    item = {"type": "function_call", "call_id": "call-1", "name": "exec_command", **more}
    return Reply([created("r"), done({**item, "arguments": arguments}), completed("r")])


# -- calls that hooks must see as they are


@pytest.mark.parametrize("namespace", ["", None, "functions"])
async def test_a_call_runs_no_command_without_the_hooks_for_commands(
    stage: Stage, client: Client, hooks: Hooks, namespace: JsonValue
) -> None:
    """An empty namespace leads to the same tool, so it must have the same hooks."""
    await hooks.install(PreToolUse=matched("Bash", "echo no >&2; exit 2"))
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="danger-full-access")
    stage.model.plays(called(json.dumps({"cmd": "touch made"}), namespace=namespace), says("done"))
    await client.run(thread_id)

    assert not (stage.workspace / "made").exists()


@pytest.mark.parametrize(
    "more", ["1" * 5000, "1e999999", "[" * 20_000 + "]" * 20_000], ids=["digits", "large", "deep"]
)
async def test_a_tool_reads_no_arguments_that_hooks_cannot_read(
    stage: Stage, client: Client, hooks: Hooks, more: str
) -> None:
    """The hook would look for the words in escaped text, and the tool would run them."""
    script = stage.home / "no_touch.sh"
    script.write_text("if grep -q touch; then echo no >&2; exit 2; fi\n", "utf-8")
    await hooks.install(PreToolUse=matched("Bash", f"sh {script}"))
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="danger-full-access")
    arguments = f'{{"cmd": "\\u0074ouch made", "ignored": {more}}}'
    stage.model.plays(called(arguments), says("done"))
    messages = await client.run(thread_id)

    assert not (stage.workspace / "made").exists()
    assert outcomes(messages) in ([], [("preToolUse", "blocked", ["feedback: no"])])


async def test_a_server_cannot_change_the_name_by_which_hooks_know_its_tool(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """The name for the model has a hash if it is too long, or if two tools would share it."""
    name = "long" * 15
    stage.configure(stdio(name, default_tools_approval_mode="approve"))
    await hooks.install(PreToolUse=matched(f"mcp__{name}__plain", "echo no >&2; exit 2"))
    thread_id = await client.start()
    await settled(client, name)
    shown = next(iter(model_names([(name, "plain")])))
    stage.model.plays(calls(shown, {"text": "hi"}), says("done"))
    await client.run(thread_id)

    assert "blocked by PreToolUse hook: no" in str(stage.model.requests[-1].outputs())
