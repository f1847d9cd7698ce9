"""Management of threads: read, list, name, metadata, archive, delete, compact, inject items."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import UNSET

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.engine.read_states import read_state_of
from treadle.engine.terminals.output_file import remove_outputs
from treadle.engine.threads import Threads
from treadle.jsonrpc.errors import InvalidRequest
from treadle.protocol import notifications as n
from treadle.protocol.base import GitInfo
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_ARCHIVE,
    THREAD_COMPACT_START,
    THREAD_DELETE,
    THREAD_INJECT_ITEMS,
    THREAD_LIST,
    THREAD_LOADED_LIST,
    THREAD_METADATA_UPDATE,
    THREAD_NAME_SET,
    THREAD_READ,
    THREAD_UNARCHIVE,
    THREAD_UNSUBSCRIBE,
)
from treadle.protocol.thread import ThreadSetNameParams, ThreadSetNameResponse
from treadle.protocol.thread_manage import (
    ThreadArchivedNotification,
    ThreadArchiveParams,
    ThreadArchiveResponse,
    ThreadCompactStartParams,
    ThreadCompactStartResponse,
    ThreadDeletedNotification,
    ThreadDeleteParams,
    ThreadDeleteResponse,
    ThreadInjectItemsParams,
    ThreadInjectItemsResponse,
    ThreadListParams,
    ThreadListResponse,
    ThreadLoadedListParams,
    ThreadLoadedListResponse,
    ThreadMetadataGitInfoUpdateParams,
    ThreadMetadataUpdateParams,
    ThreadMetadataUpdateResponse,
    ThreadNameUpdatedNotification,
    ThreadReadParams,
    ThreadReadResponse,
    ThreadUnarchivedNotification,
    ThreadUnarchiveParams,
    ThreadUnarchiveResponse,
    ThreadUnsubscribeParams,
    ThreadUnsubscribeResponse,
)
from treadle.server.errors import check_uuid, unknown_thread
from treadle.server.organizing import (
    assign_project,
    check_project,
    chosen_threads,
    forget_thread,
    page_of_section,
)
from treadle.server.paging.keyset import page_of
from treadle.server.query_limits import MAX_ITEMS, check_alternatives, check_count, check_term
from treadle.server.session import ClientSession
from treadle.server.thread_creators import required_creator
from treadle.store.journal import ThreadNotFound
from treadle.store.records import MetadataChanged
from treadle.store.stored_thread import ThreadQuery

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(THREAD_READ)
async def thread_read(ctx: Context[ClientSession], params: ThreadReadParams) -> ThreadReadResponse:
    """Read a thread without loading it."""
    threads = ctx.session.server.threads
    await threads.store.refresh_placements()
    loaded = threads.find(params.thread_id)
    if loaded is not None and not params.include_turns:
        read_state = read_state_of(loaded.meta)
        return ThreadReadResponse(threads.placed(loaded.snapshot([])), read_state)
    try:
        if not params.include_turns:
            meta = await threads.stored.read_meta(params.thread_id)
            return ThreadReadResponse(threads.snapshot(meta), read_state_of(meta))
        stored = await threads.stored.read_current(params.thread_id)
    except ThreadNotFound as error:
        raise unknown_thread("thread not loaded", params.thread_id) from error
    meta = stored.meta if loaded is None else loaded.meta
    return ThreadReadResponse(threads.snapshot(stored.meta, stored.turns), read_state_of(meta))


@router.request(THREAD_LIST)
async def thread_list(ctx: Context[ClientSession], params: ThreadListParams) -> ThreadListResponse:
    """List stored threads, one page at a time."""
    threads = ctx.session.server.threads
    cwd = [params.cwd] if isinstance(params.cwd, str) else params.cwd
    _check_query(params, cwd)
    await threads.store.refresh_placements()
    key = params.sort_key or "created_at"
    chosen = await chosen_threads(threads.store, params)
    query = ThreadQuery(
        cursor=params.cursor,
        limit=params.limit,
        # The order of a section replaces it.
        sort_key=key if key != "section_position" else "recency_at",
        sort_direction=params.sort_direction or ("asc" if key == "section_position" else "desc"),
        archived=bool(params.archived),
        cwd=cwd,
        model_providers=params.model_providers,
        source_kinds=params.source_kinds,
        originators=params.originators,
        search_term=params.search_term,
        parent_thread_id=params.parent_thread_id,
        ancestor_thread_id=params.ancestor_thread_id,
        excluded_thread_ids=params.excluded_thread_ids,
        attached_to_id=params.attached_to_thread_id,
        includes_attached=params.include_attached_threads,
        creator=required_creator(
            ctx.session.server.credentials, current_account_only=params.current_account_only
        ),
        only_ids=chosen.only,
        except_ids=chosen.none_of,
        use_state_db_only=params.use_state_db_only,
    )
    if key == "section_position":
        page = await threads.store.run(partial(page_of_section, threads.store, query))
    else:
        page = await threads.store.run(partial(threads.store.list, query))
    return ThreadListResponse(
        data=[threads.snapshot(meta) for meta in page.data],
        backwards_cursor=page.backwards_cursor,
        next_cursor=page.next_cursor,
        read_states={meta.id: state for meta in page.data if (state := read_state_of(meta))},
    )


def _check_query(params: ThreadListParams, cwd: list[str] | None) -> None:
    if params.attached_to_thread_id is not None:
        check_uuid(params.attached_to_thread_id, "attachedToThreadId")
        if params.parent_thread_id is not None or params.ancestor_thread_id is not None:
            # Upstream's text, and that of the next one: its clients show them.
            refused = (
                "attachedToThreadId cannot be combined with parentThreadId or ancestorThreadId"
            )
            raise InvalidInput("attachedToThreadId", refused)
    if params.include_attached_threads and not params.search_term:
        refused = "includeAttachedThreads requires a non-empty searchTerm"
        raise InvalidInput("includeAttachedThreads", refused)
    check_term(params.search_term or "")
    check_alternatives(cwd, "cwd")
    check_alternatives(params.model_providers, "modelProviders")
    check_alternatives(params.source_kinds, "sourceKinds")
    check_alternatives(params.originators, "originators")
    check_alternatives(params.excluded_thread_ids, "excludedThreadIds")


@router.request(THREAD_LOADED_LIST)
def thread_loaded_list(
    ctx: Context[ClientSession], params: ThreadLoadedListParams
) -> ThreadLoadedListResponse:
    """List the loaded threads."""
    ids = ctx.session.server.threads.loaded_ids()
    page = page_of(ids, str, cursor=params.cursor, limit=params.limit, default=len(ids) or 1)
    return ThreadLoadedListResponse(data=page.data, next_cursor=page.next_cursor)


@router.request(THREAD_NAME_SET)
async def thread_name_set(
    ctx: Context[ClientSession], params: ThreadSetNameParams
) -> ThreadSetNameResponse:
    """Set the title of a thread, loaded or not."""
    threads = ctx.session.server.threads
    name = params.name.strip()
    if not name:
        raise InvalidInput("name", "thread name must not be empty")
    check_term(name, "name")  # every list of threads repeats it
    changed = ThreadNameUpdatedNotification(params.thread_id, name)
    loaded = threads.find(params.thread_id)
    if loaded is None:
        await threads.store.run(partial(threads.store.set_name, params.thread_id, name))
        ctx.after_reply(partial(threads.services.broadcast, n.THREAD_NAME_UPDATED, changed))
    else:
        if not loaded.meta.ephemeral:
            await threads.store.run(partial(threads.store.set_name, params.thread_id, name))
        loaded.state.update_meta(name=name)
        ctx.after_reply(partial(loaded.log.publish, n.THREAD_NAME_UPDATED, changed))
    return ThreadSetNameResponse()


@router.request(THREAD_METADATA_UPDATE)
async def thread_metadata_update(
    ctx: Context[ClientSession], params: ThreadMetadataUpdateParams
) -> ThreadMetadataUpdateResponse:
    """Change the repository information of a thread, and its project."""
    server = ctx.session.server
    threads = server.threads
    if params.daybreak_enabled is not None:
        reason = "this server cannot change daybreakEnabled"
        raise InvalidRequest(reason, kind="unsupported", path="daybreakEnabled")
    if params.git_info is None and params.project_id is None:
        raise InvalidInput("gitInfo", "thread metadata update must include at least one field")
    await threads.store.refresh_placements()
    loaded = threads.find(params.thread_id)
    meta = loaded.meta if loaded else await threads.stored.read_meta(params.thread_id)
    if params.project_id is not None:
        is_ephemeral = loaded is not None and loaded.meta.ephemeral
        await check_project(server, params.project_id or None, is_ephemeral=is_ephemeral)
        published = await assign_project(server, [params.thread_id], params.project_id or None)
        ctx.after_reply(published)
    if params.git_info is None:
        return ThreadMetadataUpdateResponse(threads.snapshot(meta))
    git_info = _apply_patch(meta.git_info, params.git_info)
    if loaded is None:
        change = MetadataChanged(git_info)
        update = partial(threads.store.update, params.thread_id, lambda _meta: change)
        async with threads.opening(params.thread_id):
            await threads.store.run(update)
    elif not meta.ephemeral:
        loaded.journal.append([MetadataChanged(git_info)])
    meta = msgspec.structs.replace(meta, git_info=git_info)
    if loaded is not None:
        loaded.state.update_meta(git_info=git_info)
    return ThreadMetadataUpdateResponse(threads.snapshot(meta))


def _apply_patch(info: GitInfo | None, patch: ThreadMetadataGitInfoUpdateParams) -> GitInfo | None:
    """Apply a patch to git information: absent fields stay, null fields are removed."""
    wire = {"sha": "sha", "branch": "branch", "origin_url": "originUrl"}
    fields = {name: getattr(patch, name) for name in wire}
    fields = {name: value for name, value in fields.items() if value is not UNSET}
    if not fields:
        raise InvalidInput("gitInfo", "gitInfo must include at least one field")
    for name, value in fields.items():
        if isinstance(value, str) and not value.strip():
            raise InvalidInput(f"gitInfo.{wire[name]}", f"gitInfo.{wire[name]} must not be empty")
        check_term(value or "", f"gitInfo.{wire[name]}")
    changed = msgspec.structs.replace(info or GitInfo(), **fields)
    return None if changed == GitInfo() else changed


@router.request(THREAD_ARCHIVE)
async def thread_archive(
    ctx: Context[ClientSession], params: ThreadArchiveParams
) -> ThreadArchiveResponse:
    """Archive a thread; an active turn is interrupted."""
    threads = ctx.session.server.threads
    async with threads.opening(params.thread_id):
        await threads.store.run(partial(threads.store.check_archivable, params.thread_id))
        await _unload(ctx, params.thread_id)
        await threads.store.run(partial(threads.store.archive, params.thread_id))
    notification = ThreadArchivedNotification(params.thread_id)
    ctx.after_reply(partial(threads.services.broadcast, n.THREAD_ARCHIVED, notification))
    return ThreadArchiveResponse()


@router.request(THREAD_UNARCHIVE)
async def thread_unarchive(
    ctx: Context[ClientSession], params: ThreadUnarchiveParams
) -> ThreadUnarchiveResponse:
    """Restore an archived thread."""
    threads = ctx.session.server.threads
    try:
        async with threads.opening(params.thread_id):
            meta = await threads.store.run(partial(threads.store.unarchive, params.thread_id))
    except ThreadNotFound as error:
        phrase = "no archived rollout found for thread id"
        raise unknown_thread(phrase, params.thread_id) from error
    notification = ThreadUnarchivedNotification(params.thread_id)
    ctx.after_reply(partial(threads.services.broadcast, n.THREAD_UNARCHIVED, notification))
    return ThreadUnarchiveResponse(threads.snapshot(meta))


@router.request(THREAD_DELETE)
async def thread_delete(
    ctx: Context[ClientSession], params: ThreadDeleteParams
) -> ThreadDeleteResponse:
    """Delete a thread permanently; an active turn is interrupted."""
    threads = ctx.session.server.threads
    async with threads.opening(params.thread_id):
        await _check_no_attached(threads, params.thread_id)
        loaded = threads.find(params.thread_id)
        await _unload(ctx, params.thread_id)
        if loaded is None or not loaded.meta.ephemeral:
            await threads.store.run(partial(threads.store.delete, params.thread_id))
            await forget_thread(threads.store, params.thread_id)
    await threads.services.file_workers.run(remove_outputs, threads.services.home, params.thread_id)
    notification = ThreadDeletedNotification(params.thread_id)
    ctx.after_reply(partial(threads.services.broadcast, n.THREAD_DELETED, notification))
    return ThreadDeleteResponse()


@router.request(THREAD_UNSUBSCRIBE)
def thread_unsubscribe(
    ctx: Context[ClientSession], params: ThreadUnsubscribeParams
) -> ThreadUnsubscribeResponse:
    """End the client's subscription; a thread without subscribers is unloaded after its turn."""
    threads = ctx.session.server.threads
    thread = threads.find(params.thread_id)
    if thread is None:
        return ThreadUnsubscribeResponse("notLoaded")
    if not ctx.session.unsubscribe(params.thread_id):
        return ThreadUnsubscribeResponse("notSubscribed")
    if not threads.has_subscribers(thread):
        ctx.after_reply(partial(threads.close_when_idle, thread))
    return ThreadUnsubscribeResponse("unsubscribed")


