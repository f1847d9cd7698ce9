"""Reading a thread's history in pages."""

from __future__ import annotations

import msgspec

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_ITEMS_LIST,
    THREAD_TURNS_LIST,
)
from treadle.protocol.history import (
    ThreadItemEntry,
    ThreadItemsListParams,
    ThreadItemsListResponse,
    ThreadTurnsListParams,
    ThreadTurnsListResponse,
)
from treadle.protocol.item import AgentMessageThreadItem, UserMessageThreadItem
from treadle.protocol.turn import Turn, TurnItemsView
from treadle.server.keyset import page_of
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(THREAD_TURNS_LIST)
def thread_turns_list(
    ctx: Context[ClientSession], params: ThreadTurnsListParams
) -> ThreadTurnsListResponse:
    """List turns, the newest first unless asked otherwise."""
    turns = _turns(ctx, params.thread_id)
    if params.sort_direction != "asc":
        turns.reverse()
    page = page_of(turns, lambda turn: turn.id, after=params.cursor, limit=params.limit)
    view = params.items_view or "summary"
    return ThreadTurnsListResponse(
        data=[viewed(turn, view) for turn in page.data],
        backwards_cursor=page.backwards_cursor,
        next_cursor=page.next_cursor,
    )


@router.request(THREAD_ITEMS_LIST)
def thread_items_list(
    ctx: Context[ClientSession], params: ThreadItemsListParams
) -> ThreadItemsListResponse:
    """List items, the oldest first unless asked otherwise."""
    entries = [
        ThreadItemEntry(item=item, turn_id=turn.id)
        for turn in _turns(ctx, params.thread_id)
        if params.turn_id in (None, turn.id)
        for item in turn.items
    ]
    if params.sort_direction == "desc":
        entries.reverse()
    cursor = params.cursor
    after = cursor if isinstance(cursor, str) or cursor is None else cursor.item_id
    page = page_of(entries, lambda entry: entry.item.id, after=after, limit=params.limit)
    return ThreadItemsListResponse(
        data=page.data,
        backwards_cursor=page.backwards_cursor,
        next_cursor=page.next_cursor,
    )


def viewed(turn: Turn, view: TurnItemsView) -> Turn:
    """A turn with as many of its items as a view shows."""
    if view == "full":
        return turn
    items = turn.items if view == "summary" else []
    messages = [item for item in items if isinstance(item, UserMessageThreadItem)][:1]
    answers = [item for item in items if isinstance(item, AgentMessageThreadItem)][-1:]
    return msgspec.structs.replace(turn, items=[*messages, *answers], items_view=view)


def _turns(ctx: Context[ClientSession], thread_id: str) -> list[Turn]:
    threads = ctx.session.server.threads
    loaded = threads.find(thread_id)
    return threads.turns(loaded) if loaded is not None else threads.store.read(thread_id).turns
