"""Rebuilds turns, history, usage and settings from a thread's journal entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from treadle.engine.accounting.usage import TokenLedger
from treadle.model.base import ModelItem
from treadle.protocol.item import (
    ItemCompletedNotification,
    ThreadItem,
)
from treadle.protocol.turn import Turn, TurnCompletedNotification, TurnStartedNotification
from treadle.store.journal import Entry, Event
from treadle.store.records import Compacted, HistoryItem, TurnContext, UsageRecord


def turns_of(events: Iterable[Event]) -> list[Turn]:
    """Return the turns of these events, each with its completed items in order."""
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
    """Return the model's history after these entries."""
    history: list[ModelItem] = []
    for entry in entries:
        if isinstance(entry, HistoryItem):
            history.append(entry.item)
        elif isinstance(entry, Compacted):
            history = list(entry.replacement)
    return history


def usage_of(entries: Sequence[Entry]) -> TokenLedger:
    """Return the usage after these entries; their responses are not counted again."""
    records = [entry for entry in entries if isinstance(entry, UsageRecord)]
    if not records:
        return TokenLedger()
    last = records[-1]
    ledger = TokenLedger(last.total, last.usage, last.context_window)
    ledger.know(record.response_id for record in records)
    return ledger


def settings_of(entries: Sequence[Entry]) -> TurnContext | None:
    """Return the settings of the last turn in these entries."""
    contexts = [entry for entry in entries if isinstance(entry, TurnContext)]
    return contexts[-1] if contexts else None
