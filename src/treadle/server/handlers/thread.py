"""Starting, resuming and forking threads."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import msgspec

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.settings import Settings
from treadle.engine.thread import Thread
from treadle.protocol import notifications as n
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_FORK,
    THREAD_RESUME,
    THREAD_START,
)
from treadle.protocol.goal import ThreadGoalClearedNotification, ThreadGoalUpdatedNotification
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
from treadle.rpc.errors import InvalidRequest
from treadle.server.handlers.config import tell_warnings
from treadle.server.handshake import PROTOCOL_VERSION
from treadle.server.session import ClientSession
from treadle.server.settings import start_settings, stored_settings
from treadle.store.journal import Journal
from treadle.store.thread import StoredThread, ThreadMeta

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(THREAD_START)
def thread_start(ctx: Context[ClientSession], params: ThreadStartParams) -> ThreadStartResponse:
    """Begin a thread and subscribe the client to it."""
    server = ctx.session.server
    settings = start_settings(server.configuration, params)
    tell_warnings(ctx.session, server.configuration.effective(settings.cwd, params.config))
    thread = server.threads.start(
        settings,
        describe=partial(_describe, ctx.session, params),
        ephemeral=bool(params.ephemeral),
        budget=params.budget,
    )
    ctx.after_reply(partial(_introduce, ctx.session, thread))
    return _session(thread, ThreadStartResponse, [])


@router.request(THREAD_RESUME)
def thread_resume(ctx: Context[ClientSession], params: ThreadResumeParams) -> ThreadResumeResponse:
    """Load a stored thread, or join one that is loaded, and subscribe the client to it."""
    server = ctx.session.server
    thread = server.threads.find(params.thread_id)
    if thread is None:
        journal, stored = _open(ctx.session, params)
        settings = stored_settings(server.configuration, stored, params)
        thread = server.threads.load(journal, stored, settings)
        turns = stored.turns
    else:
        turns = server.threads.turns(thread)
    wants_turns = not params.exclude_turns and params.after_seq is None
    # Whoever names the last event it saw is told the rest; everybody else has it in the answer.
    after = thread.log.last_seq if params.after_seq is None else params.after_seq
    ctx.after_reply(partial(_join, ctx.session, thread, after))
    return _session(thread, ThreadResumeResponse, turns if wants_turns else [])


@router.request(THREAD_FORK)
def thread_fork(ctx: Context[ClientSession], params: ThreadForkParams) -> ThreadForkResponse:
    """Copy a thread into a new one and subscribe the client to it."""
    server = ctx.session.server
    source = server.threads.stored(params.thread_id, params.path)
    settings = stored_settings(server.configuration, source, params)
    thread, turns = server.threads.fork(
        source,
        settings,
        describe=partial(_describe, ctx.session, params),
        ephemeral=params.ephemeral,
        last_turn_id=params.last_turn_id,
        before_turn_id=params.before_turn_id,
    )
    ctx.after_reply(partial(_introduce, ctx.session, thread))
    return _session(thread, ThreadForkResponse, [] if params.exclude_turns else turns)


def _describe(
    session: ClientSession, params: ThreadStartParams | ThreadForkParams, meta: ThreadMeta
) -> ThreadMeta:
    """Note who began the thread."""
    client = session.client
    return msgspec.structs.replace(
        meta,
        originator=client.client_info.name if client else None,
        cli_version=PROTOCOL_VERSION,
        thread_source=params.thread_source,
    )


def _introduce(session: ClientSession, thread: Thread) -> None:
    """Tell everybody of a new thread, and its maker of all that happens in it."""
    snapshot = session.server.threads.snapshot(thread.meta)
    session.server.threads.announce(n.THREAD_STARTED, ThreadStartedNotification(snapshot))
    session.subscribe(thread, thread.log.last_seq)


def _join(session: ClientSession, thread: Thread, after: int) -> None:
    session.subscribe(thread, after)
    goal = thread.goals.current
    if goal is not None:
        params = ThreadGoalUpdatedNotification(goal=goal, thread_id=thread.id)
        session.tell(n.THREAD_GOAL_UPDATED, params)
    else:
        session.tell(n.THREAD_GOAL_CLEARED, ThreadGoalClearedNotification(thread.id))


def _open(session: ClientSession, params: ThreadResumeParams) -> tuple[Journal, StoredThread]:
    store = session.server.threads.store
    journal, stored = store.open_path(params.path) if params.path else store.open(params.thread_id)
    if stored.meta.archived:
        journal.close()
        id_ = stored.meta.id
        raise InvalidRequest(
            f"session {id_} is archived. Unarchive it first with thread/unarchive.",
            kind="threadArchived",
        )
    return journal, stored


S = TypeVar("S", ThreadStartResponse, ThreadResumeResponse, ThreadForkResponse)


def _session(thread: Thread, kind: type[S], turns: list[Turn]) -> S:
    """The thread and the settings that it runs under."""
    settings: Settings = thread.settings
    return kind(
        approval_policy=settings.approval_policy,
        approvals_reviewer=settings.approvals_reviewer,
        cwd=settings.cwd,
        model=settings.model,
        model_provider=settings.model_provider,
        sandbox=settings.sandbox,
        thread=thread.snapshot(turns),
        instruction_sources=thread.project_docs().sources,
        reasoning_effort=settings.effort,
        runtime_workspace_roots=[settings.cwd],
        service_tier=settings.service_tier,
        disabled_plugin_ids=list(settings.disabled_plugin_ids),
    )
