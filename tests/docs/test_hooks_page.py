"""The examples in docs/hooks.md, run as shown; `~/.codex` is the home of the test."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.harness.hooks import Hooks, appears, outcomes
from tests.harness.model_server import calls, patches, says
from tests.harness.threads import Client, Stage, outline, params_of, staged
from treadle.engine.hooks.events import EVENTS

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text("utf-8")
ADD = "*** Begin Patch\n*** Add File: a.py\n+x\n*** End Patch\n"

Example: TypeAlias = Callable[[Stage, Client], Coroutine[None, None, None]]


def sections() -> dict[str, str]:
    """The text below each heading of an event."""
    parts = re.split(r"^### (.+)$", PAGE.partition("## Events")[2], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def write_scripts(text: str) -> None:
    """Write the scripts of an example where their first lines say."""
    for script in blocks(text, "python"):
        path = Path(script.partition("\n")[0].removeprefix("# "))
        path.parent.mkdir(exist_ok=True)
        path.write_text(script, "utf-8")


@pytest.fixture
async def stage(home: Path) -> AsyncIterator[Stage]:
    """A server in this process and a model on the loopback."""
    async with staged(home) as stage:
        yield stage


async def run(stage: Stage, client: Client, text: str = "hi", **params: object) -> list[object]:
    """Run a turn in a new thread of the workspace."""
    thread_id = await client.start(cwd=str(stage.workspace), **params)
    return list(await client.run(thread_id, text))


async def session_start(stage: Stage, client: Client) -> None:
    (stage.home / "branch").write_text("r-7\n", "utf-8")
    await run(stage, client)
    said = stage.model.requests[0].messages("developer")
    assert said[-1] == ("developer", "The release branch is r-7")


async def prompt(stage: Stage, client: Client) -> None:
    await run(stage, client, "use sk-abcdefghij")
    assert stage.model.requests == []
    await run(stage, client, "use nothing")
    assert len(stage.model.requests) == 1


async def before_tool(stage: Stage, client: Client) -> None:
    stage.model.plays(
        calls("exec_command", {"cmd": "git push"}),
        calls("exec_command", {"cmd": "false; echo on"}, "call-2"),
        says("done"),
    )
    await run(stage, client)
    outputs = stage.model.requests[-1].outputs()
    assert "a person pushes" in str(outputs["call-1"])
    assert "Process exited with code 1" in str(outputs["call-2"])


async def permission(stage: Stage, client: Client) -> None:
    asked = {"sandbox_permissions": "require_escalated"}
    stage.model.plays(
        calls("exec_command", {"cmd": "sudo ls", **asked}),
        calls("exec_command", {"cmd": "git fetch --help > /dev/null", **asked}, "call-2"),
        says("done"),
    )
    messages = await run(stage, client, approvalPolicy="on-request")
    assert "no sudo" in str(stage.model.requests[-1].outputs()["call-1"])
    assert "item/commandExecution/requestApproval" not in outline(messages)


async def after_tool(stage: Stage, client: Client) -> None:
    stage.model.plays(patches(ADD), says("done"))
    messages = await run(stage, client, sandbox="workspace-write")
    (outcome,) = outcomes(messages)
    assert outcome[:2] == ("postToolUse", "blocked")
    assert stage.model.requests[-1].outputs()["call-1"] == outcome[2][0].removeprefix("feedback: ")


async def before_request(stage: Stage, client: Client) -> None:
    (stage.home / "stop").touch()
    messages = await run(stage, client)
    error = params_of(messages, "error")[0]["error"]
    assert error["codexErrorInfo"] == "inferenceHookDenied"
    assert error["message"].endswith("stopped by the file stop")


async def after_request(stage: Stage, client: Client) -> None:
    await run(stage, client)
    usage = json.loads((stage.home / "usage.jsonl").read_text("utf-8"))
    assert (usage["status"], usage["token_usage"]["total_tokens"]) == ("completed", 15)


async def compact(client: Client, stage: Stage) -> None:
    """Run a turn and compact its thread."""
    thread_id = await client.start(cwd=str(stage.workspace))
    await client.run(thread_id)
    await client.request("thread/compact/start", {"threadId": thread_id})
    await client.until("turn/completed")


async def before_compaction(stage: Stage, client: Client) -> None:
    await compact(client, stage)
    assert '"session_meta"' in (stage.home / "before.jsonl").read_text("utf-8")


async def after_compaction(stage: Stage, client: Client) -> None:
    await compact(client, stage)
    assert (stage.home / "turns.log").read_text("utf-8") == "compacted\n"


async def stop(stage: Stage, client: Client) -> None:
    add = ADD.replace("a.py", "CHANGELOG.md")
    stage.model.plays(says("done"), patches(add), says("written"))
    await run(stage, client, sandbox="workspace-write")
    assert (stage.workspace / "CHANGELOG.md").exists()
    assert "Write CHANGELOG.md." in str(stage.model.requests[1].body["input"][-1])


async def agents(stage: Stage, client: Client) -> None:
    stage.model.plays(
        calls("spawn_agent", {"message": "look"}), says("child"), says("parent"), says("more")
    )
    await run(stage, client)
    await appears(stage.home / "turns.log")
    texts = [text for request in stage.model.requests for _, text in request.messages("developer")]
    assert "Answer in one sentence." in texts


async def interrupt(stage: Stage, client: Client) -> None:
    thread_id = await client.start()
    stage.model.plays(calls("exec_command", {"cmd": "sleep 60"}))
    turn_id = await client.start_turn(thread_id)
    await client.until("item/started", lambda p: p["item"]["type"] == "commandExecution")
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.until("hook/completed")
    assert (stage.home / "turns.log").read_text("utf-8") == "interrupted\n"


async def session_end(stage: Stage, client: Client) -> None:
    await run(stage, client)
    await stage.close()
    assert (stage.home / "turns.log").read_text("utf-8") == "end\n"


EXAMPLES: dict[str, Example] = {
    "SessionStart": session_start,
    "UserPromptSubmit": prompt,
    "PreToolUse": before_tool,
    "PermissionRequest": permission,
    "PostToolUse": after_tool,
    "PreModelRequest": before_request,
    "PostModelRequest": after_request,
    "PreCompact": before_compaction,
    "PostCompact": after_compaction,
    "Stop": stop,
    "SubagentStart and SubagentStop": agents,
    "Interrupt": interrupt,
    "SessionEnd": session_end,
}


def test_every_event_has_an_example() -> None:
    named = {name for title in sections() for name in title.split(" and ")}

    assert list(EXAMPLES) == list(sections())
    assert named == {event.title for event in EVENTS}


@pytest.mark.parametrize("title", EXAMPLES)
async def test_the_example_of_an_event_works(stage: Stage, title: str) -> None:
    async with asyncio.timeout(60):
        client = await stage.client()
        text = sections()[title].replace("~/.codex", str(stage.home))
        (document,) = blocks(text, "json")
        (stage.home / "hooks.json").write_text(document, "utf-8")
        write_scripts(text)
        await Hooks(stage.home, client).trust()
        await EXAMPLES[title](stage, client)


async def test_both_formats_of_the_first_example_are_the_same_hook(stage: Stage) -> None:
    client = await stage.client()
    first = PAGE.partition("## Trust")[0]
    (stage.home / "hooks.json").write_text(blocks(first, "json")[0], "utf-8")
    stage.configure(blocks(first, "toml")[0])
    (entry,) = (await client.request("hooks/list", {"cwds": [str(stage.home)]}))["data"]

    assert len({hook["currentHash"] for hook in entry["hooks"]}) == 1
    assert len(entry["hooks"]) == 2
