"""Builds the entries that make a new thread a copy of a stored one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from treadle.protocol import notifications as n
from treadle.protocol.item import ItemCompletedNotification, times_of
from treadle.protocol.turn import Turn, TurnCompletedNotification, TurnStartedNotification
from treadle.store.journal import Entry, Event
from treadle.store.records import Compacted, HistoryItem, ModelItem, UsageRecord
from treadle.store.stored_thread import StoredThread


def entries_of(source: StoredThread, thread_id: str) -> list[Entry]:
    """Return a stored thread as entries of another one, without server requests and goals."""
    return list(_Copying(thread_id).entries(source))


class _Copying:
    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._seq = 0
        self._view: list[ModelItem] = []
        self._length = 0

    def entries(self, source: StoredThread) -> Iterator[Entry]:
        if source.views:
            self._view = source.views[0][0]
        for turn, (view, length) in zip(source.turns, source.views, strict=True):
            yield from self._advance(view, length)
            yield from self._turn(turn)
        yield from self._advance(source.history, len(source.history))
        if source.settings is not None:
            yield source.settings
        if source.usage is not None:
            yield from self._usage(source)

    def _advance(self, view: list[ModelItem], length: int) -> Iterator[Entry]:
        """Bring the copy's model context to the state of the source."""
        if view is self._view:
            yield from (HistoryItem(item) for item in view[self._length : length])
        else:
            # A compaction or a rollback lies in between: copy its result.
            yield Compacted("", view[:length])
        self._view, self._length = view, length

    def _turn(self, turn: Turn) -> Iterator[Entry]:
        at_ms = (turn.started_at or 0) * 1000
        begun = msgspec.structs.replace(
            turn, items=[], items_view="notLoaded", status="inProgress", error=None,
            completed_at=None, duration_ms=None,
        )  # fmt: skip
        yield self._event(
            n.TURN_STARTED.method, at_ms, TurnStartedNotification(self._thread_id, begun)
        )
        for item in turn.items:
            done_ms = times_of(item)[1] or at_ms
            done = ItemCompletedNotification(done_ms, item, self._thread_id, turn.id)
            yield self._event(n.ITEM_COMPLETED.method, at_ms, done)
        ended = msgspec.structs.replace(turn, items=[], items_view="notLoaded")
        end_ms = (turn.completed_at or turn.started_at or 0) * 1000
        params = TurnCompletedNotification(self._thread_id, ended)
        yield self._event(n.TURN_COMPLETED.method, end_ms, params)

    def _usage(self, source: StoredThread) -> Iterator[Entry]:
        usage = source.usage
        if usage is None:
            return
        turn_id = source.turns[-1].id if source.turns else ""
        ids = sorted(source.response_ids) or [""]
        # Record every id, so that no response of the source is counted again.
        for response_id in ids:
            yield UsageRecord(
                turn_id, response_id, usage.last, usage.total, usage.model_context_window
            )

    def _event(self, method: str, at_ms: int, params: Struct) -> Event:
        self._seq += 1
        return Event(self._seq, at_ms, method, params)
