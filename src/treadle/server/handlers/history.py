"""Reading a thread's history in pages, and searching it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

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
    ThreadItemOutputDeferral,
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
from treadle.protocol.item import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    McpToolCallThreadItem,
    ThreadItem,
    UserMessageThreadItem,
    times_of,
)
from treadle.protocol.mcp import McpToolCallResult
from treadle.protocol.turn import Turn, TurnItemsView, TurnsPage
from treadle.server.errors import unknown_thread
from treadle.server.paging.keyset import cursor_at, page_of
from treadle.server.paging.offset import page_of_many
from treadle.server.query_limits import check_alternatives, check_term
from treadle.server.session import ClientSession
from treadle.server.thread_creators import required_creator
from treadle.store.index.case_folding import places_of
from treadle.store.journal import BadCursor, ThreadNotFound
from treadle.store.stored_thread import StoredThread, ThreadQuery
from treadle.support.concurrency.threads import give_way
from treadle.support.text.json_text import encode_json

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

R = TypeVar("R")

MAX_ITEMS_READ: Final = 100
MAX_OCCURRENCES: Final = 1000
# Up to this many turns, an answer is built at once, without the cost of a worker.
SMALL: Final = 20
# Characters of a message shown on either side of a match.
SNIPPET_CHARACTERS: Final = 80


@router.request(THREAD_TURNS_LIST)
async def thread_turns_list(
    ctx: Context[ClientSession], params: ThreadTurnsListParams
) -> ThreadTurnsListResponse:
    """List turns, newest first by default."""

    def make(stored: StoredThread) -> ThreadTurnsListResponse:
        turns = turns_page(
            stored.turns,
            cursor=params.cursor,
            limit=params.limit,
            view=params.items_view,
            direction=params.sort_direction,
        )
        return ThreadTurnsListResponse(turns.data, turns.backwards_cursor, turns.next_cursor)

    return await _build_answer(ctx, params.thread_id, make)


def turns_page(
    turns: Sequence[Turn],
    *,
    cursor: str | None = None,
    limit: int | None = None,
    view: TurnItemsView | None = None,
    direction: SortDirection | None = None,
) -> TurnsPage:
    """Return one page of turns, newest first by default."""
    ordered = turns if direction == "asc" else turns[::-1]
    page = page_of(
        ordered,
        lambda turn: turn.id,
        cursor=cursor,
        limit=limit,
        measure=lambda turn: len(encode_json(viewed(turn, view or "summary"))),
    )
    return TurnsPage(
        [viewed(turn, view or "summary") for turn in page.data],
        page.backwards_cursor,
        page.next_cursor,
    )


@router.request(THREAD_ITEMS_LIST)
async def thread_items_list(
    ctx: Context[ClientSession], params: ThreadItemsListParams
) -> ThreadItemsListResponse:
    """List items, oldest first by default."""
    if params.defer_output is not None and params.turn_id is None:
        raise InvalidInput("deferOutput", "deferOutput requires turnId")
    return await _build_answer(ctx, params.thread_id, partial(_items_page, params))


def _items_page(params: ThreadItemsListParams, stored: StoredThread) -> ThreadItemsListResponse:
    turns = [turn for turn in stored.turns if params.turn_id in (None, turn.id)]
    entries = _entries(turns)
    if params.defer_output is not None:
        entries = [deferred(entry, params.defer_output) for entry in entries]
    if params.sort_direction == "desc":
        entries.reverse()
    cursor = params.cursor
    if cursor is not None and not isinstance(cursor, str):
        anchor = next((entry for entry in entries if entry.item.id == cursor.item_id), None)
        if anchor is None:
            raise BadCursor(cursor.item_id)
        cursor = _item_key(anchor)
    page = page_of(
        entries,
        _item_key,
        cursor=cursor,
        limit=params.limit,
        measure=lambda entry: len(encode_json(entry)),
    )
    return ThreadItemsListResponse(page.data, page.backwards_cursor, page.next_cursor)


@router.request(THREAD_ITEMS_READ)
async def thread_items_read(
    ctx: Context[ClientSession], params: ThreadItemsReadParams
) -> ThreadItemsReadResponse:
    """Return some items of a turn."""
    if not 1 <= len(params.item_ids) <= MAX_ITEMS_READ:
        raise InvalidInput("itemIds", f"itemIds must contain 1 to {MAX_ITEMS_READ} IDs")
    item_ids = set(params.item_ids)

    def make(stored: StoredThread) -> ThreadItemsReadResponse:
        turns = [turn for turn in stored.turns if turn.id == params.turn_id]
        entries = _entries(turns)
        return ThreadItemsReadResponse([each for each in entries if each.item.id in item_ids])

    return await _build_answer(ctx, params.thread_id, make)


@router.request(THREAD_SEARCH)
async def thread_search(
    ctx: Context[ClientSession], params: ThreadSearchParams
) -> ThreadSearchResponse:
    """Find threads with messages that contain a text."""
    threads = ctx.session.server.threads
    query = ThreadQuery(
        cursor=params.cursor,
        limit=params.limit,
        sort_key=params.sort_key or "created_at",
        sort_direction=params.sort_direction or "desc",
        archived=bool(params.archived),
        source_kinds=params.source_kinds,
        mentions=_term(params.search_term),
        includes_attached=params.include_attached_threads,
        creator=required_creator(
            ctx.session.server.credentials, current_account_only=params.current_account_only
        ),
    )
    check_alternatives(params.source_kinds, "sourceKinds")
    matches = await threads.store.run(partial(threads.store.search, query))
    return ThreadSearchResponse(
        data=[
            ThreadSearchResult(snippet, threads.snapshot(meta))
            for meta, snippet in zip(matches.page.data, matches.snippets, strict=True)
        ],
        backwards_cursor=matches.page.backwards_cursor,
        next_cursor=matches.page.next_cursor,
    )


@router.request(THREAD_SEARCH_OCCURRENCES)
async def thread_search_occurrences(
    ctx: Context[ClientSession], params: ThreadSearchOccurrencesParams
) -> ThreadSearchOccurrencesResponse:
    """Find the occurrences of a text in a thread."""
    term = _term(params.search_term)
    limit = min(params.limit or MAX_ITEMS_READ, MAX_OCCURRENCES)

    def make(stored: StoredThread) -> ThreadSearchOccurrencesResponse:
        matches = _places(stored.turns, term)
        places, next_cursor = page_of_many(matches, params.cursor, limit, of="matches")
        data = [_occurrence(*place, len(term)) for place in places]
        return ThreadSearchOccurrencesResponse(data, next_cursor)

    stored = await _stored(ctx, params.thread_id)
    return await ctx.session.server.threads.store.run(partial(make, stored))


def deferred(entry: ThreadItemEntry, which: ThreadItemOutputDeferral) -> ThreadItemEntry:
    """Leave out the output of a successful call, if requested; `thread/items/read` returns it."""
    item = entry.item
    if isinstance(item, CommandExecutionThreadItem):
        if not (which.command_execution and item.status == "completed" and item.aggregated_output):
            return entry
        bare: ThreadItem = msgspec.structs.replace(item, aggregated_output=None)
    elif isinstance(item, McpToolCallThreadItem):
        if not (which.mcp_tool_call and item.status == "completed" and _is_plain(item.result)):
            return entry
        bare = msgspec.structs.replace(item, result=None)
    else:
        return entry
    return msgspec.structs.replace(entry, item=bare, output_deferred=True)


def _is_plain(result: McpToolCallResult | None) -> bool:
    """Whether a result consists of texts, of which one is not empty."""
    if result is None or result.structured_content is not None:
        return False
    parts = [part if isinstance(part, dict) else {} for part in result.content]
    return all(part.get("type") == "text" for part in parts) and any(
        part.get("text") for part in parts
    )


def viewed(turn: Turn, view: TurnItemsView) -> Turn:
    """Return a turn with the items that a view includes."""
    if view == "full":
        return turn
    items = turn.items if view == "summary" else []
    messages = [item for item in items if isinstance(item, UserMessageThreadItem)][:1]
    answers = [item for item in items if isinstance(item, AgentMessageThreadItem)][-1:]
    return msgspec.structs.replace(turn, items=[*messages, *answers], items_view=view)


def backwards_cursors(turns: Sequence[Turn]) -> tuple[str | None, str | None]:
    """Return cursors to read the turns and the items backwards from the last one."""
    entries = _entries(turns)
    return (
        cursor_at(turns[-1].id) if turns else None,
        cursor_at(_item_key(entries[-1])) if entries else None,
    )


def _entries(turns: Sequence[Turn]) -> list[ThreadItemEntry]:
    return [
        ThreadItemEntry(item, turn.id, completed_at_ms=done, started_at_ms=began)
        for turn in turns
        for item in turn.items
        for began, done in (times_of(item),)
    ]


def _item_key(entry: ThreadItemEntry) -> str:
    # Providers choose item ids freely: an item is unique only together with its turn.
    return f"{entry.turn_id}/{entry.item.id}"


async def _build_answer(
    ctx: Context[ClientSession], thread_id: str, make: Callable[[StoredThread], R]
) -> R:
    """Read a thread and build an answer from it, both off the event loop."""
    threads = ctx.session.server.threads
    stored = await _stored(ctx, thread_id)
    if len(stored.turns) <= SMALL:
        return make(stored)
    return await threads.store.run(partial(make, stored))


async def _stored(ctx: Context[ClientSession], thread_id: str) -> StoredThread:
    try:
        return await ctx.session.server.threads.stored.read_current(thread_id)
    except ThreadNotFound as error:
        raise unknown_thread("thread not loaded", thread_id) from error


def _term(text: str) -> str:
    if not text.strip():
        raise InvalidInput("searchTerm", "searchTerm must not be empty")
    return check_term(text)


def _places(turns: Sequence[Turn], term: str) -> Iterator[tuple[Turn, ThreadItem, str, int]]:
    """Yield each occurrence of a term: the turn, the item, its text and the offset."""
    for turn in turns:
        for item in turn.items:
            text = _visible(item)
            for place in places_of(term, text):
                yield turn, item, text, place
        give_way()


def _occurrence(
    turn: Turn, item: ThreadItem, text: str, place: int, length: int
) -> ThreadSearchOccurrence:
    start, end = max(0, place - SNIPPET_CHARACTERS), place + length
    lead = _utf16(text[start:place])
    where = ThreadSearchTextRange(end=lead + _utf16(text[place:end]), start=lead)
    snippet = text[start : end + SNIPPET_CHARACTERS]
    return ThreadSearchOccurrence(item.id, snippet, where, cursor_at(turn.id), turn.id)


def _visible(item: ThreadItem) -> str:
    if isinstance(item, UserMessageThreadItem):
        return "\n".join(part.text for part in item.content if isinstance(part, TextUserInput))
    return item.text if isinstance(item, AgentMessageThreadItem) else ""


def _utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
