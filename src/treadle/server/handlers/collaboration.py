"""Collaboration modes."""

from __future__ import annotations

from typing import Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.protocol.client_requests import CLIENT_REQUESTS, COLLABORATION_MODE_LIST
from treadle.protocol.collaboration import (
    CollaborationModeListParams,
    CollaborationModeListResponse,
    CollaborationModeMask,
)
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

_MODES: Final = (
    CollaborationModeMask(name="Plan", mode="plan", reasoning_effort="medium"),
    CollaborationModeMask(name="Default", mode="default"),
)


@router.request(COLLABORATION_MODE_LIST)
def collaboration_mode_list(
    ctx: Context[ClientSession], _params: CollaborationModeListParams
) -> CollaborationModeListResponse:
    """List the built-in modes, without their instructions to the model."""
    switches = ctx.session.server.configuration.lenient().switches
    is_on = switches.get("collaboration_modes", True)
    return CollaborationModeListResponse(data=list(_MODES) if is_on else [])
