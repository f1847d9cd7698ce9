"""The account: how the server is logged in, and the ways to log in and out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, assert_never
from uuid import UUID

from treadle.accounts.credentials import external_tokens
from treadle.accounts.tokens import InvalidToken
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InternalError, InvalidRequest
from treadle.model.provider import CredentialsRejected
from treadle.protocol.account import (
    AccountLoginCompletedNotification,
    AmazonBedrockAccessKeysLoginAccountParams,
    AmazonBedrockLoginAccountParams,
    ApiKeyAccount,
    ApiKeyLoginAccountParams,
    ApiKeyLoginAccountResponse,
    CancelLoginAccountParams,
    CancelLoginAccountResponse,
    ChatgptAccount,
    ChatgptAuthTokensLoginAccountParams,
    ChatgptAuthTokensLoginAccountResponse,
    ChatgptDeviceCodeLoginAccountParams,
    ChatgptDeviceCodeLoginAccountResponse,
    ChatgptLoginAccountParams,
    ChatgptLoginAccountResponse,
    GetAccountParams,
    GetAccountResponse,
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
    ACCOUNT_READ,
    CLIENT_REQUESTS,
)
from treadle.protocol.legacy import GET_AUTH_STATUS, GetAuthStatusParams, GetAuthStatusResponse
from treadle.protocol.notifications import ACCOUNT_LOGIN_COMPLETED
from treadle.protocol.requirements import (
    BedrockCheckGovCloudRequirementsParams,
    BedrockCheckGovCloudRequirementsResponse,
)
from treadle.server.session import ClientSession
from treadle.store.journal import StorageFailed

if TYPE_CHECKING:
    from treadle.server.server import Server

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_NAME: Final = 100
"""Maximum number of characters of a client's name in the address of a login."""

MAX_API_KEY: Final = 64 * 1024
MAX_ACCOUNT_ID: Final = 1024

# Upstream's texts in this file: its clients show them.
_EXTERNAL: Final = (
    "External auth is active. Use account/login/start (chatgptAuthTokens) to update it or"
    " account/logout to clear it."
)


@router.request(ACCOUNT_READ)
async def account_read(ctx: Context[ClientSession], params: GetAccountParams) -> GetAccountResponse:
    """Return the account; a provider that needs no login has none."""
    server = ctx.session.server
    if params.refresh_token:
        await _refresh(server)
    if not _requires_openai_auth(ctx):
        return GetAccountResponse(requires_openai_auth=False)
    login = server.credentials.current()
    if login is None or server.credentials.renewal.is_refused(login):
        return GetAccountResponse(requires_openai_auth=True)
    if not login.is_chatgpt:
        return GetAccountResponse(requires_openai_auth=True, account=ApiKeyAccount())
    account = ChatgptAccount(email=login.claims.email, plan_type=login.plan or "unknown")
    return GetAccountResponse(requires_openai_auth=True, account=account)


@router.request(GET_AUTH_STATUS)
async def get_auth_status(
    ctx: Context[ClientSession], params: GetAuthStatusParams
) -> GetAuthStatusResponse:
    """Return the authentication status to clients of the first protocol."""
    server = ctx.session.server
    if params.refresh_token:
        await _refresh(server)
    if not _requires_openai_auth(ctx):
        return GetAuthStatusResponse(requires_openai_auth=False)
    await server.credentials.login()  # renews tokens that have expired
    login = server.credentials.current()
    if login is None:
        return GetAuthStatusResponse(requires_openai_auth=True)
    shows_token = params.include_token and not server.credentials.renewal.is_refused(login)
    return GetAuthStatusResponse(
        auth_method=login.mode,
        auth_token=login.token if shows_token else None,
        requires_openai_auth=True,
    )


@router.request(ACCOUNT_LOGIN_START)
async def account_login_start(
    ctx: Context[ClientSession], params: LoginAccountParams
) -> LoginAccountResponse:
    """Log in, or begin a login that its user completes."""
    match params:
        case ApiKeyLoginAccountParams():
            return await _use_key(ctx, params)
        case ChatgptLoginAccountParams():
            return await _start_in_browser(ctx)
        case ChatgptDeviceCodeLoginAccountParams():
            return await _start_with_code(ctx)
        case ChatgptAuthTokensLoginAccountParams():
            return _use_tokens(ctx, params)
        case AmazonBedrockLoginAccountParams() | AmazonBedrockAccessKeysLoginAccountParams():
            raise _bedrock(params)
    assert_never(params)


def _bedrock(params: LoginAccountParams) -> InvalidRequest:
    kind = str(type(params).__struct_config__.tag)
    message = f"login of type `{kind}` is not supported: no provider for Amazon Bedrock"
    return InvalidRequest(message, kind="unsupported", path="type")


async def _use_key(
    ctx: Context[ClientSession], params: ApiKeyLoginAccountParams
) -> ApiKeyLoginAccountResponse:
    server = ctx.session.server
    _refuse_external(server)
    if not server.credentials.settings.allows("api"):
        raise InvalidRequest("API key login is disabled. Use ChatGPT login instead.")
    api_key = params.api_key.strip()
    if not api_key:
        raise InvalidRequest("apiKey must not be empty", path="apiKey")
    _check_length(api_key, "apiKey", MAX_API_KEY)
    server.account_logins.cancel()
    try:
        await server.settings_workers.run(server.credentials.sign_in, api_key)
    except OSError as error:
        message = f"failed to save the API key: {error.strerror}"
        failure = StorageFailed(str(server.configuration.home), error)
        about = {"errno": failure.code, "path": failure.folder}
        raise InternalError(message, kind="io", **about) from error
    ctx.after_reply(partial(_publish_login, server))
    return ApiKeyLoginAccountResponse()


