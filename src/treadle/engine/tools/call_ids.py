"""Ids of calls: unique in one answer of a model, whatever the model sends."""

from __future__ import annotations

from treadle.engine.tools.registry import read_call
from treadle.model.base import ItemDone, ModelEvent
from treadle.support.ids import uuid7


def with_own_call_id(event: ModelEvent, used: set[str]) -> ModelEvent:
    """Give a call whose id another call of the same answer has a new one.

    Items, approvals and outputs are found by the id of their call, and the calls of one answer
    run at the same time. The model sees the new id in the call and in its output.
    """
    if not isinstance(event, ItemDone):
        return event
    call = read_call(event.item)
    if call is None:
        return event
    if call.id not in used:
        used.add(call.id)
        return event
    # Not derived from the old id: providers refuse ids of more than 64 characters.
    return ItemDone({**event.item, "call_id": f"call_{uuid7()}"})
