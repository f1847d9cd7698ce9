"""Data that clients attach to threads."""

from __future__ import annotations

from functools import partial

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.protocol.attachment import (
    ThreadAttachment,
    ThreadAttachmentAddParams,
    ThreadAttachmentAddResponse,
    ThreadAttachmentListParams,
    ThreadAttachmentListResponse,
    ThreadAttachmentOperation,
    ThreadAttachmentOwner,
    ThreadAttachmentOwnerListParams,
    ThreadAttachmentOwnerListResponse,
    ThreadAttachmentRemoveParams,
    ThreadAttachmentRemoveResponse,
    ThreadAttachmentUpdatedNotification,
)
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_ATTACHMENT_ADD,
    THREAD_ATTACHMENT_LIST,
    THREAD_ATTACHMENT_OWNER_LIST,
    THREAD_ATTACHMENT_REMOVE,
)
from treadle.protocol.notifications import THREAD_ATTACHMENT_UPDATED
from treadle.server.organizing import change, check_thread, read
from treadle.server.paging.offset import page_within
from treadle.server.session import ClientSession
from treadle.store.journal import ThreadNotFound
from treadle.store.organization import attachments

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_OWNERS = 100
"""The maximum number of threads on a page."""

MAX_PAGE_BYTES = 16 * 1024 * 1024
"""The maximum size of a page of attachments: 1,000 of them may have four times as much."""


@router.request(THREAD_ATTACHMENT_ADD)
async def thread_attachment_add(
    ctx: Context[ClientSession], params: ThreadAttachmentAddParams
) -> ThreadAttachmentAddResponse:
    """Attach data, unless the thread has an attachment with the same type and key."""
    server = ctx.session.server
    await check_thread(server, params.thread_id)
    attach = partial(
        attachments.attach,
        thread_id=params.thread_id,
        type_=params.attachment_type,
        key=params.identity_key,
        payload=params.payload,
        now=server.threads.services.clock() // 1000,
    )
    attachment, is_new = await change(server.threads.store, attach)
    if is_new:
        ctx.after_reply(partial(_publish, ctx, params.thread_id, attachment, "created"))
    return ThreadAttachmentAddResponse(attachment, "created" if is_new else "existing")


@router.request(THREAD_ATTACHMENT_REMOVE)
async def thread_attachment_remove(
    ctx: Context[ClientSession], params: ThreadAttachmentRemoveParams
) -> ThreadAttachmentRemoveResponse:
    """Remove an attachment, if there is one."""
    detach = partial(
        attachments.detach,
        thread_id=params.thread_id,
        type_=params.attachment_type,
        key=params.identity_key,
    )
    removed = await change(ctx.session.server.threads.store, detach)
    if removed is not None:
        ctx.after_reply(partial(_publish, ctx, params.thread_id, removed, "deleted"))
    return ThreadAttachmentRemoveResponse()


@router.request(THREAD_ATTACHMENT_LIST)
async def thread_attachment_list(
    ctx: Context[ClientSession], params: ThreadAttachmentListParams
) -> ThreadAttachmentListResponse:
    """List the attachments of a thread, the oldest first."""
    server = ctx.session.server
    await check_thread(server, params.thread_id)
    find = partial(attachments.attachments_of, thread_id=params.thread_id)
    found = await read(server.threads.store, find)
    data, next_cursor = page_within(
        found, params.cursor, params.limit, of="attachments", size=MAX_PAGE_BYTES
    )
    return ThreadAttachmentListResponse(data, next_cursor)


@router.request(THREAD_ATTACHMENT_OWNER_LIST)
async def thread_attachment_owner_list(
    ctx: Context[ClientSession], params: ThreadAttachmentOwnerListParams
) -> ThreadAttachmentOwnerListResponse:
    """List the threads that have an attachment; the cursor is the last of them."""
    store = ctx.session.server.threads.store
    limit = min(max(params.limit or MAX_OWNERS, 1), MAX_OWNERS)
    owners: list[ThreadAttachmentOwner] = []
    after: str | None = params.cursor or ""
    while after is not None and len(owners) < limit:
        find = partial(
            attachments.owners_of,
            type_=params.attachment_type,
            key=params.identity_key,
            after=after,
            limit=limit,
        )
        ids = await read(store, find)
        for thread_id in ids:
            owner = await _owner(ctx, thread_id)
            if owner is not None and params.archived in (None, owner.archived):
                owners.append(owner)
        after = ids[-1] if len(ids) == limit else None
    has_more = after is not None or len(owners) > limit
    owners = owners[:limit]
    return ThreadAttachmentOwnerListResponse(
        owners, owners[-1].thread_id if has_more and owners else None
    )


async def _owner(ctx: Context[ClientSession], thread_id: str) -> ThreadAttachmentOwner | None:
    """Return a thread, or `None` if another program has deleted it."""
    try:
        meta = await ctx.session.server.threads.stored.read_meta(thread_id)
    except ThreadNotFound:
        return None
    return ThreadAttachmentOwner(meta.archived, thread_id)


def _publish(
    ctx: Context[ClientSession],
    thread_id: str,
    attachment: ThreadAttachment,
    operation: ThreadAttachmentOperation,
) -> None:
    updated = ThreadAttachmentUpdatedNotification(
        attachment.id,
        attachment.attachment_type,
        attachment.identity_key,
        operation,
        thread_id,
    )
    ctx.session.server.threads.services.broadcast(THREAD_ATTACHMENT_UPDATED, updated)
