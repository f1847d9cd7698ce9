"""Updates the row of a thread from the entries of its journal."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from treadle.protocol import notifications as n
from treadle.protocol.item import ItemCompletedNotification, UserMessageThreadItem
from treadle.store.index.index import Row
from treadle.store.journal import Entry, Event
from treadle.store.records import (
    InputQueued,
    MetadataChanged,
    Named,
    ReadStateChanged,
    SettingsChanged,
    TurnContext,
)
from treadle.store.rollout.replay import preview, preview_of
from treadle.store.stored_thread import MAX_PREVIEW_CHARACTERS, ThreadMeta

_TURN_STARTED: Final = n.TURN_STARTED.method
_TURN_COMPLETED: Final = n.TURN_COMPLETED.method
_ITEM_COMPLETED: Final = n.ITEM_COMPLETED.method


def followed(row: Row, entry: Entry) -> Row:
    """Return the row after an entry; the same object if nothing changes."""
    match entry:
        case Event():
            return _after_event(row, entry)
        case InputQueued(content=content):
            # The input is acknowledged, so lists show it whether or not its turn succeeds.
            return _with_words(row, preview_of(content)) if content else row
        case TurnContext():
            return _with_settings(row, entry)
        case SettingsChanged(settings=settings):
            return _with_settings(row, settings)
        case Named(name=name):
            return changed_row(row, name=name)
        case MetadataChanged(git_info=git_info):
            return changed_row(row, git_info=git_info)
        case ReadStateChanged(read_state=read_state):
            return changed_row(row, read_state=read_state)
        case _:
            return row


def _after_event(row: Row, event: Event) -> Row:
    if event.method == _ITEM_COMPLETED and not row.has_message:
        return _with_message(row, event)
    if event.method == _TURN_STARTED:
        meta = _timed(row.meta, event.at_ms, recency_ms=event.at_ms)
        return replace(row, meta=meta, updated_ms=event.at_ms, recency_ms=event.at_ms)
    if event.method == _TURN_COMPLETED:
        meta = _timed(row.meta, event.at_ms)
        return replace(row, meta=meta, updated_ms=event.at_ms)
    return row


def changed_row(row: Row, **changes: object) -> Row:
    """Return a row with new metadata."""
    return replace(row, meta=msgspec.structs.replace(row.meta, **changes))


def _timed(meta: ThreadMeta, updated_ms: int, recency_ms: int | None = None) -> ThreadMeta:
    recency_at = meta.recency_at if recency_ms is None else recency_ms // 1000
    return msgspec.structs.replace(meta, updated_at=updated_ms // 1000, recency_at=recency_at)


def _with_message(row: Row, event: Event) -> Row:
    params = event.params
    if not isinstance(params, ItemCompletedNotification):
        return row
    if not isinstance(params.item, UserMessageThreadItem):
        return row
    return _with_words(row, preview(params.item))


def _with_words(row: Row, words: str) -> Row:
    if row.has_message:
        return row
    preview_text = words[:MAX_PREVIEW_CHARACTERS]
    return replace(changed_row(row, preview=preview_text), has_message=True)


def _with_settings(row: Row, context: TurnContext) -> Row:
    meta = row.meta
    now = (context.model, context.provider, context.effort, context.cwd)
    if (meta.model, meta.model_provider, meta.reasoning_effort, meta.cwd) == now:
        return row
    return changed_row(
        row,
        model=context.model,
        model_provider=context.provider,
        reasoning_effort=context.effort,
        cwd=context.cwd,
    )