async def _start_in_browser(ctx: Context[ClientSession]) -> ChatgptLoginAccountResponse:
    server = ctx.session.server
    _refuse_chatgpt(server)
    client = ctx.session.client
    name = "treadle" if client is None else client.client_info.name[:MAX_NAME]
    try:
        return await server.account_logins.start_in_browser(name)
    except OSError as error:
        message = f"failed to start login server: {error.strerror or error}"
        raise InternalError(message) from error


async def _start_with_code(ctx: Context[ClientSession]) -> ChatgptDeviceCodeLoginAccountResponse:
    from treadle.accounts.login.device_code import NotEnabled
    from treadle.accounts.login.tokens import LoginError

    server = ctx.session.server
    _refuse_chatgpt(server)
    try:
        return await server.account_logins.start_with_code()
    except NotEnabled as error:
        raise InvalidRequest(str(error)) from error
    except LoginError as error:
        message = f"failed to request device code: {error}"
        raise InternalError(message) from error


def _use_tokens(
    ctx: Context[ClientSession], params: ChatgptAuthTokensLoginAccountParams
) -> ChatgptAuthTokensLoginAccountResponse:
    from treadle.server.requests.token_requests import TokenOwner

    server = ctx.session.server
    settings = server.credentials.settings
    _check_length(params.chatgpt_account_id, "chatgptAccountId", MAX_ACCOUNT_ID)
    if not settings.allows("chatgpt"):
        raise InvalidRequest("External ChatGPT auth is disabled. Use API key login instead.")
    try:
        tokens = external_tokens(
            params.access_token,
            params.chatgpt_account_id,
            params.chatgpt_plan_type,
            params.id_token,
        )
    except InvalidToken as error:
        raise InternalError(f"failed to set external auth: {error}") from None
    if not tokens.account_id:
        message = "missing field `chatgptAccountId`, also in the tokens"
        raise InvalidRequest(f"Invalid request: {message}", path="chatgptAccountId")
    if not settings.allows_workspace(tokens.account_id):
        names = ", ".join(f'"{name}"' for name in settings.workspaces or ())
        message = (
            f"External auth must use one of workspace(s) [{names}], but received"
            f' "{tokens.account_id}".'
        )
        raise InvalidRequest(message, path="chatgptAccountId")
    server.account_logins.cancel()
    server.credentials.use_external(tokens, TokenOwner(ctx.session))
    ctx.after_reply(partial(_publish_login, server))
    return ChatgptAuthTokensLoginAccountResponse()


@router.request(ACCOUNT_LOGIN_CANCEL)
def account_login_cancel(
    ctx: Context[ClientSession], params: CancelLoginAccountParams
) -> CancelLoginAccountResponse:
    """Cancel the login that waits for its user."""
    try:
        login_id = str(UUID(params.login_id))
    except ValueError as error:
        message = f"invalid login id: {params.login_id}"
        raise InvalidRequest(message, path="loginId") from error
    cancel = ctx.session.server.account_logins.take(login_id)
    if cancel is None:
        return CancelLoginAccountResponse(status="notFound")
    ctx.after_reply(cancel)
    return CancelLoginAccountResponse(status="canceled")


@router.request(ACCOUNT_LOGOUT)
async def account_logout(ctx: Context[ClientSession], _params: NoParams) -> LogoutAccountResponse:
    """Delete the login, if there is one, and revoke its tokens."""
    from treadle.accounts.revocation import revoke

    server = ctx.session.server
    credentials = server.credentials
    server.account_logins.cancel()
    document = None if credentials.has_external else credentials.document()
    try:
        await server.settings_workers.run(credentials.sign_out)
    except OSError as error:
        message = f"logout failed: {error.strerror}"
        failure = StorageFailed(str(server.configuration.home), error)
        about = {"errno": failure.code, "path": failure.folder}
        raise InternalError(message, kind="io", **about) from error
    # After it is gone here: the login of this server ends even if the issuer is not reachable.
    await revoke(credentials, document)
    ctx.after_reply(server.publish_account)
    return LogoutAccountResponse()


@router.request(ACCOUNT_BEDROCK_CHECK_GOV_CLOUD_REQUIREMENTS)
def account_bedrock_check_gov_cloud_requirements(
    _ctx: Context[ClientSession], _params: BedrockCheckGovCloudRequirementsParams
) -> BedrockCheckGovCloudRequirementsResponse:
    """Return no warning: this server does not use Bedrock."""
    return BedrockCheckGovCloudRequirementsResponse(is_gov_cloud=False, should_warn=False)


def _requires_openai_auth(ctx: Context[ClientSession]) -> bool:
    return ctx.session.server.configuration.lenient().provider.requires_openai_auth


async def _refresh(server: Server) -> None:
    """Renew the tokens; as upstream, a failure does not fail the request."""
    try:
        await server.credentials.renewal.refresh()
    except CredentialsRejected:
        return


def _refuse_external(server: Server) -> None:
    """Refuse another login while a client owns the one in force."""
    if server.credentials.has_external:
        raise InvalidRequest(_EXTERNAL)


def _refuse_chatgpt(server: Server) -> None:
    _refuse_external(server)
    if not server.credentials.settings.allows("chatgpt"):
        raise InvalidRequest("ChatGPT login is disabled. Use API key login instead.")


def _check_length(text: str | None, field: str, limit: int) -> None:
    """Refuse a text that could be stored, but not read or sent."""
    if text is not None and len(text) > limit:
        raise InvalidRequest(f"{field} must have at most {limit} characters", path=field)


def _publish_login(server: Server) -> None:
    completed = AccountLoginCompletedNotification(success=True)
    server.threads.services.broadcast(ACCOUNT_LOGIN_COMPLETED, completed)
    server.publish_account()
