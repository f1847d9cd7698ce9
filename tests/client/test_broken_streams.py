"""Model responses that break off and are retried, as the client shows them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.harness.model_server import Reply, added, created, message, model_server, says
from tests.harness.processes import TREADLE
from tests.harness.threads import configure
from treadle import AsyncClient
from treadle.client.events import ItemCompleted, ItemStarted
from treadle.protocol.item import AgentMessageThreadItem

SECONDS = 50
BEGUN = added({"type": "message", "id": "m1", "role": "assistant", "content": []})


@pytest.mark.parametrize("deltas", [(), ("It ",)], ids=["nothing", "a beginning"])
async def test_a_retried_message_replaces_the_broken_one_with_the_same_id(
    home: Path, deltas: tuple[str, ...]
) -> None:
    broken = [created(), BEGUN, *message("", "m1", deltas)[1:-1]]
    async with model_server() as model, asyncio.timeout(SECONDS):
        configure(home, model, retries=2)
        model.plays(Reply(broken, is_cut=True), says("It works.", "m1", ["It ", "works."]))
        env = {"TREADLE_HOME": str(home), "HOME": str(home)}
        async with AsyncClient(TREADLE, env=env, cwd=home) as client:
            thread = await client.start_thread()
            stream = thread.stream("hi")
            events = [event async for event in stream]
            result = await stream.result()
    messages = [
        (type(event), event.item.text)
        for event in events
        if isinstance(event, ItemStarted | ItemCompleted)
        and isinstance(event.item, AgentMessageThreadItem)
    ]
    assert result.agent_message == "It works."
    assert [item.text for item in result.items if isinstance(item, AgentMessageThreadItem)] == [
        "It works."
    ]
    assert messages == [
        (ItemStarted, ""),
        (ItemCompleted, "".join(deltas)),
        (ItemStarted, ""),
        (ItemCompleted, "It works."),
    ]
