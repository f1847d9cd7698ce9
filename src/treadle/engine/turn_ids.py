"""Keeps the item ids of one turn unique, whatever ids the model sends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from treadle.engine.approvals.permission import RETRY
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

# Items that clients see under the model's own id. They see a call under its call id.
_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "web_search_call": "ws"}


class TurnIds:
    """Replaces ids that an earlier item of the turn already uses.

    The server and clients look up items, approvals and outputs by these ids. The model sees the
    new id too; for a call, in both the call and its output.
    """

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)
        # Unfinished items of the current response: the model's id -> the id that clients see.
        self._open: dict[JsonValue, str] = {}

    def begin_response(self) -> None:
        """Start a new response: an id from an unfinished item now means another item."""
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
                return self._replace_id(event)
            case ItemStarted() if event.item.get("type") in _PREFIXES:
                return ItemStarted(self._replace_started(event.item))
            case ItemDone():
                return ItemDone(self._replace_done(event.item))
            case Restarted():
                # The provider sends the same items again from the start.
                self._used.difference_update(self._open.values())
                self._open.clear()
            case _:
                pass
        return event

    def _replace_id(
        self,
        event: ModelTextDelta | ReasoningSummaryDelta | ReasoningTextDelta | ReasoningPartAdded,
    ) -> ModelEvent:
        id_ = event.item_id
        new_id = self._open.get(id_)
        if new_id is None:
            kind = "message" if isinstance(event, ModelTextDelta) else "reasoning"
            new_id = self._assign(id_, kind)
        return event if new_id == id_ else msgspec.structs.replace(event, item_id=new_id)

    def _replace_started(self, item: ModelItem) -> ModelItem:
        id_ = item.get("id")
        if not isinstance(id_, str):
            return item
        new_id = self._open.get(id_) or self._assign(id_, item["type"])
        return item if new_id == id_ else {**item, "id": new_id}

    def _replace_done(self, item: ModelItem) -> ModelItem:
        if item.get("type") in _PREFIXES:
            done = self._replace_started(item)
            self._open.pop(item.get("id"), None)
            return done
        call = read_call(item)
        if call is None:
            return item
        new_id = self._make_unique(call.id, "call")
        return item if new_id == call.id else {**item, "call_id": new_id}

    def _assign(self, id_: str, kind: str) -> str:
        self._open[id_] = self._make_unique(id_, _PREFIXES[kind])
        return self._open[id_]

    def _make_unique(self, id_: str, prefix: str) -> str:
        # Not derived from the old id: providers reject ids longer than 64 characters.
        # With this suffix it could be taken for the request to retry another call.
        is_free = id_ not in self._used and not id_.endswith(RETRY)
        new_id = id_ if is_free else f"{prefix}_{uuid7()}"
        self._used.add(new_id)
        return new_id
