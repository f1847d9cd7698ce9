"""A script over HTTP, played to Treadle's server and to the reference."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from treadle import AsyncClient, TurnFailed
from treadle.testing import (
    Script,
    calls,
    drops,
    fails,
    says,
    scripted_provider,
    thinks,
    treadle_server,
    usage,
)

SECONDS = 50
PLAN = {"plan": [{"step": "look", "status": "completed"}]}


async def test_the_reference_server_plays_the_same_script(reference: str, tmp_path: Path) -> None:
    script = Script(
        [
            [thinks("Let me plan."), calls("update_plan", PLAN, call_id="c-1")],
            [says("All planned.", deltas=4), usage(20, 7)],
        ]
    )
    async with asyncio.timeout(SECONDS), scripted_provider(script) as provider:
        (tmp_path / "config.toml").write_text(provider.config())
        command = [reference, "app-server"]
        env = {"CODEX_HOME": str(tmp_path)}
        async with AsyncClient(command, env=env, cwd=tmp_path) as client:
            result = await (await client.start_thread()).run("plan it")

    assert result.agent_message == "All planned."
    posts = [request for request in provider.requests if request.method == "POST"]
    answered = [item for item in posts[1].json["input"] if item.get("call_id") == "c-1"]
    assert [item["type"] for item in answered] == ["function_call", "function_call_output"]


async def test_a_failure_before_the_first_event_is_a_status() -> None:
    script = [fails("no such model", status=404)]
    async with (
        asyncio.timeout(SECONDS),
        scripted_provider(script) as provider,
        treadle_server(config=provider.config()) as server,
        AsyncClient(server) as client,
    ):
        thread = await client.start_thread()
        with pytest.raises(TurnFailed, match="unexpected status 404 Not Found: no such model"):
            await thread.run("hi")


async def test_a_dropped_stream_is_retried() -> None:
    script = Script([[says("half", id_="msg-a"), drops()], says("whole")])
    async with (
        asyncio.timeout(SECONDS),
        scripted_provider(script) as provider,
        treadle_server(config=provider.config(stream_max_retries=1)) as server,
        AsyncClient(server) as client,
    ):
        result = await (await client.start_thread()).run("hi")
    assert result.agent_message == "whole"
    assert len(provider.requests) == 2