@router.request(THREAD_COMPACT_START)
def thread_compact_start(
    ctx: Context[ClientSession], params: ThreadCompactStartParams
) -> ThreadCompactStartResponse:
    """Start a compaction."""
    thread = ctx.session.server.threads.get(params.thread_id)
    ctx.after_reply(partial(thread.start_turn, thread.begin_other("compact")))
    return ThreadCompactStartResponse()


@router.request(THREAD_INJECT_ITEMS)
def thread_inject_items(
    ctx: Context[ClientSession], params: ThreadInjectItemsParams
) -> ThreadInjectItemsResponse:
    """Add items to the model context without a turn."""
    thread = ctx.session.server.threads.get(params.thread_id)
    if not params.items:
        raise InvalidInput("items", "items must not be empty")
    check_count(params.items, "items", MAX_ITEMS)
    for position, item in enumerate(params.items):
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            raise InvalidInput(f"items[{position}]", f"items[{position}] is not a response item")
    thread.context.check_room(params.items, "items")
    thread.context.history.store(*params.items)
    return ThreadInjectItemsResponse()


async def _unload(ctx: Context[ClientSession], thread_id: str) -> None:
    """Unload a thread before it is moved or deleted."""
    server = ctx.session.server
    thread = server.threads.find(thread_id)
    if thread is None:
        return
    await thread.halt()
    await thread.log.published()
    server.threads.unload(thread)
    for session in server.sessions:
        session.unsubscribe(thread_id)


async def _check_no_attached(threads: Threads, thread_id: str) -> None:
    """Refuse to delete a thread beside which others are shown."""
    for archived in (False, True):
        query = ThreadQuery(attached_to_id=thread_id, archived=archived, limit=1)
        for meta in (await threads.store.run(partial(threads.store.list, query))).data:
            # Upstream's text: its clients show it.
            message = (
                f"cannot delete thread while attached thread {meta.id} exists; "
                "delete the attached thread first"
            )
            raise InvalidRequest(message, kind="hasAttachedThreads")
