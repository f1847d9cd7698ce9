"""Paged history of a thread: turns, items, timeline, search."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, Params, SnakeValue, SortDirection, UInt32, UInt64, Value
from treadle.protocol.error import TurnError
from treadle.protocol.item import ThreadItem
from treadle.protocol.realtime import ThreadRealtimeItem
from treadle.protocol.source import ThreadSourceKind
from treadle.protocol.thread import Thread
from treadle.protocol.turn import Turn, TurnItemsView, TurnStatus


class RolloutCompressResponse(Value, frozen=True):
    """Compression of stored threads was set off; it may yet find nothing to do."""


class ThreadItemEntry(Value, frozen=True):
    """A stored item with its turn and, where recorded, its times."""

    item: ThreadItem
    turn_id: str
    completed_at_ms: Int64 | None = None
    started_at_ms: Int64 | None = None


class ItemThreadItemsListAnchor(Value, tag="item", frozen=True):
    """Start right after, or going backwards right before, a given item."""

    item_id: str


ThreadItemsListAnchor = ItemThreadItemsListAnchor

ThreadItemsListCursor = str | ThreadItemsListAnchor
"""A cursor from an earlier page, or an item to start from."""


class ThreadItemsListParams(Params, frozen=True):
    """Page through the items of a thread, or of one of its turns."""

    thread_id: str
    cursor: ThreadItemsListCursor | None = None
    limit: UInt32 | None = None
    sort_direction: SortDirection | None = None
    turn_id: str | None = None


class ThreadItemsListResponse(Value, frozen=True):
    """One page of items, with cursors to go on and to turn back."""

    data: list[ThreadItemEntry]
    backwards_cursor: str | None = None
    next_cursor: str | None = None


class ThreadItemsReadParams(Params, frozen=True):
    """Fetch up to 100 items of a turn by their ids."""

    item_ids: list[str]
    thread_id: str
    turn_id: str


class ThreadItemsReadResponse(Value, frozen=True):
    """The items found, in the order they are stored."""

    data: list[ThreadItemEntry]


class ThreadPredictionRequestParams(Params, frozen=True):
    """Ask for a guess at what will follow a turn."""

    source_turn_id: str
    thread_id: str


class ThreadPredictionRequestResponse(Value, frozen=True):
    """The guess is being made; a notification brings it."""


class CompletedThreadPredictionResult(Value, tag="completed", frozen=True):
    """A guess was made; no text means that nothing could be foreseen."""

    text: str | None = None


class FailedThreadPredictionResult(Value, tag="failed", frozen=True):
    """No guess could be made."""


ThreadPredictionResult = CompletedThreadPredictionResult | FailedThreadPredictionResult


class ThreadPredictionUpdatedNotification(Value, frozen=True):
    """The guess that was asked for after a turn."""

    result: ThreadPredictionResult
    source_turn_id: str
    thread_id: str


class ThreadSearchTextRange(Value, frozen=True):
    """Where a match lies in its snippet, end excluded; counted in UTF-16 code units."""

    end: UInt32
    start: UInt32


class ThreadSearchOccurrence(Value, frozen=True):
    """One match in a message, with the text around it and a cursor to its turn."""

    item_id: str
    snippet: str
    snippet_match_range: ThreadSearchTextRange
    turn_cursor: str
    turn_id: str


class ThreadSearchOccurrencesParams(Params, frozen=True):
    """Find a phrase, in any case, in the visible messages of one thread."""

    search_term: str
    thread_id: str
    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadSearchOccurrencesResponse(Value, frozen=True):
    """One page of matches, oldest message first."""

    data: list[ThreadSearchOccurrence]
    next_cursor: str | None = None


ThreadSearchSortKey = Literal["created_at", "updated_at", "recency_at"]


class ThreadSearchParams(Params, frozen=True):
    """Find threads whose conversation mentions something."""

    search_term: str
    archived: bool | None = None
    cursor: str | None = None
    limit: UInt32 | None = None
    sort_direction: SortDirection | None = None
    sort_key: ThreadSearchSortKey | None = None
    source_kinds: list[ThreadSourceKind] | None = None


class ThreadSearchResult(Value, frozen=True):
    """A thread that matched, and the text that made it match."""

    snippet: str
    thread: Thread


class ThreadSearchResponse(Value, frozen=True):
    """One page of matching threads, with cursors to go on and to turn back."""

    data: list[ThreadSearchResult]
    backwards_cursor: str | None = None
    next_cursor: str | None = None


class ItemThreadTimelineEntry(Value, tag="item", frozen=True):
    """An item of a turn, in its place among all that happened."""

    item: ThreadItem
    position: UInt64
    turn_id: str


class RealtimeThreadTimelineEntry(Value, tag="realtime", frozen=True):
    """Something from a realtime session, in its place among all that happened."""

    item: ThreadRealtimeItem
    position: UInt64


class TurnStartedThreadTimelineEntry(SnakeValue, tag="turnStarted", frozen=True):
    """The point at which a turn began."""

    position: UInt64
    turn_id: str
    started_at: Int64 | None = None


class TurnCompletedThreadTimelineEntry(SnakeValue, tag="turnCompleted", frozen=True):
    """The point at which a turn ended, and how."""

    position: UInt64
    status: TurnStatus
    turn_id: str
    completed_at: Int64 | None = None
    duration_ms: Int64 | None = None
    error: TurnError | None = None
    started_at: Int64 | None = None


ThreadTimelineEntry = (
    ItemThreadTimelineEntry
    | RealtimeThreadTimelineEntry
    | TurnStartedThreadTimelineEntry
    | TurnCompletedThreadTimelineEntry
)


class ThreadTimelineListParams(Params, frozen=True):
    """Page through turns and realtime sessions of a thread as they were interleaved."""

    thread_id: str
    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadTimelineListResponse(Value, frozen=True):
    """One page of the timeline, and the realtime session that was open as it begins."""

    data: list[ThreadTimelineEntry]
    active_realtime_session_at_page_start: str | None = None
    next_cursor: str | None = None


class ThreadTurnsListParams(Params, frozen=True):
    """Page through the turns of a thread, newest first unless told otherwise."""

    thread_id: str
    cursor: str | None = None
    items_view: TurnItemsView | None = None
    limit: UInt32 | None = None
    sort_direction: SortDirection | None = None


class ThreadTurnsListResponse(Value, frozen=True):
    """One page of turns, with cursors to go on and to turn back."""

    data: list[Turn]
    backwards_cursor: str | None = None
    next_cursor: str | None = None
