"""The history of a thread as one sequence: starts of turns, items and ends of turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.protocol.client_requests import CLIENT_REQUESTS, THREAD_TIMELINE_LIST
from treadle.protocol.history import (
    ItemThreadTimelineEntry,
    ThreadTimelineEntry,
    ThreadTimelineListParams,
    ThreadTimelineListResponse,
    TurnCompletedThreadTimelineEntry,
    TurnStartedThreadTimelineEntry,
)
from treadle.protocol.turn import Turn
from treadle.server.errors import unknown_thread
from treadle.server.paging.keyset import page_of
from treadle.server.session import ClientSession
from treadle.store.journal import ThreadNotFound
from treadle.store.stored_thread import StoredThread
from treadle.support.text.json_text import encode_json

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(THREAD_TIMELINE_LIST)
async def thread_timeline_list(
    ctx: Context[ClientSession], params: ThreadTimelineListParams
) -> ThreadTimelineListResponse:
    """List the latest entries in order; the next page has those before them."""
    threads = ctx.session.server.threads
    try:
        stored = await threads.stored.read_current(params.thread_id)
    except ThreadNotFound as error:
        raise unknown_thread("thread not loaded", params.thread_id) from error
    return await threads.store.run(partial(_page, params, stored))


def _page(params: ThreadTimelineListParams, stored: StoredThread) -> ThreadTimelineListResponse:
    entries = list(_entries(stored.turns))[::-1]
    page = page_of(
        entries,
        lambda entry: str(entry.position),
        cursor=params.cursor,
        limit=params.limit,
        measure=lambda entry: len(encode_json(entry)),
    )
    return ThreadTimelineListResponse(page.data[::-1], next_cursor=page.next_cursor)


def _entries(turns: Sequence[Turn]) -> Iterator[ThreadTimelineEntry]:
    position = 0
    for turn in turns:
        position += 1
        yield TurnStartedThreadTimelineEntry(position, turn.id, turn.started_at)
        for item in turn.items:
            position += 1
            yield ItemThreadTimelineEntry(item, position, turn.id)
        if turn.status != "inProgress":
            position += 1
            yield TurnCompletedThreadTimelineEntry(
                position,
                turn.status,
                turn.id,
                completed_at=turn.completed_at,
                duration_ms=turn.duration_ms,
                error=turn.error,
                started_at=turn.started_at,
            )
