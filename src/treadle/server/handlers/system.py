"""The server itself: its machine, its health, its user, and what it remembers."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.jsonrpc.errors import InternalError, InvalidRequest
from treadle.protocol.account import (
    GatewayOAuthCancelResponse,
    GatewayOAuthLoginParams,
    GatewayOAuthLoginResponse,
    GatewayOAuthReadParams,
    GatewayOAuthReadResponse,
)
from treadle.protocol.base import NoParams
from treadle.protocol.client_requests import (
    ACCOUNT_GATEWAY_OAUTH_CANCEL,
    ACCOUNT_GATEWAY_OAUTH_LOGIN,
    ACCOUNT_GATEWAY_OAUTH_READ,
    CLIENT_REQUESTS,
    ENVIRONMENT_INFO,
    ENVIRONMENT_STATUS,
    MEMORY_RESET,
    MEMORY_STATUS,
    SERVER_DIAGNOSTICS,
    THREAD_MEMORY_MODE_SET,
    THREAD_MEMORY_READ,
    USER_VERIFICATION_CANCEL,
    USER_VERIFICATION_DELETE,
    USER_VERIFICATION_ENROLL,
    USER_VERIFICATION_STATUS,
    USER_VERIFICATION_VERIFY,
)
from treadle.protocol.diagnostics import (
    ServerDiagnosticsGauge,
    ServerDiagnosticsParams,
    ServerDiagnosticsProcess,
    ServerDiagnosticsResponse,
)
from treadle.protocol.environment import (
    EnvironmentInfoParams,
    EnvironmentInfoResponse,
    EnvironmentShellInfo,
    EnvironmentStatusParams,
    EnvironmentStatusResponse,
)
from treadle.protocol.memory import (
    MemoryResetResponse,
    MemoryStatusParams,
    MemoryStatusResponse,
    ThreadMemoryModeSetParams,
    ThreadMemoryModeSetResponse,
    ThreadMemoryReadParams,
    ThreadMemoryReadResponse,
)
from treadle.protocol.user_verification import (
    UserVerificationCancelParams,
    UserVerificationCancelResponse,
    UserVerificationDeleteParams,
    UserVerificationDeleteResponse,
    UserVerificationEnrollParams,
    UserVerificationEnrollResponse,
    UserVerificationStatusParams,
    UserVerificationStatusResponse,
    UserVerificationVerifyParams,
    UserVerificationVerifyResponse,
)
from treadle.server.session import ClientSession
from treadle.support.files.working_folder import working_folder

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

LOCAL: Final = "local"
"""The id of the only environment: the machine of the server."""

_UNVERIFIED: Final = "User verification is not available in this build or account."
_NO_MEMORY: Final = "this server keeps no memories of threads"


# -- the machine


@router.request(ENVIRONMENT_INFO)
def environment_info(
    _ctx: Context[ClientSession],
    params: EnvironmentInfoParams,
) -> EnvironmentInfoResponse:
    """Return the shell and the folder of the server."""
    from treadle.engine.terminals.shell import user_shell

    if params.environment_id != LOCAL:
        message = f"unknown environment id `{params.environment_id[:200]}`"
        raise InvalidInput("environmentId", message)
    shell = user_shell()
    return EnvironmentInfoResponse(
        EnvironmentShellInfo(Path(shell).name, shell), cwd=Path(working_folder()).as_uri()
    )


@router.request(ENVIRONMENT_STATUS)
def environment_status(
    _ctx: Context[ClientSession],
    params: EnvironmentStatusParams,
) -> EnvironmentStatusResponse:
    """Return whether commands can run in an environment."""
    if params.environment_id == LOCAL:
        return EnvironmentStatusResponse("ready")
    error = f"unknown environment id `{params.environment_id[:200]}`"
    return EnvironmentStatusResponse("unknown", error)


@router.request(SERVER_DIAGNOSTICS)
def server_diagnostics(
    ctx: Context[ClientSession],
    _params: ServerDiagnosticsParams,
) -> ServerDiagnosticsResponse:
    """Return the memory of the server, and how much it has to do."""
    server = ctx.session.server
    threads = [server.threads.get(id_) for id_ in server.threads.loaded_ids()]
    connections = [session.connection for session in server.sessions]
    gauges = {
        "app.requests.in_flight": sum(each.in_flight for each in connections if each is not None),
        "app.clients.connected": len(server.sessions),
        "core.threads.live": len(threads),
        "core.turns.active": sum(thread.turn is not None for thread in threads),
    }
    return ServerDiagnosticsResponse(
        gauges=[ServerDiagnosticsGauge(name, value) for name, value in gauges.items()],
        process=ServerDiagnosticsProcess(os.getpid(), resident_memory_bytes=_resident_bytes()),
    )


def _resident_bytes() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return None  # not Linux
    return pages * resource.getpagesize()


# -- memories


@router.request(MEMORY_STATUS)
def memory_status(
    _ctx: Context[ClientSession],
    _params: MemoryStatusParams,
) -> MemoryStatusResponse:
    """Return that no thread has become a memory."""
    return MemoryStatusResponse(v2_consolidated_threads=0, v2_ready=False)


@router.request(MEMORY_RESET)
def memory_reset(
    _ctx: Context[ClientSession],
    _params: NoParams,
) -> MemoryResetResponse:
    """Delete all memories, of which there are none."""
    return MemoryResetResponse()


@router.request(THREAD_MEMORY_MODE_SET)
def thread_memory_mode_set(
    ctx: Context[ClientSession], params: ThreadMemoryModeSetParams
) -> ThreadMemoryModeSetResponse:
    """Keep a thread out of memory, as every thread is."""
    ctx.session.server.threads.get(params.thread_id)
    if params.mode == "enabled":
        raise InvalidRequest(_NO_MEMORY, kind="unsupported", path="mode")
    return ThreadMemoryModeSetResponse()


@router.request(THREAD_MEMORY_READ)
def thread_memory_read(
    ctx: Context[ClientSession], params: ThreadMemoryReadParams
) -> ThreadMemoryReadResponse:
    """Return that a thread uses no memories."""
    ctx.session.server.threads.get(params.thread_id)
    return ThreadMemoryReadResponse()


# -- the user in front of the machine


@router.request(USER_VERIFICATION_STATUS)
def user_verification_status(
    _ctx: Context[ClientSession],
    _params: UserVerificationStatusParams,
) -> UserVerificationStatusResponse:
    """Return that this machine cannot verify its user, as upstream on Linux."""
    return UserVerificationStatusResponse(
        unavailable_message=_UNVERIFIED, unavailable_reason="providerUnavailable"
    )


def _unverifiable() -> InternalError:
    return InternalError(_UNVERIFIED, kind="unavailable", reason="providerUnavailable")


@router.request(USER_VERIFICATION_ENROLL)
def user_verification_enroll(
    _ctx: Context[ClientSession],
    _params: UserVerificationEnrollParams,
) -> UserVerificationEnrollResponse:
    """Refuse: see `user_verification_status`."""
    raise _unverifiable()


@router.request(USER_VERIFICATION_VERIFY)
def user_verification_verify(
    _ctx: Context[ClientSession],
    _params: UserVerificationVerifyParams,
) -> UserVerificationVerifyResponse:
    """Refuse: see `user_verification_status`."""
    raise _unverifiable()


@router.request(USER_VERIFICATION_DELETE)
def user_verification_delete(
    _ctx: Context[ClientSession],
    _params: UserVerificationDeleteParams,
) -> UserVerificationDeleteResponse:
    """Refuse: see `user_verification_status`."""
    raise _unverifiable()


@router.request(USER_VERIFICATION_CANCEL)
def user_verification_cancel(
    _ctx: Context[ClientSession],
    _params: UserVerificationCancelParams,
) -> UserVerificationCancelResponse:
    """Cancel a verification, of which none can run."""
    return UserVerificationCancelResponse()


# -- sign-ins to gateways


@router.request(ACCOUNT_GATEWAY_OAUTH_READ)
async def account_gateway_oauth_read(
    ctx: Context[ClientSession], params: GatewayOAuthReadParams
) -> GatewayOAuthReadResponse:
    """Return that the provider requires no sign-in of this kind."""
    effective = await ctx.session.file_workers.run(ctx.session.server.configuration.lenient)
    provider_id = params.model_provider or effective.model_provider
    provider = effective.providers.get(provider_id)
    if provider is None:
        raise InvalidInput("modelProvider", f"Model provider `{provider_id[:200]}` not found")
    return GatewayOAuthReadResponse(
        provider_id, provider.name or provider_id, required=False, supports_device_auth=False
    )


@router.request(ACCOUNT_GATEWAY_OAUTH_LOGIN)
def account_gateway_oauth_login(
    _ctx: Context[ClientSession],
    _params: GatewayOAuthLoginParams,
) -> GatewayOAuthLoginResponse:
    """Refuse: no provider of this server uses OAuth; headers and keys are configured."""
    message = "The selected provider does not use gateway OAuth"
    raise InvalidRequest(message, kind="unsupported")


@router.request(ACCOUNT_GATEWAY_OAUTH_CANCEL)
def account_gateway_oauth_cancel(
    _ctx: Context[ClientSession],
    _params: NoParams,
) -> GatewayOAuthCancelResponse:
    """Cancel a sign-in, of which none can run."""
    return GatewayOAuthCancelResponse()
