"""Paged history of a thread: turns, items, timeline, search."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import (
    Int64,
    Params,
    SortDirection,
    UInt32,
    UInt64,
    Value,
    experimental,
)
from treadle.protocol.error import TurnError
from treadle.protocol.item import ThreadItem
from treadle.protocol.realtime import ThreadRealtimeItem
from treadle.protocol.source import ThreadSourceKind
from treadle.protocol.thread import Thread
from treadle.protocol.turn import Turn, TurnItemsView, TurnStatus


class RolloutCompressResponse(Value, frozen=True):
    """Compression of stored threads was triggered; there may be nothing to compress."""


@experimental("output_deferred")
class ThreadItemEntry(Value, frozen=True):
    """A stored item with its turn and, where recorded, its times."""

    item: ThreadItem
    turn_id: str
    completed_at_ms: Int64 | None = None
    # The output was left out; `thread/items/read` returns the whole item.
    output_deferred: bool | UnsetType = UNSET
    started_at_ms: Int64 | None = None


@experimental("command_execution", "mcp_tool_call")
class ThreadItemOutputDeferral(Params, frozen=True):
    """Which outputs to leave out: of successful commands, and texts of successful MCP calls."""

    command_execution: bool = False
    mcp_tool_call: bool = False


class ItemThreadItemsListAnchor(Value, tag="item", frozen=True):
    """Start right after a given item, or right before it when paging backwards."""

    item_id: str


ThreadItemsListAnchor = ItemThreadItemsListAnchor

ThreadItemsListCursor = str | ThreadItemsListAnchor
"""A cursor from an earlier page, or an item to start from."""


class ThreadItemsListParams(Params, frozen=True):
    """Page through the items of a thread, or of one of its turns."""

    thread_id: str
    cursor: ThreadItemsListCursor | None = None
    # Only with `turn_id`.
    defer_output: ThreadItemOutputDeferral | None = None
    limit: UInt32 | None = None
    sort_direction: SortDirection | None = None
    turn_id: str | None = None


class ThreadItemsListResponse(Value, frozen=True):
    """One page of items, with cursors in both directions."""

    data: list[ThreadItemEntry]
    backwards_cursor: str | None = None
    next_cursor: str | None = None


class ThreadItemsReadParams(Params, frozen=True):
    """Read up to 100 items of a turn by their ids."""

    item_ids: list[str]
    thread_id: str
    turn_id: str


class ThreadItemsReadResponse(Value, frozen=True):
    """The items found, in stored order."""

    data: list[ThreadItemEntry]


class ThreadPredictionRequestParams(Params, frozen=True):
    """Request a prediction of what follows a turn."""

    source_turn_id: str
    thread_id: str


class ThreadPredictionRequestResponse(Value, frozen=True):
    """The prediction is in progress; a notification delivers it."""


class CompletedThreadPredictionResult(Value, tag="completed", frozen=True):
    """A prediction was made; without text, nothing could be predicted."""

    text: str | None = None


class FailedThreadPredictionResult(Value, tag="failed", frozen=True):
    """The prediction failed."""


ThreadPredictionResult = CompletedThreadPredictionResult | FailedThreadPredictionResult


class ThreadPredictionUpdatedNotification(Value, frozen=True):
    """The requested prediction for a turn."""

    result: ThreadPredictionResult
    source_turn_id: str
    thread_id: str


class ThreadSearchTextRange(Value, frozen=True):
    """The position of a match in its snippet, end exclusive, in UTF-16 code units."""

    end: UInt32
    start: UInt32


class ThreadSearchOccurrence(Value, frozen=True):
    """One match in a message, with its context and a cursor to its turn."""

    item_id: str
    snippet: str
    snippet_match_range: ThreadSearchTextRange
    turn_cursor: str
    turn_id: str


class ThreadSearchOccurrencesParams(Params, frozen=True):
    """Search the visible messages of one thread for a phrase, ignoring case."""

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
    """Search for threads by the text of their conversation."""

    search_term: str
    archived: bool | None = None
    current_account_only: bool = False
    cursor: str | None = None
    include_attached_threads: bool = False
    limit: UInt32 | None = None
    sort_direction: SortDirection | None = None
    sort_key: ThreadSearchSortKey | None = None
    source_kinds: list[ThreadSourceKind] | None = None


class ThreadSearchResult(Value, frozen=True):
    """A matching thread, and the text that matched."""

    snippet: str
    thread: Thread


class ThreadSearchResponse(Value, frozen=True):
    """One page of matching threads, with cursors in both directions."""

    data: list[ThreadSearchResult]
    backwards_cursor: str | None = None
    next_cursor: str | None = None


class ItemThreadTimelineEntry(Value, tag="item", frozen=True):
    """An item of a turn, at its position in the timeline."""

    item: ThreadItem
    position: UInt64
    turn_id: str


class RealtimeThreadTimelineEntry(Value, tag="realtime", frozen=True):
    """An item of a realtime session, at its position in the timeline."""

    item: ThreadRealtimeItem
    position: UInt64


class TurnStartedThreadTimelineEntry(Value, tag="turnStarted", frozen=True):
    """The start of a turn."""

    position: UInt64
    turn_id: str
    started_at: Int64 | None = None


class TurnCompletedThreadTimelineEntry(Value, tag="turnCompleted", frozen=True):
    """The end of a turn, and its status."""

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
    """Page through the interleaved turns and realtime sessions of a thread."""

    thread_id: str
    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadTimelineListResponse(Value, frozen=True):
    """One page of the timeline, and the realtime session that was open at its start."""

    data: list[ThreadTimelineEntry]
    active_realtime_session_at_page_start: str | None = None
    next_cursor: str | None = None


class ThreadTurnsListParams(Params, frozen=True):
    """Page through the turns of a thread, newest first by default."""

    thread_id: str
    cursor: str | None = None
    items_view: TurnItemsView | None = None
    limit: UInt32 | None = None
    sort_direction: SortDirection | None = None


class ThreadTurnsListResponse(Value, frozen=True):
    """One page of turns, with cursors in both directions."""

    data: list[Turn]
    backwards_cursor: str | None = None
    next_cursor: str | None = None
