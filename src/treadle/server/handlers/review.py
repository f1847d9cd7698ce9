"""Code reviews, and approval of actions that the guardian denied."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.approvals.guardian import overrule
from treadle.engine.events.intake import thread_stored
from treadle.engine.project.confined_git import ConfinedGit
from treadle.engine.review.review import begin_review, review_snapshot
from treadle.engine.review.target import resolve
from treadle.engine.stored.forking import fork
from treadle.engine.thread import LoadedThread
from treadle.jsonrpc.errors import InvalidRequest
from treadle.protocol.approval import (
    GuardianApprovalReview,
    ThreadApproveGuardianDeniedActionParams,
    ThreadApproveGuardianDeniedActionResponse,
)
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    REVIEW_START,
    THREAD_APPROVE_GUARDIAN_DENIED_ACTION,
    THREAD_GUARDIAN_REVIEW,
)
from treadle.protocol.review import ReviewStartParams, ReviewStartResponse
from treadle.protocol.sample import (
    ThreadGuardianAssessment,
    ThreadGuardianReviewParams,
    ThreadGuardianReviewResponse,
)
from treadle.server.handlers.thread import introduce
from treadle.server.session import ClientSession
from treadle.store.stored_thread import ThreadMeta

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_ASSESSMENTS: Final = 8
"""The maximum number of threads that the guardian assesses for one client at the same time."""


@router.request(REVIEW_START)
async def review_start(
    ctx: Context[ClientSession], params: ReviewStartParams
) -> ReviewStartResponse:
    """Start a review, as a turn of the thread or of a copy of it."""
    server = ctx.session.server
    thread = server.threads.get(params.thread_id)
    settings = thread.settings
    workers = ctx.session.file_workers
    effective = await workers.run(server.configuration.effective, settings.cwd)
    services = server.threads.services
    services.prepare_sandbox()
    git = ConfinedGit(services.sandbox, services.boundary, settings.cwd, effective.command_limits())
    task = await resolve(params.target, git)
    if params.delivery == "detached":
        thread = await _copy(ctx.session, thread)
        await thread_stored(server.threads, thread)
        ctx.after_reply(partial(introduce, ctx.session, thread))
    turn = begin_review(thread, task, model=effective.review_model)
    ctx.after_reply(partial(thread.start_turn, turn))
    return ReviewStartResponse(review_thread_id=thread.id, turn=review_snapshot(turn, task))


async def _copy(session: ClientSession, thread: LoadedThread) -> LoadedThread:
    threads, origin = session.server.threads, thread.meta

    def describe(meta: ThreadMeta) -> ThreadMeta:
        return msgspec.structs.replace(
            meta,
            originator=origin.originator,
            cli_version=origin.cli_version,
            thread_source=origin.thread_source,
            git_info=origin.git_info,
        )

    source = await threads.stored.read(thread.id)
    is_ephemeral = origin.ephemeral
    copy, _ = await fork(
        threads, source, thread.settings, describe=describe, ephemeral=is_ephemeral
    )
    return copy


@router.request(THREAD_GUARDIAN_REVIEW)
async def thread_guardian_review(
    ctx: Context[ClientSession], params: ThreadGuardianReviewParams
) -> ThreadGuardianReviewResponse:
    """Let the guardian assess a call that was added to an idle thread; subscribe to it."""
    from treadle.engine.review.assessment import assess

    session = ctx.session
    thread = session.server.threads.get(params.thread_id)
    session.subscribe(thread, thread.log.last_seq)
    if thread.id in session.assessments:
        raise InvalidRequest(f"a review of thread {thread.id} is running", kind="unsupported")
    if len(session.assessments) >= MAX_ASSESSMENTS:
        raise InvalidRequest(f"a client may have {MAX_ASSESSMENTS} reviews", kind="unsupported")
    session.assessments.add(thread.id)
    # A review may take minutes; other requests for the thread need not wait.
    ctx.release_scope()
    try:
        call_id, review = await assess(thread)
    finally:
        session.assessments.discard(thread.id)
    return ThreadGuardianReviewResponse(call_id, None if review is None else _assessment(review))


def _assessment(review: GuardianApprovalReview) -> ThreadGuardianAssessment:
    return ThreadGuardianAssessment(
        outcome="allow" if review.status == "approved" else "deny",
        rationale=review.rationale or "",
        risk_level=review.risk_level or "high",
        user_authorization=review.user_authorization or "unknown",
    )


@router.request(THREAD_APPROVE_GUARDIAN_DENIED_ACTION)
def thread_approve_guardian_denied_action(
    ctx: Context[ClientSession], params: ThreadApproveGuardianDeniedActionParams
) -> ThreadApproveGuardianDeniedActionResponse:
    """Let the agent retry an action that the guardian denied."""
    overrule(ctx.session.server.threads.get(params.thread_id).context, params.event)
    return ThreadApproveGuardianDeniedActionResponse()
