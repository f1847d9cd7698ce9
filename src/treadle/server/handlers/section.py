"""Sections of the thread list."""

from __future__ import annotations

from functools import partial

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InvalidOptions, InvalidRequest
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_SECTION_CREATE,
    THREAD_SECTION_DELETE,
    THREAD_SECTION_LIST,
    THREAD_SECTION_MOVE,
    THREAD_SECTION_UPDATE,
)
from treadle.protocol.notifications import THREAD_SECTION_CHANGED
from treadle.protocol.section import (
    ThreadSectionChangedNotification,
    ThreadSectionCreateParams,
    ThreadSectionCreateResponse,
    ThreadSectionDeleteParams,
    ThreadSectionDeleteResponse,
    ThreadSectionListParams,
    ThreadSectionListResponse,
    ThreadSectionMoveParams,
    ThreadSectionMoveResponse,
    ThreadSectionUpdateParams,
    ThreadSectionUpdateResponse,
)
from treadle.server.organizing import change, check_thread, read
from treadle.server.paging.offset import page
from treadle.server.session import ClientSession
from treadle.store.organization import sections

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(THREAD_SECTION_LIST)
async def thread_section_list(
    ctx: Context[ClientSession], params: ThreadSectionListParams
) -> ThreadSectionListResponse:
    """List the sections in order."""
    found = await read(ctx.session.server.threads.store, sections.all_sections)
    data, next_cursor = page(found, params.cursor, params.limit, of="sections")
    return ThreadSectionListResponse(data, next_cursor)


@router.request(THREAD_SECTION_CREATE)
async def thread_section_create(
    ctx: Context[ClientSession], params: ThreadSectionCreateParams
) -> ThreadSectionCreateResponse:
    """Add a section at the end."""
    create = partial(sections.create_section, name=params.name, appearance=params.appearance)
    section = await change(ctx.session.server.threads.store, create)
    return ThreadSectionCreateResponse(section)


@router.request(THREAD_SECTION_UPDATE)
async def thread_section_update(
    ctx: Context[ClientSession], params: ThreadSectionUpdateParams
) -> ThreadSectionUpdateResponse:
    """Rename a section, and change its appearance if given."""
    update = partial(
        sections.update_section,
        section_id=params.section_id,
        name=params.name,
        appearance=params.appearance,
    )
    section = await change(ctx.session.server.threads.store, update)
    return ThreadSectionUpdateResponse(section)


@router.request(THREAD_SECTION_DELETE)
async def thread_section_delete(
    ctx: Context[ClientSession], params: ThreadSectionDeleteParams
) -> ThreadSectionDeleteResponse:
    """Delete a section; its threads remain."""
    delete = partial(sections.delete_section, section_id=params.section_id)
    await change(ctx.session.server.threads.store, delete)
    return ThreadSectionDeleteResponse()


@router.request(THREAD_SECTION_MOVE)
async def thread_section_move(
    ctx: Context[ClientSession], params: ThreadSectionMoveParams
) -> ThreadSectionMoveResponse:
    """Move a thread within a section, into one, or out of all."""
    server = ctx.session.server
    await check_thread(server, params.thread_id)
    move = partial(
        sections.move_to_section,
        thread_id=params.thread_id,
        section_id=params.section_id,
        before=params.before_thread_id,
        now=server.threads.services.clock() // 1000,
    )
    try:
        await change(server.threads.store, move)
    except InvalidOptions as error:
        # Upstream's code for this method.
        raise InvalidRequest(error.message, **(error.data or {})) from error
    moved = ThreadSectionChangedNotification(params.section_id, params.thread_id)
    ctx.after_reply(partial(server.threads.services.broadcast, THREAD_SECTION_CHANGED, moved))
    return ThreadSectionMoveResponse()
