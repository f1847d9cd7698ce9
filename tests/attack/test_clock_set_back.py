"""Setting the wall clock back makes no duration negative and no time limit longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.sandbox import SANDBOX
from tests.harness.scripted import OneModel, client_of
from tests.harness.threads import Client, params_of
from treadle.config.configuration import Configuration
from treadle.model.scripted.model import ScriptedModel
from treadle.model.scripted.script import Response, calls, custom_call, says
from treadle.protocol.base import JsonValue
from treadle.server.server import Server
from treadle.testing import VirtualClock

HOUR_MS = 3_600_000
NOON_MS = 1_700_000_000_000
APPROVAL = "item/commandExecution/requestApproval"


class WallClock:
    """A wall clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_ms = NOON_MS

    def __call__(self) -> int:
        return self.now_ms

    def set_back(self) -> None:
        """Set it back by an hour."""
        self.now_ms -= HOUR_MS


@asynccontextmanager
async def serving(home: Path, clock: WallClock, *script: Response) -> AsyncIterator[Client]:
    models = OneModel(ScriptedModel(list(script), keep_requests=0))
    server = Server(sandbox=SANDBOX, configuration=Configuration(home), models=models, clock=clock)
    try:
        async with asyncio.timeout(30), client_of(server) as client:
            yield client
    finally:
        await server.close()


@pytest.fixture
def work(home: Path) -> Path:
    """Return a working folder."""
    folder = home.parent / "work"
    folder.mkdir()
    return folder


def durations(messages: list[JsonValue]) -> list[JsonValue]:
    """Return every duration, and the time between the start and the end of each item."""
    found = [value for message in messages for value in _all(message, "durationMs")]
    starts = {
        params["item"]["id"]: params["startedAtMs"]
        for params in params_of(messages, "item/started")
    }
    ends = {
        params["item"]["id"]: params["completedAtMs"]
        for params in params_of(messages, "item/completed")
    }
    return [*found, *(ends[id_] - start for id_, start in starts.items() if id_ in ends)]


def _all(value: JsonValue, name: str) -> list[JsonValue]:
    if isinstance(value, dict):
        own = [value[name]] if value.get(name) is not None else []
        return own + [found for inner in value.values() for found in _all(inner, name)]
    if isinstance(value, list):
        return [found for inner in value for found in _all(inner, name)]
    return []


async def test_a_turn_during_which_the_clock_is_set_back_has_no_negative_duration(
    home: Path, work: Path
) -> None:
    clock = WallClock()
    patch = "*** Begin Patch\n*** Add File: a\n+a\n*** End Patch"
    script = [
        calls("exec_command", {"cmd": "touch x"}),
        custom_call("apply_patch", patch, call_id="call-2"),
        says("ok"),
    ]
    async with serving(home, clock, *script) as client:
        free = {"approvalPolicy": "untrusted", "sandbox": "workspace-write"}
        thread_id = await client.start(cwd=str(work), model="gpt-5.5", **free)
        turn_id = await client.start_turn(thread_id)
        messages = await client.until(APPROVAL)
        clock.set_back()
        await client.peer.send({"id": messages[-1]["id"], "result": {"decision": "accept"}})
        more = await client.until("item/fileChange/requestApproval")
        await client.peer.send({"id": more[-1]["id"], "result": {"decision": "accept"}})
        messages += more + await client.end_of(turn_id)
        turn = params_of(messages, "turn/completed")[-1]["turn"]

        assert all(taken >= 0 for taken in durations(messages))
        assert 0 <= turn["durationMs"] < HOUR_MS
        assert turn["completedAt"] >= turn["startedAt"]
        assert _all((await client.read(thread_id)), "durationMs")[0] >= 0


async def test_a_client_tool_that_runs_while_the_clock_is_set_back_has_no_negative_duration(
    home: Path, work: Path
) -> None:
    clock = WallClock()
    tool = {"name": "look", "description": "looks", "inputSchema": {"type": "object"}}
    async with serving(home, clock, calls("look", {}), says("ok")) as client:
        thread_id = await client.start(cwd=str(work), dynamicTools=[tool])
        turn_id = await client.start_turn(thread_id)
        messages = await client.until("item/tool/call")
        clock.set_back()
        answer = {"contentItems": [{"type": "inputText", "text": "x"}], "success": True}
        await client.peer.send({"id": messages[-1]["id"], "result": answer})
        messages += await client.end_of(turn_id)

    assert all(taken >= 0 for taken in durations(messages))


async def test_a_turn_started_by_another_server_has_no_negative_duration(
    home: Path, work: Path
) -> None:
    clock = WallClock()
    script = [calls("exec_command", {"cmd": "touch x"})]
    async with serving(home, clock, *script) as client:
        thread_id = await client.start(cwd=str(work), approvalPolicy="untrusted")
        turn_id = await client.start_turn(thread_id)
        approval = (await client.until(APPROVAL))[-1]
    clock.set_back()
    async with serving(home, clock, says("ok")) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        approval = (await client.until(APPROVAL))[-1]
        await client.peer.send({"id": approval["id"], "result": {"decision": "decline"}})
        messages = await client.end_of(turn_id)

    turn = params_of(messages, "turn/completed")[-1]["turn"]
    assert turn["durationMs"] >= 0
    assert turn["completedAt"] >= turn["startedAt"]


async def test_the_deadline_of_a_server_request_is_not_later_after_a_restart(
    home: Path, work: Path
) -> None:
    """The timeout is one minute; the clock of the stored deadline is set back by an hour."""
    (home / "config.toml").write_text("[asks]\ndeadline_ms = 60000\n", "utf-8")
    clock = WallClock()
    async with serving(home, clock, calls("exec_command", {"cmd": "touch x"})) as client:
        thread_id = await client.start(cwd=str(work), approvalPolicy="untrusted")
        await client.start_turn(thread_id)
        await client.until(APPROVAL)
    clock.set_back()
    models = OneModel(ScriptedModel([says("ok")], keep_requests=0))
    server = Server(sandbox=SANDBOX, configuration=Configuration(home), models=models, clock=clock)
    with VirtualClock() as virtual:
        async with client_of(server) as client:
            await client.request("thread/resume", {"threadId": thread_id})
            # Not `until`, which times out after 30 seconds of this clock.
            while (await client.peer.receive()).get("method") != "turn/completed":
                pass
        await server.close()

    assert 60 <= virtual.elapsed < 70
