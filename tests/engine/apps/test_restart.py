"""Tools of apps in threads that another server continues."""

from __future__ import annotations

from tests.engine.apps.ground import (
    ASKS,
    CALENDAR,
    DEMO,
    ELICITATION,
    AppsGround,
    calls_app,
    items_of,
    spaces_of,
)
from tests.harness.model_server import says


async def test_an_approval_that_was_open_is_requested_by_the_next_server(
    ground: AppsGround,
) -> None:
    """Ours: the call runs once, after its approval."""
    ground.apps.replies.extend([calls_app(CALENDAR, "_create_event", {"text": "x"}), says("ok")])
    client, thread = await ground.thread(**ASKS)
    await client.start_turn(thread)
    await client.until(ELICITATION)
    await ground.end()
    after = await ground.client()
    await after.request("thread/resume", {"threadId": thread})
    asked = (await after.until(ELICITATION))[-1]
    await after.peer.send({"id": asked["id"], "result": {"action": "accept"}})
    (item,) = items_of(await after.until("turn/completed"))

    assert asked["params"]["_meta"]["connector_id"] == "calendar"
    assert item["status"] == "completed"
    assert [call["arguments"] for call in ground.apps.calls] == [{"text": "x"}]


async def test_a_resumed_thread_has_its_items_and_the_tools(ground: AppsGround) -> None:
    ground.apps.replies.extend([calls_app(DEMO, "search"), says("ok")])
    client, thread = await ground.thread()
    messages = await client.run(thread)
    await ground.end()
    after = await ground.client()
    resumed = await after.request("thread/resume", {"threadId": thread})
    await after.run(thread)

    items = [item for turn in resumed["thread"]["turns"] for item in turn["items"]]
    assert [item for item in items if item["type"] == "mcpToolCall"] == items_of(messages)
    assert spaces_of(ground.requests[-1])[DEMO] == ["search"]
