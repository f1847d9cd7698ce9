"""Input that waits for later turns of a thread."""

from __future__ import annotations

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import ThreadNotLoaded
from treadle.engine.queued_turns import accept_queued
from treadle.engine.stored.recovery import waiting
from treadle.engine.thread import LoadedThread
from treadle.jsonrpc.errors import InvalidRequest
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_QUEUE_ADD,
    THREAD_QUEUE_DELETE,
    THREAD_QUEUE_LIST,
    THREAD_QUEUE_REORDER,
    THREAD_QUEUE_START,
    THREAD_QUEUE_UPDATE,
)
from treadle.protocol.queue import (
    ThreadQueueAddParams,
    ThreadQueueAddResponse,
    ThreadQueueDeleteParams,
    ThreadQueueDeleteResponse,
    ThreadQueueListParams,
    ThreadQueueListResponse,
    ThreadQueueReorderParams,
    ThreadQueueReorderResponse,
    ThreadQueueStartParams,
    ThreadQueueStartResponse,
    ThreadQueueUpdateParams,
    ThreadQueueUpdateResponse,
)
from treadle.server.paging.offset import page
from treadle.server.query_limits import MAX_PARTS, check_count
from treadle.server.session import ClientSession
from treadle.store.journal import ThreadNotFound

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(THREAD_QUEUE_ADD)
async def thread_queue_add(
    ctx: Context[ClientSession], params: ThreadQueueAddParams
) -> ThreadQueueAddResponse:
    """Append input; an idle thread starts its turn at once."""
    check_count(params.input, "input", MAX_PARTS)
    thread = _stored(ctx, params.thread_id)
    metadata = params.responsesapi_client_metadata
    added = thread.queue.add(params.client_user_message_id, params.input, metadata)
    await thread.log.sync()
    if thread.turn is None and not thread.queue.is_starting:
        ctx.after_reply(thread.continue_queue)
    return ThreadQueueAddResponse(added)


@router.request(THREAD_QUEUE_LIST)
async def thread_queue_list(
    ctx: Context[ClientSession], params: ThreadQueueListParams
) -> ThreadQueueListResponse:
    """List the input in order, also of a thread that is not loaded."""
    threads = ctx.session.server.threads
    loaded = threads.find(params.thread_id)
    try:
        queued = (
            loaded.queue.submissions
            if loaded is not None
            else waiting(await threads.stored.read(params.thread_id))
        )
    except ThreadNotFound as error:
        raise ThreadNotLoaded(params.thread_id) from error
    data, next_cursor = page(list(queued), params.cursor, params.limit, of="queued submissions")
    return ThreadQueueListResponse(data, next_cursor)


@router.request(THREAD_QUEUE_UPDATE)
async def thread_queue_update(
    ctx: Context[ClientSession], params: ThreadQueueUpdateParams
) -> ThreadQueueUpdateResponse:
    """Replace input; its place stays."""
    check_count(params.input, "input", MAX_PARTS)
    thread = _stored(ctx, params.thread_id)
    metadata = params.responsesapi_client_metadata
    changed = thread.queue.update(params.queued_submission_id, params.input, metadata)
    await thread.log.sync()
    return ThreadQueueUpdateResponse(changed)


@router.request(THREAD_QUEUE_DELETE)
async def thread_queue_delete(
    ctx: Context[ClientSession], params: ThreadQueueDeleteParams
) -> ThreadQueueDeleteResponse:
    """Remove input."""
    thread = _stored(ctx, params.thread_id)
    is_removed = thread.queue.remove(params.queued_submission_id)
    await thread.log.sync()
    return ThreadQueueDeleteResponse(is_removed)


@router.request(THREAD_QUEUE_REORDER)
async def thread_queue_reorder(
    ctx: Context[ClientSession], params: ThreadQueueReorderParams
) -> ThreadQueueReorderResponse:
    """Set the order of the input."""
    thread = _stored(ctx, params.thread_id)
    thread.queue.reorder(params.queued_submission_ids)
    await thread.log.sync()
    return ThreadQueueReorderResponse()


@router.request(THREAD_QUEUE_START)
async def thread_queue_start(
    ctx: Context[ClientSession], params: ThreadQueueStartParams
) -> ThreadQueueStartResponse:
    """Start a turn with queued input now."""
    thread = _stored(ctx, params.thread_id)
    accepted = await accept_queued(thread, params.queued_submission_id)
    ctx.after_reply(accepted.start)
    return ThreadQueueStartResponse(accepted.snapshot)


def _stored(ctx: Context[ClientSession], thread_id: str) -> LoadedThread:
    thread = ctx.session.server.threads.get(thread_id)
    if thread.meta.ephemeral:
        raise InvalidRequest("an ephemeral thread has no queue", kind="ephemeralThread")
    return thread
