"""Collaboration modes."""

from __future__ import annotations

from typing import Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.conversation.plans.approved import IMPLEMENT_PLAN, add_approved_plan
from treadle.jsonrpc.errors import InvalidParams
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    COLLABORATION_MODE_LIST,
    THREAD_PREPARE_APPROVED_PLAN,
)
from treadle.protocol.collaboration import (
    CollaborationModeListParams,
    CollaborationModeListResponse,
    CollaborationModeMask,
)
from treadle.protocol.sample import (
    ThreadPrepareApprovedPlanParams,
    ThreadPrepareApprovedPlanResponse,
)
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

_MODES: Final = (
    CollaborationModeMask(name="Plan", mode="plan", reasoning_effort="medium"),
    CollaborationModeMask(name="Default", mode="default"),
)


@router.request(THREAD_PREPARE_APPROVED_PLAN)
def thread_prepare_approved_plan(
    ctx: Context[ClientSession], params: ThreadPrepareApprovedPlanParams
) -> ThreadPrepareApprovedPlanResponse:
    """Add a plan to the context of a thread, and return the message that starts the work."""
    thread = ctx.session.server.threads.get(params.thread_id)
    if params.attachment_path is not None and not params.attachment_path.startswith("/"):
        raise InvalidParams(
            "attachmentPath must be an absolute path on the server", path="attachmentPath"
        )
    add_approved_plan(thread.context, params.markdown)
    return ThreadPrepareApprovedPlanResponse(IMPLEMENT_PLAN)


@router.request(COLLABORATION_MODE_LIST)
def collaboration_mode_list(
    ctx: Context[ClientSession], _params: CollaborationModeListParams
) -> CollaborationModeListResponse:
    """List the built-in modes, without their instructions to the model."""
    switches = ctx.session.server.configuration.lenient().switches
    is_on = switches.get("collaboration_modes", True)
    return CollaborationModeListResponse(data=list(_MODES) if is_on else [])
