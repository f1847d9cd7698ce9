"""Ids of the items of one turn: unique, whatever the model sends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from treadle.engine.tools.registry import read_call
from treadle.model.base import (
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelItem,
    ModelTextDelta,
    ReasoningPartAdded,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    Restarted,
)
from treadle.protocol.base import JsonValue
from treadle.support.ids import uuid7

# What clients see under the id that the model gives it; a call is seen under its call id.
_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "web_search_call": "ws"}


class TurnIds:
    """Replaces ids that an earlier item of the turn has.

    Items, approvals and outputs are found by these ids, in the order of a turn and by clients. The
    model sees the new id as well: of a call, in the call and in its output.
    """

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)
        # The unfinished items of the answer that arrives now: the model's ids, and what is shown.
        self._open: dict[JsonValue, str] = {}

    def begin_answer(self) -> None:
        """Start another answer: its items are others, even under the ids of unfinished ones."""
        self._open.clear()

    def apply(self, event: ModelEvent) -> ModelEvent:
        """Return the event with ids that no other item of the turn has."""
        match event:
            case (
                ModelTextDelta()
                | ReasoningSummaryDelta()
                | ReasoningTextDelta()
                | ReasoningPartAdded()
            ):
                return self._renamed(event)
            case ItemStarted() if event.item.get("type") in _PREFIXES:
                return ItemStarted(self._started(event.item))
            case ItemDone():
                return ItemDone(self._done(event.item))
            case Restarted():
                # The same items again, from their start.
                self._used.difference_update(self._open.values())
                self._open.clear()
            case _:
                pass
        return event

    def _renamed(
        self,
        event: ModelTextDelta | ReasoningSummaryDelta | ReasoningTextDelta | ReasoningPartAdded,
    ) -> ModelEvent:
        id_ = event.item_id
        own = self._open.get(id_)
        if own is None:
            own = self._own(id_, "message" if isinstance(event, ModelTextDelta) else "reasoning")
        return event if own == id_ else msgspec.structs.replace(event, item_id=own)

    def _started(self, item: ModelItem) -> ModelItem:
        id_ = item.get("id")
        if not isinstance(id_, str):
            return item
        own = self._open.get(id_) or self._own(id_, item["type"])
        return item if own == id_ else {**item, "id": own}

    def _done(self, item: ModelItem) -> ModelItem:
        if item.get("type") in _PREFIXES:
            done = self._started(item)
            self._open.pop(item.get("id"), None)
            return done
        call = read_call(item)
        if call is None:
            return item
        own = self._unused(call.id, "call")
        return item if own == call.id else {**item, "call_id": own}

    def _own(self, id_: str, kind: str) -> str:
        self._open[id_] = self._unused(id_, _PREFIXES[kind])
        return self._open[id_]

    def _unused(self, id_: str, prefix: str) -> str:
        # Not derived from the old id: providers refuse ids of more than 64 characters.
        own = f"{prefix}_{uuid7()}" if id_ in self._used else id_
        self._used.add(own)
        return own
