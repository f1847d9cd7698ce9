"""A model that sends faster than its events can be handled delays only its own turn."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from tests.harness.model_server import Reply, completed, created, says
from tests.harness.threads import EPILOGUE, Client, Stage, outline, params_of
from treadle.engine.items import ItemStream
from treadle.model.base import ModelEvent
from treadle.model.open_items import MAX_OPEN_ITEMS
from treadle.protocol.base import JsonValue

EVENTS = 10_000
# A chunk from the socket holds thousands of events; an answer takes a few passes of the loop.
MAX_GAP = 1_000


def delta(number: int) -> JsonValue:
    kind = "response.reasoning_text.delta"
    return {"type": kind, "item_id": "r", "content_index": 0, "delta": str(number)}


def started(number: int) -> JsonValue:
    item = {"type": "x", "id": f"i{number}"}
    return {"type": "response.output_item.added", "output_index": number, "item": item}


async def test_requests_are_answered_while_the_events_of_a_fast_stream_are_handled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = 0
    take = ItemStream.take

    def counted(items: ItemStream, event: ModelEvent) -> None:
        nonlocal handled
        handled += 1
        take(items, event)

    monkeypatch.setattr(ItemStream, "take", counted)
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(Reply([created(), *map(delta, range(EVENTS)), completed()]))
    answered_at: list[int] = []

    async def keep_asking(other: Client) -> None:
        while True:
            await other.ask("thread/loaded/list", {})
            answered_at.append(handled)

    async with asyncio.TaskGroup() as group:
        asking = group.create_task(keep_asking(other))
        told = await client.run(thread_id)
        asking.cancel()

    assert outline(told)[-2:] == EPILOGUE
    assert handled > EVENTS
    gaps = [later - earlier for earlier, later in pairwise(answered_at)]
    assert max(gaps) <= MAX_GAP


async def test_a_response_with_too_many_unfinished_items_fails_and_the_thread_goes_on(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(Reply([created(), *map(started, range(EVENTS)), completed()]))
    failed = await client.run(thread_id)
    stage.model.plays(says("ok"))
    told = await client.run(thread_id)

    turn = params_of(failed, "turn/completed")[-1]["turn"]
    assert turn["status"] == "failed"
    assert f"more than {MAX_OPEN_ITEMS} unfinished items" in turn["error"]["message"]
    assert outline(told)[-2:] == EPILOGUE
