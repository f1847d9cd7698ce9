"""The account: signed in with an API key, or not at all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InternalError, InvalidRequest
from treadle.protocol import account_usage
from treadle.protocol.account import (
    AccountLoginCompletedNotification,
    AccountUpdatedNotification,
    ApiKeyAccount,
    ApiKeyLoginAccountParams,
    ApiKeyLoginAccountResponse,
    CancelLoginAccountParams,
    CancelLoginAccountResponse,
    GetAccountParams,
    GetAccountResponse,
    GetWorkspaceMessagesResponse,
    LoginAccountParams,
    LoginAccountResponse,
    LogoutAccountResponse,
)
from treadle.protocol.base import NoParams
from treadle.protocol.client_requests import (
    ACCOUNT_BEDROCK_CHECK_GOV_CLOUD_REQUIREMENTS,
    ACCOUNT_LOGIN_CANCEL,
    ACCOUNT_LOGIN_START,
    ACCOUNT_LOGOUT,
    ACCOUNT_RATE_LIMITS_READ,
    ACCOUNT_READ,
    ACCOUNT_USAGE_READ,
    ACCOUNT_WORKSPACE_MESSAGES_READ,
    CLIENT_REQUESTS,
)
from treadle.protocol.legacy import GET_AUTH_STATUS, GetAuthStatusParams, GetAuthStatusResponse
from treadle.protocol.notifications import ACCOUNT_LOGIN_COMPLETED, ACCOUNT_UPDATED
from treadle.protocol.requirements import (
    BedrockCheckGovCloudRequirementsParams,
    BedrockCheckGovCloudRequirementsResponse,
)
from treadle.server.session import ClientSession

if TYPE_CHECKING:
    from treadle.server.server import Server

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(ACCOUNT_READ)
def account_read(ctx: Context[ClientSession], _params: GetAccountParams) -> GetAccountResponse:
    """Return the account; a provider that needs no login has none."""
    if not _requires_openai_auth(ctx):
        return GetAccountResponse(requires_openai_auth=False)
    is_signed_in = ctx.session.server.credentials.auth_mode is not None
    account = ApiKeyAccount() if is_signed_in else None
    return GetAccountResponse(requires_openai_auth=True, account=account)


@router.request(GET_AUTH_STATUS)
def get_auth_status(
    ctx: Context[ClientSession], params: GetAuthStatusParams
) -> GetAuthStatusResponse:
    """Return the authentication status to clients of the first protocol."""
    if not _requires_openai_auth(ctx):
        return GetAuthStatusResponse(requires_openai_auth=False)
    credentials = ctx.session.server.credentials
    return GetAuthStatusResponse(
        auth_method=credentials.auth_mode,
        auth_token=credentials.api_key if params.include_token else None,
        requires_openai_auth=True,
    )


@router.request(ACCOUNT_LOGIN_START)
async def account_login_start(
    ctx: Context[ClientSession], params: LoginAccountParams
) -> LoginAccountResponse:
    """Store an API key and use it from now on."""
    if not isinstance(params, ApiKeyLoginAccountParams):
        kind = str(type(params).__struct_config__.tag)
        message = f"login of type `{kind}` is not supported by this server yet; use `apiKey`"
        raise InvalidRequest(message, kind="notImplemented", path="type")
    server = ctx.session.server
    if server.configuration.lenient().forced_login_method == "chatgpt":
        # Upstream's text: its clients show it.
        raise InvalidRequest("API key login is disabled. Use ChatGPT login instead.")
    api_key = params.api_key.strip()
    if not api_key:
        raise InvalidRequest("apiKey must not be empty", path="apiKey")
    try:
        await server.settings_workers.run(server.credentials.sign_in, api_key)
    except OSError as error:
        message = f"failed to save the API key: {error.strerror}"
        raise InternalError(message) from error
    ctx.after_reply(partial(_publish_login, server))
    return ApiKeyLoginAccountResponse()


@router.request(ACCOUNT_LOGIN_CANCEL)
def account_login_cancel(
    _ctx: Context[ClientSession], params: CancelLoginAccountParams
) -> CancelLoginAccountResponse:
    """Report that there is no login to cancel: signing in with a key has no pending state."""
    try:
        UUID(params.login_id)
    except ValueError as error:
        message = f"invalid login id: {params.login_id}"
        raise InvalidRequest(message, path="loginId") from error
    return CancelLoginAccountResponse(status="notFound")


@router.request(ACCOUNT_LOGOUT)
async def account_logout(ctx: Context[ClientSession], _params: NoParams) -> LogoutAccountResponse:
    """Delete the key, if there is one."""
    server = ctx.session.server
    try:
        await server.settings_workers.run(server.credentials.sign_out)
    except OSError as error:
        message = f"failed to remove the API key: {error.strerror}"
        raise InternalError(message) from error
    ctx.after_reply(partial(_publish_account, server))
    return LogoutAccountResponse()


@router.request(ACCOUNT_RATE_LIMITS_READ)
def account_rate_limits_read(
    ctx: Context[ClientSession], _params: account_usage.GetAccountRateLimitsParams
) -> account_usage.GetAccountRateLimitsResponse:
    """Refuse: an API key has no plan with rate limits."""
    _refuse_without_plan(ctx, "rate limits")


@router.request(ACCOUNT_USAGE_READ)
def account_usage_read(
    ctx: Context[ClientSession], _params: account_usage.GetAccountTokenUsageParams
) -> account_usage.GetAccountTokenUsageResponse:
    """Refuse, as for rate limits."""
    _refuse_without_plan(ctx, "token usage")


@router.request(ACCOUNT_WORKSPACE_MESSAGES_READ)
def account_workspace_messages_read(
    ctx: Context[ClientSession], _params: NoParams
) -> GetWorkspaceMessagesResponse:
    """Refuse: an API key does not belong to a workspace."""
    _refuse_without_plan(ctx, "workspace messages")


@router.request(ACCOUNT_BEDROCK_CHECK_GOV_CLOUD_REQUIREMENTS)
def account_bedrock_check_gov_cloud_requirements(
    _ctx: Context[ClientSession], _params: BedrockCheckGovCloudRequirementsParams
) -> BedrockCheckGovCloudRequirementsResponse:
    """Return no warning: this server does not use Bedrock."""
    return BedrockCheckGovCloudRequirementsResponse(is_gov_cloud=False, should_warn=False)


def _requires_openai_auth(ctx: Context[ClientSession]) -> bool:
    return ctx.session.server.configuration.lenient().provider.requires_openai_auth


def _publish_login(server: Server) -> None:
    completed = AccountLoginCompletedNotification(success=True)
    server.threads.services.broadcast(ACCOUNT_LOGIN_COMPLETED, completed)
    _publish_account(server)


def _publish_account(server: Server) -> None:
    updated = AccountUpdatedNotification(auth_mode=server.credentials.auth_mode)
    server.threads.services.broadcast(ACCOUNT_UPDATED, updated)


def _refuse_without_plan(ctx: Context[ClientSession], what: str) -> NoReturn:
    is_signed_in = ctx.session.server.credentials.auth_mode is not None
    needed = "chatgpt" if is_signed_in else "codex account"
    # Upstream's text: its clients show it.
    message = f"{needed} authentication required to read {what}"
    raise InvalidRequest(message, kind="loginRequired")
