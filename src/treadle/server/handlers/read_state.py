"""How far the user has read a thread."""

from __future__ import annotations

from functools import partial

import msgspec

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.read_states import ReadStateConflict, changed_read_state
from treadle.jsonrpc.errors import InvalidRequest
from treadle.protocol import notifications as n
from treadle.protocol.client_requests import CLIENT_REQUESTS, THREAD_READ_STATE_UPDATE
from treadle.protocol.read_state import (
    ThreadReadState,
    ThreadReadStateChangedNotification,
    ThreadReadStateUpdateParams,
    ThreadReadStateUpdateResponse,
)
from treadle.server.errors import unknown_thread
from treadle.server.session import ClientSession
from treadle.store.journal import ThreadNotFound
from treadle.store.records import ReadStateChanged
from treadle.store.stored_thread import ThreadMeta

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(THREAD_READ_STATE_UPDATE)
async def thread_read_state_update(
    ctx: Context[ClientSession], params: ThreadReadStateUpdateParams
) -> ThreadReadStateUpdateResponse:
    """Mark a thread as read or unread, loaded or not."""
    try:
        return ThreadReadStateUpdateResponse(await _update(ctx, params))
    except ThreadNotFound as error:
        raise unknown_thread("thread not loaded", params.thread_id) from error
    except ReadStateConflict as error:
        current = msgspec.to_builtins(error.current)
        data = {"reason": "readStateConflict", "readState": current}
        raise InvalidRequest(str(error), kind="readStateConflict", **data) from error


async def _update(
    ctx: Context[ClientSession], params: ThreadReadStateUpdateParams
) -> ThreadReadState:
    threads = ctx.session.server.threads
    changed = partial(
        changed_read_state, operation=params.operation, expected=params.expected_revision
    )

    def record(meta: ThreadMeta) -> ReadStateChanged:
        return ReadStateChanged(changed(meta))

    async with threads.opening(params.thread_id):
        loaded = threads.find(params.thread_id)
        if loaded is None:
            # No client is subscribed.
            update = partial(threads.store.update, params.thread_id, record)
            stored = (await threads.store.run(update)).read_state
            assert stored is not None  # noqa: S101  the record has just been stored
            return stored
        after = changed(loaded.meta)
        loaded.log.store(ReadStateChanged(after))
        loaded.state.update_meta(read_state=after)
    notification = ThreadReadStateChangedNotification(after, params.thread_id)
    ctx.after_reply(partial(loaded.log.publish, n.THREAD_READ_STATE_CHANGED, notification))
    await loaded.log.sync()
    return after
