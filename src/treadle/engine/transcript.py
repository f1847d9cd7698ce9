"""From events back to turns: what a thread looks like to somebody who reads it afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from treadle.engine.accounting.usage import TokenLedger
from treadle.model.base import ModelItem
from treadle.protocol.item import (
    ItemCompletedNotification,
    ItemStartedNotification,
    ThreadItem,
)
from treadle.protocol.turn import Turn, TurnCompletedNotification, TurnStartedNotification
from treadle.store.journal import Entry, Event
from treadle.store.records import Compacted, HistoryItem, TurnContext, UsageRecord
from treadle.store.stored_thread import ItemTimes


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


def times_of(events: Iterable[Event]) -> ItemTimes:
    """When the items of these events began and were done, by turn and item."""
    times: ItemTimes = {}
    for event in events:
        match event.params:
            case ItemStartedNotification(turn_id=turn_id, item=item, started_at_ms=began):
                times.setdefault(turn_id, {}).setdefault(item.id, (began, None))
            case ItemCompletedNotification(turn_id=turn_id, item=item, completed_at_ms=done):
                known = times.setdefault(turn_id, {}).get(item.id, (None, None))
                times[turn_id][item.id] = (known[0], done)
            case _:
                pass
    return times


def history_of(entries: Iterable[Entry]) -> list[ModelItem]:
    """What the model sees after these entries."""
    history: list[ModelItem] = []
    for entry in entries:
        if isinstance(entry, HistoryItem):
            history.append(entry.item)
        elif isinstance(entry, Compacted):
            history = list(entry.replacement)
    return history


def usage_of(entries: Sequence[Entry]) -> TokenLedger:
    """What was used up to these entries; their responses are not counted again."""
    records = [entry for entry in entries if isinstance(entry, UsageRecord)]
    if not records:
        return TokenLedger()
    last = records[-1]
    ledger = TokenLedger(last.total, last.usage, last.context_window)
    ledger.know(record.response_id for record in records)
    return ledger


def settings_of(entries: Sequence[Entry]) -> TurnContext | None:
    """What the last turn among these entries ran under."""
    contexts = [entry for entry in entries if isinstance(entry, TurnContext)]
    return contexts[-1] if contexts else None
