"""Servers for tests: in the test's own process, and as real processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from treadle import AsyncClient, Client, TurnFailed, TurnTimeout
from treadle.client.connectors import Where
from treadle.protocol.status import ActiveThreadStatus
from treadle.testing import (
    Response,
    Script,
    Step,
    VirtualClock,
    calls,
    fails,
    says,
    waits,
    waits_for,
)
from treadle.testing.plugin import ClientFactory, ProcessFactory, ServerFactory
from treadle.testing.process import ProcessFailed

SECONDS = 50


@asynccontextmanager
async def connected(where: Where) -> AsyncIterator[AsyncClient]:
    async with asyncio.timeout(SECONDS), AsyncClient(where) as client:
        yield client


async def test_a_server_in_this_process_plays_a_script_and_records_its_requests(
    treadle_server: ServerFactory,
) -> None:
    script = Script([calls("update_plan", {"plan": []}, call_id="c-1"), says("done")])
    async with treadle_server(script) as server, connected(server) as client:
        result = await (await client.start_thread()).run("plan it")

    assert result.agent_message == "done"
    first, second = server.requests
    assert first.input[-1]["content"] == [{"type": "input_text", "text": "plan it"}]
    assert [item["call_id"] for item in second.input[-2:]] == ["c-1", "c-1"]


async def test_scripts_in_lists_of_their_own_type_are_scripts(
    treadle_client: ClientFactory,
) -> None:
    """Type checkers read this file too."""
    steps: list[Step] = [says("one"), says("two")]
    responses: list[list[Step]] = [[waits(0), says("three")]]
    mixed: list[Response] = [*steps, *responses, "four"]
    messages = []
    for script in (steps, responses, mixed):
        async with asyncio.timeout(SECONDS), treadle_client(script) as client:
            thread = await client.start_thread()
            messages += [(await thread.run("go")).agent_message for _ in script]
    assert messages == ["one", "two", "three", "one", "two", "three", "four"]


async def test_a_script_can_wait_for_the_test(treadle_client: ClientFactory) -> None:
    gate = asyncio.Event()
    async with asyncio.timeout(SECONDS), treadle_client([[waits_for(gate), says("now")]]) as client:
        turn = await (await client.start_thread()).start_turn("go")
        status = (await client.read_thread(turn.thread_id)).status
        assert isinstance(status, ActiveThreadStatus)
        gate.set()
        assert (await turn.result()).agent_message == "now"


async def test_several_clients_share_one_server(treadle_server: ServerFactory) -> None:
    async with treadle_server([says("one")]) as server, connected(server) as first:
        thread = await first.start_thread()
        await thread.run("hi")
        async with connected(server) as second:
            seen = await second.read_thread(thread.id, include_turns=True)
    assert [turn.status for turn in seen.turns] == ["completed"]


async def test_no_key_of_the_machine_reaches_a_server(
    treadle_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-machine")
    async with treadle_server([says("hi")]) as server, connected(server) as client:
        thread = await client.start_thread()
        assert (await client.read_thread(thread.id)).model_provider == "scripted"


def test_a_blocking_client_accepts_the_server_too(treadle_process: ProcessFactory) -> None:
    server = treadle_process([says("blocking")])
    with Client(server.url) as client:
        assert client.start_thread().run("hi").agent_message == "blocking"


@pytest.mark.parametrize("way", ["command", "url", "socket"])
async def test_a_real_process_plays_a_script_over_each_transport(
    treadle_process: ProcessFactory, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-machine")
    server = treadle_process(Script([says("from afar")], then="repeat"))
    ways: dict[str, Where] = {
        "command": server.command,
        **({way: getattr(server, way)} if way != "command" else {}),
    }
    async with connected(ways[way]) as client:
        thread = await client.start_thread()
        result = await thread.run("over there")

    assert result.agent_message == "from afar"
    (request,) = server.requests
    assert request.input[-1]["content"] == [{"type": "input_text", "text": "over there"}]
    assert request.thread_id == thread.id
    assert Path(client.server.codex_home) == server.home
    assert server.home != Path(os.environ["TREADLE_HOME"])


async def test_a_killed_server_restarts_with_its_threads(treadle_process: ProcessFactory) -> None:
    server = treadle_process([says("before")])
    async with connected(server.url) as client:
        thread = await client.start_thread()
        await thread.run("hi")
        server.kill()
    async with connected(server.url) as client:
        seen = await client.read_thread(thread.id, include_turns=True)
    assert [turn.status for turn in seen.turns] == ["completed"]


def test_a_server_that_cannot_start_reports_the_reason(treadle_process: ProcessFactory) -> None:
    server = treadle_process([says("never")])
    server.env["PYTHONHOME"] = "/nowhere"
    with pytest.raises(ProcessFailed, match="does not listen") as caught:
        _ = server.url
    assert "encodings" in caught.value.stderr


def test_a_script_that_only_python_can_play_is_refused(treadle_process: ProcessFactory) -> None:
    with pytest.raises(TypeError, match="a process cannot play this script"):
        treadle_process([[waits_for(asyncio.Event())]])


async def test_a_scripted_failure_reaches_the_client(treadle_client: ClientFactory) -> None:
    script = [fails("no more money", info="usageLimitExceeded", status=402)]
    async with asyncio.timeout(SECONDS), treadle_client(script) as client:
        thread = await client.start_thread()
        with pytest.raises(TurnFailed, match="no more money") as caught:
            await thread.run("hi")
    assert caught.value.codex_error_info == "usageLimitExceeded"


async def test_an_idle_hour_takes_no_time(
    treadle_client: ClientFactory, virtual_clock: VirtualClock
) -> None:
    script = Script([[waits(3600), says("late")]])
    with virtual_clock:
        async with treadle_client(script, turn_idle_timeout=600) as client:
            thread = await client.start_thread()
            with pytest.raises(TurnTimeout) as caught:
                await thread.run("hi")
    assert not caught.value.is_total
    assert 600 <= virtual_clock.elapsed < 3600
