"""Starting, resuming and forking threads."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.events.intake import keep_settings, thread_stored
from treadle.engine.project.docs import read_project_docs
from treadle.engine.project.git import read_git_info
from treadle.engine.settings import RunSettings
from treadle.engine.stored.forking import fork, start_from
from treadle.engine.thread import LoadedThread
from treadle.engine.threads import Threads
from treadle.engine.tools.dynamic import check_tools, replace_tools
from treadle.jsonrpc.errors import InvalidRequest
from treadle.protocol import notifications as n
from treadle.protocol.base import GitInfo
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_FORK,
    THREAD_RESUME,
    THREAD_START,
)
from treadle.protocol.goal import ThreadGoalClearedNotification, ThreadGoalUpdatedNotification
from treadle.protocol.status import ThreadStatusChangedNotification
from treadle.protocol.thread import (
    ThreadForkParams,
    ThreadForkResponse,
    ThreadResumeParams,
    ThreadResumeResponse,
    ThreadStartedNotification,
    ThreadStartParams,
    ThreadStartResponse,
)
from treadle.protocol.turn import Turn
from treadle.server.handlers.config import send_warnings
from treadle.server.handlers.history import backwards_cursors, turns_page
from treadle.server.handshake import PROTOCOL_VERSION, describe
from treadle.server.organizing import check_project, inherit_project, join_project
from treadle.server.session import ClientSession
from treadle.server.thread_settings import names_permissions, start_settings, stored_settings
from treadle.store.stored_thread import StoredThread, ThreadMeta

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


class _Joined(NamedTuple):
    """A thread that a client joins, its turns, and the files with instructions to agents."""

    thread: LoadedThread
    turns: list[Turn]
    sources: list[str]


@router.request(THREAD_START)
async def thread_start(
    ctx: Context[ClientSession], params: ThreadStartParams
) -> ThreadStartResponse:
    """Start a thread and subscribe the client to it."""
    server = ctx.session.server
    workers = ctx.session.file_workers
    if params.project_id is not None:
        await check_project(server, params.project_id, is_ephemeral=bool(params.ephemeral))
    settings, effective = await workers.run(start_settings, server.configuration, params)
    send_warnings(ctx.session, effective)
    git = await workers.run(read_git_info, settings.cwd)
    sources = await _instruction_sources(ctx.session, settings)
    thread = server.threads.start(
        _for_client(ctx.session, settings),
        describe=partial(_describe, ctx.session, params, git),
        ephemeral=bool(params.ephemeral),
        budget=params.budget,
        metadata=params.metadata,
    )
    await thread_stored(server.threads, thread)
    if params.project_id is not None:
        await join_project(server, thread, params.project_id)
    ctx.after_reply(partial(introduce, ctx.session, thread))
    return _session(server.threads, thread, ThreadStartResponse, [], sources)


@router.request(THREAD_RESUME)
async def thread_resume(
    ctx: Context[ClientSession], params: ThreadResumeParams
) -> ThreadResumeResponse:
    """Load a stored thread, or join a loaded one, and subscribe the client to it."""
    threads = ctx.session.server.threads
    await threads.store.refresh_placements()
    thread_id = await _requested_id(ctx.session, params)
    if params.history and threads.find(thread_id) is None:
        joined = await _from_history(ctx.session, params)
        await thread_stored(threads, joined.thread)
    else:
        # Several clients may resume one thread at once: the first one loads it.
        async with threads.opening(thread_id):
            joined = await _joined(ctx.session, thread_id, params)
    # No await from here on: the next event must reach the joining client. A client that names the
    # last event it saw receives the later ones; for others the answer holds the history.
    thread, turns, sources = joined
    ctx.after_reply(partial(_join, ctx.session, thread, params.after_seq))
    wants_turns = not params.exclude_turns and params.after_seq is None
    shown = turns if wants_turns else []
    answer = _session(threads, thread, ThreadResumeResponse, shown, sources)
    turns_cursor, items_cursor = backwards_cursors(turns)
    first = params.initial_turns_page
    return msgspec.structs.replace(
        answer,
        collaboration_mode=thread.settings.mode(),
        turns_backwards_cursor=turns_cursor,
        items_backwards_cursor=items_cursor,
        initial_turns_page=first
        and turns_page(
            turns, limit=first.limit, view=first.items_view, direction=first.sort_direction
        ),
    )


async def _requested_id(session: ClientSession, params: ThreadResumeParams) -> str:
    """Return the id of the requested thread."""
    threads = session.server.threads
    if threads.find(params.thread_id) is None and params.path and not params.history:
        return await threads.store.run(partial(threads.store.id_at, params.path))
    return params.thread_id


async def _joined(session: ClientSession, thread_id: str, params: ThreadResumeParams) -> _Joined:
    threads = session.server.threads
    while (thread := threads.find(thread_id)) is not None:
        _check_cursor(params, thread.log.last_seq)
        sources = await _instruction_sources(session, thread.settings)
        turns = await threads.stored.turns(thread)
        if threads.find(thread_id) is thread:
            _take_tools(thread, params)
            return _Joined(thread, turns, sources)
    return await _load(session, params)


async def _load(session: ClientSession, params: ThreadResumeParams) -> _Joined:
    """Load a thread and publish that it is loaded."""
    server = session.server
    journal, stored = await server.threads.open(params.thread_id, params.path)
    try:
        _check_archived(stored)
        _check_cursor(params, journal.last_seq)
        workers, configuration = session.file_workers, server.configuration
        settings = await workers.run(stored_settings, configuration, stored, params)
        sources = await _instruction_sources(session, settings)
        waits = await server.threads.stored.find_waiting_agents(stored)
        thread = server.threads.load(journal, stored, _for_client(session, settings), waits)
    except BaseException:
        journal.close()
        raise
    if names_permissions(params):
        keep_settings(thread, thread.settings)
    _take_tools(thread, params)
    changed = ThreadStatusChangedNotification(status=thread.status, thread_id=thread.id)
    server.threads.services.broadcast(n.THREAD_STATUS_CHANGED, changed)
    return _Joined(thread, stored.turns, sources)


def _take_tools(thread: LoadedThread, params: ThreadResumeParams) -> None:
    """Give the thread the tools that the client provides in this request."""
    if params.dynamic_tools is not None:
        check_tools(params.dynamic_tools)
        replace_tools(thread, params.dynamic_tools)


async def _from_history(session: ClientSession, params: ThreadResumeParams) -> _Joined:
    """Start a thread from a history that the client provides."""
    server = session.server
    start = ThreadStartParams(
        approval_policy=params.approval_policy,
        approvals_reviewer=params.approvals_reviewer,
        base_instructions=params.base_instructions,
        config=params.config,
        cwd=params.cwd,
        developer_instructions=params.developer_instructions,
        model=params.model,
        model_provider=params.model_provider,
        permissions=params.permissions,
        personality=params.personality,
        sandbox=params.sandbox,
        service_tier=params.service_tier,
        dynamic_tools=params.dynamic_tools,
    )
    items = msgspec.to_builtins(params.history or [])
    workers = session.file_workers
    settings, _ = await workers.run(start_settings, server.configuration, start)
    git = await workers.run(read_git_info, settings.cwd)
    sources = await _instruction_sources(session, settings)
    thread = await start_from(
        server.threads,
        items,
        _for_client(session, settings),
        describe=partial(_describe, session, start, git),
    )
    return _Joined(thread, [], sources)


@router.request(THREAD_FORK)
async def thread_fork(ctx: Context[ClientSession], params: ThreadForkParams) -> ThreadForkResponse:
    """Copy a thread into a new one and subscribe the client to it."""
    if params.attach_to_source and (params.ephemeral or params.defer_goal_continuation):
        # Upstream's text: its clients show it.
        message = "attachToSource cannot be combined with ephemeral or deferGoalContinuation"
        raise InvalidRequest(message, kind="invalidParams", path="attachToSource")
    server = ctx.session.server
    source = await server.threads.stored.read(params.thread_id, params.path)
    workers = ctx.session.file_workers
    settings = await workers.run(stored_settings, server.configuration, source, params)
    git = await workers.run(read_git_info, settings.cwd)
    sources = await _instruction_sources(ctx.session, settings)
    thread, turns = await fork(
        server.threads,
        source,
        _for_client(ctx.session, settings),
        describe=partial(_describe, ctx.session, params, git),
        ephemeral=params.ephemeral,
        last_turn_id=params.last_turn_id,
        before_turn_id=params.before_turn_id,
    )
    await thread_stored(server.threads, thread)
    await inherit_project(server, source.meta.id, thread)
    ctx.after_reply(partial(introduce, ctx.session, thread))
    shown = [] if params.exclude_turns else turns
    return _session(server.threads, thread, ThreadForkResponse, shown, sources)


def _describe(
    session: ClientSession,
    params: ThreadStartParams | ThreadForkParams,
    git: GitInfo | None,
    meta: ThreadMeta,
) -> ThreadMeta:
    """Record the client that started the thread, and the repository of its folder."""
    client = session.client
    attaches = isinstance(params, ThreadForkParams) and params.attach_to_source
    return msgspec.structs.replace(
        meta,
        attached_to_id=meta.forked_from_id if attaches else None,
        originator=client.client_info.name if client else None,
        cli_version=PROTOCOL_VERSION,
        source=session.server.source,
        thread_source=params.thread_source,
        git_info=git,
    )


async def _instruction_sources(session: ClientSession, settings: RunSettings) -> list[str]:
    """Return the AGENTS.md files that apply to a thread; they may be many, or slow to read."""
    services, folder = session.server.threads.services, Path(settings.cwd)
    may_read = services.boundary.may_read(settings.sandbox, settings.cwd)
    read = partial(read_project_docs, folder, may_read=may_read, home=services.home)
    return (await session.file_workers.run(read)).sources


def _for_client(session: ClientSession, settings: RunSettings) -> RunSettings:
    """Identify the client in requests to the model by its own name."""
    if session.client is None:
        return settings
    about = session.client.client_info
    return replace(settings, user_agent=_user_agent(about.name, about.version))


@lru_cache(maxsize=64)
def _user_agent(name: str, version: str) -> str:
    return describe(name, version)["userAgent"]


def introduce(session: ClientSession, thread: LoadedThread) -> None:
    """Broadcast a new thread, and subscribe its creator to it."""
    snapshot = session.server.threads.snapshot(thread.meta)
    session.server.threads.services.broadcast(n.THREAD_STARTED, ThreadStartedNotification(snapshot))
    session.subscribe(thread, thread.log.last_seq)
    thread.mcp.start()


def _check_cursor(params: ThreadResumeParams, last_seq: int) -> None:
    if params.after_seq is not None and params.after_seq > last_seq:
        raise InvalidRequest(
            f"afterSeq {params.after_seq} is beyond the last event of thread {params.thread_id}",
            kind="invalidCursor",
            path="afterSeq",
        )


def _join(session: ClientSession, thread: LoadedThread, after: int | None) -> None:
    session.subscribe(thread, after)
    thread.mcp.start()
    goal = thread.goals.current
    if goal is not None:
        params = ThreadGoalUpdatedNotification(goal=goal, thread_id=thread.id)
        session.notify_nowait(n.THREAD_GOAL_UPDATED, params)
        if thread.goals.is_active:
            # The previous server ended during a turn for this goal, which is still active.
            thread.pursue_goal()
    else:
        session.notify_nowait(n.THREAD_GOAL_CLEARED, ThreadGoalClearedNotification(thread.id))


def _check_archived(stored: StoredThread) -> None:
    if stored.meta.archived:
        id_ = stored.meta.id
        raise InvalidRequest(
            f"session {id_} is archived. Unarchive it first with thread/unarchive.",
            kind="threadArchived",
        )


S = TypeVar("S", ThreadStartResponse, ThreadResumeResponse, ThreadForkResponse)


def _session(
    threads: Threads, thread: LoadedThread, kind: type[S], turns: list[Turn], sources: list[str]
) -> S:
    """Return the thread and its settings."""
    settings: RunSettings = thread.settings
    return kind(
        approval_policy=settings.approval_policy,
        approvals_reviewer=settings.approvals_reviewer,
        cwd=settings.cwd,
        model=settings.model,
        model_provider=settings.model_provider,
        sandbox=settings.sandbox,
        active_permission_profile=settings.permission_profile,
        thread=threads.placed(thread.snapshot(turns)),
        instruction_sources=sources,
        reasoning_effort=settings.effort,
        runtime_workspace_roots=[settings.cwd],
        service_tier=settings.service_tier,
        disabled_plugin_ids=list(settings.disabled_plugin_ids),
    )
