"""Calls of client tools that are open when the server is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.processes import spawn_server
from tests.harness.questions import answer, question
from tests.harness.scripted import SECONDS, client_of, over, playing, write_script
from tests.harness.threads import EPILOGUE, Client, outline, params_of
from treadle.model.scripted.model import ScriptedModel
from treadle.protocol.base import JsonValue

ASK = "item/tool/call"
LOOKUP: JsonValue = {"name": "lookup", "description": "d", "inputSchema": {"type": "object"}}
OTHER: JsonValue = {**LOOKUP, "name": "other"}


async def killed_while_waiting(home: Path, calls: Sequence[str], answered: int = 0) -> str:
    """Kill a server whose thread waits for these calls, except the answered ones."""
    steps = [{"type": "calls", "tool": "lookup", "call_id": id_} for id_ in calls]
    script = write_script(home.parent / "script.json", [steps])
    server = spawn_server(home, TREADLE_SCRIPT=str(script))
    async with asyncio.timeout(SECONDS), over(server) as client:
        thread_id = await client.start(dynamicTools=[LOOKUP])
        await client.start_turn(thread_id)
        asked = [await question(client, ASK) for _ in calls]
        for each in asked[:answered]:
            await answer(client, each, found("before"))
            await client.until(
                "item/completed", lambda params: params["item"]["type"] != "userMessage"
            )
        os.kill(server.pid, signal.SIGKILL)
    return thread_id


def found(text: str) -> JsonValue:
    return {"contentItems": [{"type": "inputText", "text": text}], "success": True}


def ended(messages: list[JsonValue]) -> dict[str, str]:
    """How the completed calls ended, by id."""
    items = (params["item"] for params in params_of(messages, "item/completed"))
    return {item["id"]: item["status"] for item in items if item["type"] == "dynamicToolCall"}


def outputs(model: ScriptedModel) -> dict[str, JsonValue]:
    return {
        item["call_id"]: item["output"] for item in model.requests[-1].input if "output" in item
    }


async def test_a_client_answers_after_a_kill_and_the_same_turn_continues(home: Path) -> None:
    thread_id = await killed_while_waiting(home, ["c1", "c2"])
    model = ScriptedModel(["done"])
    async with playing(home, model) as server, client_of(server) as client:
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        asked = [await question(client, ASK) for _ in range(2)]
        for each in reversed(asked):
            await answer(client, each, found(f"for {each['params']['callId']}"))
        messages = await client.until("turn/completed")

    assert resumed["thread"]["turns"][-1]["status"] == "inProgress"
    assert ended(messages) == {"c1": "completed", "c2": "completed"}
    assert outputs(model) == {"c1": "for c1", "c2": "for c2"}
    assert outline(messages)[-2:] == EPILOGUE


async def test_a_call_that_was_answered_before_is_not_repeated(home: Path) -> None:
    thread_id = await killed_while_waiting(home, ["c1", "c2"], answered=1)
    model = ScriptedModel(["done"])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        asked = await question(client, ASK)
        await answer(client, asked, found("after"))
        messages = await client.until("turn/completed")

    assert asked["params"]["callId"] == "c2"
    assert ended(messages) == {"c2": "completed"}
    assert outputs(model)["c2"] == "after"
    assert outline(messages)[-2:] == EPILOGUE


@pytest.mark.parametrize("tools", [[], [OTHER]])
async def test_a_client_that_returns_without_the_tool_ends_the_call(
    home: Path, tools: list[JsonValue]
) -> None:
    thread_id = await killed_while_waiting(home, ["c1"])
    model = ScriptedModel(["done", "and on"])
    async with playing(home, model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id, "dynamicTools": tools})
        messages = await client.until("turn/completed")
        first = outputs(model)
        await client.run(thread_id, "and now?")
        items = (await client.read(thread_id))["turns"][0]["items"]

    assert first == {"c1": "unsupported call: lookup"}
    assert ended(messages) == {"c1": "failed"}
    assert [item["status"] for item in items if item["type"] == "dynamicToolCall"] == ["failed"]
    assert outline(messages)[-2:] == EPILOGUE


async def test_a_thread_whose_server_was_killed_can_be_interrupted_instead(home: Path) -> None:
    thread_id = await killed_while_waiting(home, ["c1"])
    model = ScriptedModel(["and on"])
    async with playing(home, model) as server, client_of(server) as client:
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        await question(client, ASK)
        turn_id = resumed["thread"]["turns"][-1]["id"]
        await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        messages = await client.end_of(turn_id)
        later = await goes_on(client, thread_id)

    assert ended(messages) == {"c1": "failed"}
    assert messages[-1]["params"]["turn"]["status"] == "interrupted"
    assert later[-2:] == EPILOGUE


async def goes_on(client: Client, thread_id: str) -> list[str]:
    return outline(await client.run(thread_id, "and now?"))
