"""MCP servers that hang, die or are slow: what they delay, and how often."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.harness.mcp import PLAIN, STATUS, item_of, offered, settled, stdio, table, tools_of
from tests.harness.model_server import Reply, calls
from tests.harness.threads import PROLOGUE, Client, Stage, outline, params_of
from treadle.protocol.base import JsonValue

ASK = "mcpServer/elicitation/request"
HANGING: JsonValue = {"command": "sleep", "args": ["60"]}
# A test that waits for this exceeds its time limit.
FOR_EVER = "mcp_optional_startup_grace_ms = 600000\n"


async def all_ended(client: Client, *turns: str) -> None:
    """Wait until these turns have ended, in whichever order."""
    left = set(turns)

    def is_last(params: JsonValue) -> bool:
        left.discard(params["turn"]["id"])
        return not left

    await client.until("turn/completed", is_last)


async def test_a_hanging_server_delays_only_the_model(stage: Stage) -> None:
    stage.configure(FOR_EVER + table("bad", **HANGING))
    client = await stage.client()
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    messages = await client.until("item/completed")
    listed = await client.request("thread/loaded/list", {})

    assert outline(messages)[-4:] == PROLOGUE
    assert (listed["data"], stage.model.requests) == ([thread_id], [])
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)


async def test_a_server_that_timed_out_is_not_waited_for_again(stage: Stage) -> None:
    stage.configure("mcp_optional_startup_grace_ms = 50\n" + table("bad", **HANGING))
    client = await stage.client()
    await client.run(await client.start())
    # From here on, to wait for it would be to wait for ever.
    stage.configure(FOR_EVER + table("bad", **HANGING))
    for _thread in range(2):
        messages = await client.run(await client.start())
        assert messages[-1]["params"]["turn"]["status"] == "completed"


async def test_threads_that_start_together_share_one_wait(stage: Stage) -> None:
    stage.configure("mcp_optional_startup_grace_ms = 300\n" + table("bad", **HANGING))
    client = await stage.client()
    first = await client.start()
    stage.configure(FOR_EVER + table("bad", **HANGING))
    second = await client.start()
    turns = [await client.start_turn(thread_id) for thread_id in (first, second)]
    await all_ended(client, *turns)

    assert len(stage.model.requests) == 2


async def test_a_server_that_died_is_not_waited_for_by_the_next_thread(
    stage: Stage, tmp_path: Path
) -> None:
    once = f"test -e {tmp_path}/mark && exec sleep 60; touch {tmp_path}/mark"
    stage.configure(FOR_EVER + table("bad", command="sh", args=["-c", once]))
    client = await stage.client()
    messages = await client.run(await client.start())
    again = await client.run(await client.start())

    assert [params["status"] for params in params_of(messages, STATUS)] == ["starting", "failed"]
    assert [params["status"] for params in params_of(again, STATUS)] == ["starting"]
    assert len(stage.model.requests) == 2


async def test_a_server_that_started_in_time_is_waited_for_in_the_next_thread(
    stage: Stage,
) -> None:
    stage.configure("mcp_optional_startup_grace_ms = 20000\n" + stdio())
    client = await stage.client()
    for _thread in range(2):
        await client.run(await client.start())
        assert "mcp__mini__echo" in offered(stage)


async def test_tools_of_a_slow_server_are_in_the_next_request_of_the_same_turn(
    stage: Stage, tmp_path: Path
) -> None:
    """And so is what it says of its use."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program = f"read line < {gate}; exec {sys.executable} {PLAIN[0]}"
    stage.configure(
        "mcp_optional_startup_grace_ms = 0\n" + table("slow", command="sh", args=["-c", program])
    )
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="never", sandbox="danger-full-access")
    waiting = asyncio.Event()
    reply = calls("update_plan", {"plan": []})
    stage.model.plays(Reply([reply.steps[0], waiting, *reply.steps[1:]]))
    turn_id = await client.start_turn(thread_id)
    await stage.model.wait_for_request(1)
    gate.write_text("go\n")
    await settled(client, "slow")
    waiting.set()
    await client.end_of(turn_id)

    named = ["mcp__slow__echo" in tools_of(request) for request in stage.model.requests]
    heard = ["Be kind to" in str(request.messages("developer")) for request in stage.model.requests]
    assert (named, heard) == ([False, True], [False, True])


async def test_a_call_waits_for_its_own_server_to_start(stage: Stage, tmp_path: Path) -> None:
    """The model may know a tool from before, and have been asked before the server was there."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program = f"read line < {gate}; exec {sys.executable} {PLAIN[0]}"
    stage.configure(
        "mcp_optional_startup_grace_ms = 0\n"
        + table("slow", command="sh", args=["-c", program])
        + table("bad", **HANGING)
    )
    client = await stage.client()
    thread_id = await client.start(
        approvalPolicy="never", sandbox="danger-full-access", experimentalRawEvents=True
    )
    stage.model.plays(calls("mcp__slow__echo", {"text": "there you are"}))
    turn_id = await client.start_turn(thread_id)
    await client.until("rawResponseItem/completed", lambda params: "call_id" in params["item"])
    gate.write_text("go\n")
    messages = await client.end_of(turn_id)

    assert item_of(messages)["status"] == "completed"
    assert "there you are" in str(stage.model.requests[1].outputs())


async def test_a_call_approved_after_a_restart_waits_only_for_its_own_server(stage: Stage) -> None:
    stage.configure(stdio() + table("bad", **HANGING))
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="on-request", sandbox="read-only")
    await settled(client, "mini")
    stage.model.plays(calls("mcp__mini__danger", {}))
    await client.start_turn(thread_id)
    await client.until(ASK)
    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})
    question = (await client.until(ASK))[-1]
    await client.peer.send({"id": question["id"], "result": {"action": "accept"}})
    messages = await client.until("turn/completed")

    assert item_of(messages)["status"] == "completed"


async def test_a_required_server_that_ended_is_started_again_by_the_next_turn(
    stage: Stage,
) -> None:
    """Every later turn failed, although a call would have started the server again."""
    stage.configure(stdio(required=True))
    client = await stage.client()
    thread_id = await client.start()
    await settled(client, "mini")
    stage.model.plays(calls("mcp__mini__die", {}))
    await client.run(thread_id)
    messages = await client.run(thread_id)

    assert messages[-1]["params"]["turn"]["status"] == "completed"
