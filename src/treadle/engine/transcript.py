"""From events back to turns: what a thread looks like to somebody who reads it afterwards."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from treadle.model.base import ModelItem
from treadle.protocol.item import ItemCompletedNotification, ThreadItem
from treadle.protocol.turn import Turn, TurnCompletedNotification, TurnStartedNotification
from treadle.store.journal import Entry, Event
from treadle.store.records import Compacted, HistoryItem


def turns_of(events: Iterable[Event]) -> list[Turn]:
    """The turns that these events tell of, each with its completed items in order."""
    turns: dict[str, Turn] = {}
    items: dict[str, dict[str, ThreadItem]] = {}
    for event in events:
        match event.params:
            case TurnStartedNotification(turn=turn) | TurnCompletedNotification(turn=turn):
                turns[turn.id] = turn
            case ItemCompletedNotification(turn_id=turn_id, item=item):
                items.setdefault(turn_id, {})[item.id] = item
            case _:
                pass
    return [
        msgspec.structs.replace(turn, items=list(items.get(id_, {}).values()), items_view="full")
        for id_, turn in turns.items()
    ]


def history_of(entries: Iterable[Entry]) -> list[ModelItem]:
    """What the model sees after these entries."""
    history: list[ModelItem] = []
    for entry in entries:
        if isinstance(entry, HistoryItem):
            history.append(entry.item)
        elif isinstance(entry, Compacted):
            history = list(entry.replacement)
    return history
