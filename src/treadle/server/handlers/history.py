"""Reading a thread's history in pages, and searching it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.protocol.base import SortDirection
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_ITEMS_LIST,
    THREAD_ITEMS_READ,
    THREAD_SEARCH,
    THREAD_SEARCH_OCCURRENCES,
    THREAD_TURNS_LIST,
)
from treadle.protocol.history import (
    ThreadItemEntry,
    ThreadItemsListParams,
    ThreadItemsListResponse,
    ThreadItemsReadParams,
    ThreadItemsReadResponse,
    ThreadSearchOccurrence,
    ThreadSearchOccurrencesParams,
    ThreadSearchOccurrencesResponse,
    ThreadSearchParams,
    ThreadSearchResponse,
    ThreadSearchResult,
    ThreadSearchTextRange,
    ThreadTurnsListParams,
    ThreadTurnsListResponse,
)
from treadle.protocol.input import TextUserInput
from treadle.protocol.item import AgentMessageThreadItem, ThreadItem, UserMessageThreadItem
from treadle.protocol.turn import Turn, TurnItemsView, TurnsPage
from treadle.server.errors import unknown_thread
from treadle.server.keyset import cursor_at, page_of
from treadle.server.offset_page import page
from treadle.server.session import ClientSession
from treadle.store.journal import BadCursor, ThreadNotFound
from treadle.store.thread import ItemTimes, StoredThread, ThreadQuery

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_ITEMS_READ: Final = 100
# How much of a message is shown on either side of what was found in it.
SNIPPET_CHARACTERS: Final = 80


@router.request(THREAD_TURNS_LIST)
def thread_turns_list(
    ctx: Context[ClientSession], params: ThreadTurnsListParams
) -> ThreadTurnsListResponse:
    """List turns, the newest first unless asked otherwise."""
    turns = turns_page(
        _turns(ctx, params.thread_id),
        cursor=params.cursor,
        limit=params.limit,
        view=params.items_view,
        direction=params.sort_direction,
    )
    return ThreadTurnsListResponse(turns.data, turns.backwards_cursor, turns.next_cursor)


def turns_page(
    turns: Sequence[Turn],
    *,
    cursor: str | None = None,
    limit: int | None = None,
    view: TurnItemsView | None = None,
    direction: SortDirection | None = None,
) -> TurnsPage:
    """One page of turns, the newest first unless asked otherwise."""
    ordered = turns if direction == "asc" else turns[::-1]
    found = page_of(ordered, lambda turn: turn.id, cursor=cursor, limit=limit)
    return TurnsPage(
        [viewed(turn, view or "summary") for turn in found.data],
        found.backwards_cursor,
        found.next_cursor,
    )


@router.request(THREAD_ITEMS_LIST)
def thread_items_list(
    ctx: Context[ClientSession], params: ThreadItemsListParams
) -> ThreadItemsListResponse:
    """List items, the oldest first unless asked otherwise."""
    stored = _stored(ctx, params.thread_id)
    turns = [turn for turn in stored.turns if params.turn_id in (None, turn.id)]
    entries = _entries(turns, stored.item_times)
    if params.sort_direction == "desc":
        entries.reverse()
    cursor = params.cursor
    if cursor is not None and not isinstance(cursor, str):
        anchor = next((entry for entry in entries if entry.item.id == cursor.item_id), None)
        if anchor is None:
            raise BadCursor(cursor.item_id)
        cursor = _item_key(anchor)
    found = page_of(entries, _item_key, cursor=cursor, limit=params.limit)
    return ThreadItemsListResponse(found.data, found.backwards_cursor, found.next_cursor)


@router.request(THREAD_ITEMS_READ)
def thread_items_read(
    ctx: Context[ClientSession], params: ThreadItemsReadParams
) -> ThreadItemsReadResponse:
    """Give some items of a turn."""
    if not 1 <= len(params.item_ids) <= MAX_ITEMS_READ:
        raise InvalidInput("itemIds", f"itemIds must contain 1 to {MAX_ITEMS_READ} IDs")
    stored = _stored(ctx, params.thread_id)
    turns = [turn for turn in stored.turns if turn.id == params.turn_id]
    entries = _entries(turns, stored.item_times)
    return ThreadItemsReadResponse([each for each in entries if each.item.id in params.item_ids])


@router.request(THREAD_SEARCH)
def thread_search(ctx: Context[ClientSession], params: ThreadSearchParams) -> ThreadSearchResponse:
    """Find threads in which something was said."""
    threads = ctx.session.server.threads
    query = ThreadQuery(
        cursor=params.cursor,
        limit=params.limit,
        sort_key=params.sort_key or "created_at",
        sort_direction=params.sort_direction or "desc",
        archived=bool(params.archived),
        source_kinds=params.source_kinds,
        mentions=_term(params.search_term),
    )
    found = threads.store.search(query)
    return ThreadSearchResponse(
        data=[
            ThreadSearchResult(snippet, threads.snapshot(meta))
            for meta, snippet in zip(found.page.data, found.snippets, strict=True)
        ],
        backwards_cursor=found.page.backwards_cursor,
        next_cursor=found.page.next_cursor,
    )


@router.request(THREAD_SEARCH_OCCURRENCES)
def thread_search_occurrences(
    ctx: Context[ClientSession], params: ThreadSearchOccurrencesParams
) -> ThreadSearchOccurrencesResponse:
    """Find where something was said in a thread."""
    term = re.compile(re.escape(_term(params.search_term)), re.IGNORECASE)
    found = [
        occurrence
        for turn in _turns(ctx, params.thread_id)
        for item in turn.items
        for occurrence in _occurrences(turn, item, term)
    ]
    data, next_cursor = page(found, params.cursor, params.limit or MAX_ITEMS_READ, of="matches")
    return ThreadSearchOccurrencesResponse(data, next_cursor)


def viewed(turn: Turn, view: TurnItemsView) -> Turn:
    """A turn with as many of its items as a view shows."""
    if view == "full":
        return turn
    items = turn.items if view == "summary" else []
    messages = [item for item in items if isinstance(item, UserMessageThreadItem)][:1]
    answers = [item for item in items if isinstance(item, AgentMessageThreadItem)][-1:]
    return msgspec.structs.replace(turn, items=[*messages, *answers], items_view=view)


def backwards_cursors(turns: Sequence[Turn]) -> tuple[str | None, str | None]:
    """Cursors to read the turns, and the items, backwards from the last one there is."""
    entries = _entries(turns, {})
    return (
        cursor_at(turns[-1].id) if turns else None,
        cursor_at(_item_key(entries[-1])) if entries else None,
    )


def _entries(turns: Sequence[Turn], times: ItemTimes) -> list[ThreadItemEntry]:
    return [
        ThreadItemEntry(item, turn.id, done, began)
        for turn in turns
        for item in turn.items
        for began, done in (times.get(turn.id, {}).get(item.id, (None, None)),)
    ]


def _item_key(entry: ThreadItemEntry) -> str:
    # Providers name items as they like: only together with its turn is an item unique.
    return f"{entry.turn_id}/{entry.item.id}"


def _turns(ctx: Context[ClientSession], thread_id: str) -> list[Turn]:
    return _stored(ctx, thread_id).turns


def _stored(ctx: Context[ClientSession], thread_id: str) -> StoredThread:
    threads = ctx.session.server.threads
    try:
        return threads.as_it_stands(thread_id)
    except ThreadNotFound as error:
        raise unknown_thread("thread not loaded", thread_id) from error


def _term(text: str) -> str:
    if not text.strip():
        raise InvalidInput("searchTerm", "searchTerm must not be empty")
    return text


def _occurrences(
    turn: Turn, item: ThreadItem, term: re.Pattern[str]
) -> Iterator[ThreadSearchOccurrence]:
    text = _visible(item)
    for match in term.finditer(text):
        start = max(0, match.start() - SNIPPET_CHARACTERS)
        lead = _utf16(text[start : match.start()])
        where = ThreadSearchTextRange(end=lead + _utf16(match[0]), start=lead)
        snippet = text[start : match.end() + SNIPPET_CHARACTERS]
        yield ThreadSearchOccurrence(item.id, snippet, where, cursor_at(turn.id), turn.id)


def _visible(item: ThreadItem) -> str:
    if isinstance(item, UserMessageThreadItem):
        return "\n".join(part.text for part in item.content if isinstance(part, TextUserInput))
    return item.text if isinstance(item, AgentMessageThreadItem) else ""


def _utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
