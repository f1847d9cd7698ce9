"""The sandbox of Windows, which this server does not have."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.protocol.base import NoParams
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    WINDOWS_SANDBOX_READINESS,
    WINDOWS_SANDBOX_SETUP_START,
)
from treadle.protocol.notifications import WINDOWS_SANDBOX_SETUP_COMPLETED
from treadle.protocol.windows_sandbox import (
    WindowsSandboxReadinessResponse,
    WindowsSandboxSetupCompletedNotification,
    WindowsSandboxSetupStartParams,
    WindowsSandboxSetupStartResponse,
)
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

# Upstream's texts: its clients show them.
_ERRORS: Final = {
    "elevated": "elevated Windows sandbox setup is only supported on Windows",
    "unelevated": "legacy Windows sandbox setup is only supported on Windows",
}


@router.request(WINDOWS_SANDBOX_READINESS)
def windows_sandbox_readiness(
    _ctx: Context[ClientSession], _params: NoParams
) -> WindowsSandboxReadinessResponse:
    """Return that it is not set up."""
    return WindowsSandboxReadinessResponse("notConfigured")


@router.request(WINDOWS_SANDBOX_SETUP_START)
def windows_sandbox_setup_start(
    ctx: Context[ClientSession], params: WindowsSandboxSetupStartParams
) -> WindowsSandboxSetupStartResponse:
    """Start a setup that fails at once."""
    if params.cwd is not None and not Path(params.cwd).is_absolute():
        raise InvalidInput("cwd", f"cwd must be an absolute path, not {params.cwd!r}")
    completed = WindowsSandboxSetupCompletedNotification(
        params.mode, success=False, error=_ERRORS[params.mode]
    )
    ctx.after_reply(partial(ctx.session.notify_nowait, WINDOWS_SANDBOX_SETUP_COMPLETED, completed))
    return WindowsSandboxSetupStartResponse(started=True)
