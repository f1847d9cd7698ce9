"""Removal of turns: `thread/rollback` and `thread/revert`."""

from __future__ import annotations

from functools import partial

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.protocol.client_requests import CLIENT_REQUESTS, THREAD_REVERT, THREAD_ROLLBACK
from treadle.protocol.thread_manage import (
    ThreadRevertParams,
    ThreadRevertResponse,
    ThreadRollbackParams,
    ThreadRollbackResponse,
)
from treadle.server.handlers.history import backwards_cursors
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(THREAD_ROLLBACK)
async def thread_rollback(
    ctx: Context[ClientSession], params: ThreadRollbackParams
) -> ThreadRollbackResponse:
    """Remove the last turns: the older form of `thread/revert`, for clients of 0.118."""
    threads = ctx.session.server.threads
    thread = threads.get(params.thread_id)
    if params.num_turns < 1:
        raise InvalidInput("numTurns", "numTurns must be >= 1")
    turns = await threads.stored.roll_back(thread, num_turns=params.num_turns)
    ctx.after_reply(partial(thread.usage.publish, thread.id, turns[-1].id if turns else ""))
    return ThreadRollbackResponse(threads.placed(thread.snapshot(turns)))


@router.request(THREAD_REVERT)
async def thread_revert(
    ctx: Context[ClientSession], params: ThreadRevertParams
) -> ThreadRevertResponse:
    """Remove a turn and all later ones."""
    threads = ctx.session.server.threads
    thread = threads.get(params.thread_id)
    turns = await threads.stored.roll_back(thread, before_turn_id=params.before_turn_id)
    turns_cursor, items_cursor = backwards_cursors(turns)
    snapshot = threads.placed(thread.snapshot())
    return ThreadRevertResponse(snapshot, items_cursor, turns_cursor)
