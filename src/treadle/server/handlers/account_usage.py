"""What ChatGPT's backend knows of the account: limits, token totals, messages, sign-ins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InternalError, InvalidRequest
from treadle.model.provider import CredentialsRejected
from treadle.protocol import account_session, account_usage
from treadle.protocol.account import GetWorkspaceMessagesResponse
from treadle.protocol.base import NoParams
from treadle.protocol.client_requests import (
    ACCOUNT_RATE_LIMIT_RESET_CREDIT_CONSUME,
    ACCOUNT_RATE_LIMITS_READ,
    ACCOUNT_SECURITY_SETUP_READ,
    ACCOUNT_SEND_ADD_CREDITS_NUDGE_EMAIL,
    ACCOUNT_SESSION_LIST,
    ACCOUNT_SESSION_SWITCH,
    ACCOUNT_USAGE_READ,
    ACCOUNT_WORKSPACE_MESSAGES_READ,
    CLIENT_REQUESTS,
)
from treadle.server.errors import check_uuid
from treadle.server.session import ClientSession
from treadle.support.concurrency.imports import import_late

if TYPE_CHECKING:
    from treadle.accounts.backend import AccountService
    from treadle.accounts.credentials import OpenaiLogin

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

R = TypeVar("R")

USAGE_SECONDS: Final = 10.0
MESSAGES_SECONDS: Final = 1.0
"""How long the backend may take; upstream's values."""

MAX_KEY: Final = 256
"""Maximum number of characters of the names that a client gives the backend."""

_TOO_MANY: Final = 429
_OUTCOMES: Final[dict[str, account_usage.ConsumeAccountRateLimitResetCreditOutcome]] = {
    "reset": "reset",
    "nothing_to_reset": "nothingToReset",
    "no_credit": "noCredit",
    "already_redeemed": "alreadyRedeemed",
}


@router.request(ACCOUNT_RATE_LIMITS_READ)
async def account_rate_limits_read(
    ctx: Context[ClientSession], params: account_usage.GetAccountRateLimitsParams
) -> account_usage.GetAccountRateLimitsResponse:
    """Read the limits of a ChatGPT plan."""
    _chatgpt_login(ctx, "to read rate limits")
    await import_late("treadle.accounts.usage")
    from treadle.accounts.usage import read_rate_limits

    async def read(backend: AccountService) -> account_usage.GetAccountRateLimitsResponse:
        with_credits = not params.exclude_reset_credit_details
        return await read_rate_limits(backend, with_credits=with_credits)

    return await _ask(ctx, read, "failed to fetch codex rate limits")


@router.request(ACCOUNT_USAGE_READ)
async def account_usage_read(
    ctx: Context[ClientSession], params: account_usage.GetAccountTokenUsageParams
) -> account_usage.GetAccountTokenUsageResponse:
    """Read the token totals of a ChatGPT account, or what one thread has cost."""
    if params.thread_id is not None:
        check_uuid(params.thread_id, "threadId")
    _chatgpt_login(ctx, "to read token usage")
    if params.thread_id is not None:
        return await _thread_usage(ctx, params.thread_id)
    await import_late("treadle.accounts.usage")
    from treadle.accounts.usage import read_token_usage

    what = "failed to fetch token usage profile"
    return await _ask(ctx, read_token_usage, what, seconds=USAGE_SECONDS)


async def _thread_usage(
    ctx: Context[ClientSession], thread_id: str
) -> account_usage.GetAccountTokenUsageResponse:
    await import_late("treadle.accounts.thread_estimate")
    from treadle.accounts.thread_estimate import read_thread_usage

    read = partial(read_thread_usage, thread_id=thread_id)
    usage = await _ask(ctx, read, "failed to fetch thread usage", seconds=USAGE_SECONDS)
    # As upstream: the totals of the account are not read with it.
    totals = account_usage.AccountTokenUsageSummary()
    return account_usage.GetAccountTokenUsageResponse(totals, thread_usage=usage)


@router.request(ACCOUNT_WORKSPACE_MESSAGES_READ)
async def account_workspace_messages_read(
    ctx: Context[ClientSession], _params: NoParams
) -> GetWorkspaceMessagesResponse:
    """Read the messages of a ChatGPT workspace."""
    _chatgpt_login(ctx, "to read workspace messages")
    await import_late("treadle.accounts.usage")
    from treadle.accounts.usage import read_messages

    what = "failed to fetch workspace messages"
    return await _ask(ctx, read_messages, what, seconds=MESSAGES_SECONDS)


@router.request(ACCOUNT_RATE_LIMIT_RESET_CREDIT_CONSUME)
async def account_rate_limit_reset_credit_consume(
    ctx: Context[ClientSession], params: account_usage.ConsumeAccountRateLimitResetCreditParams
) -> account_usage.ConsumeAccountRateLimitResetCreditResponse:
    """Spend a credit to reset the limits of a ChatGPT plan."""
    _check_name(params.idempotency_key, "idempotencyKey")
    if params.credit_id is not None:
        _check_name(params.credit_id, "creditId")
    _chatgpt_login(ctx, "for rate limit reset credits")
    await import_late("treadle.accounts.usage")
    from treadle.accounts.usage import redeem_reset_credit

    async def spend(backend: AccountService) -> str:
        return await redeem_reset_credit(backend, params.idempotency_key, params.credit_id)

    outcome = await _ask(ctx, spend, "failed to consume rate limit reset")
    return account_usage.ConsumeAccountRateLimitResetCreditResponse(outcome=_OUTCOMES[outcome])


@router.request(ACCOUNT_SEND_ADD_CREDITS_NUDGE_EMAIL)
async def account_send_add_credits_nudge_email(
    ctx: Context[ClientSession], params: account_usage.SendAddCreditsNudgeEmailParams
) -> account_usage.SendAddCreditsNudgeEmailResponse:
    """Have the backend send an email to the owner of the workspace."""
    _chatgpt_login(ctx, "to notify workspace owner")
    await import_late("treadle.accounts.backend")
    from treadle.accounts.backend import BackendError

    async def send(backend: AccountService) -> account_usage.AddCreditsNudgeEmailStatus:
        body = {"credit_type": params.credit_type}
        try:
            await backend.post("accounts/send_add_credits_nudge_email", body, dict)
        except BackendError as error:
            if error.status != _TOO_MANY:
                raise
            return "cooldown_active"
        return "sent"

    status = await _ask(ctx, send, "failed to notify workspace owner")
    return account_usage.SendAddCreditsNudgeEmailResponse(status=status)


@router.request(ACCOUNT_SECURITY_SETUP_READ)
async def account_security_setup_read(
    ctx: Context[ClientSession], _params: NoParams
) -> account_session.GetAccountSecuritySetupResponse:
    """Read the notice about the security of the account; no failure is worth an error."""
    login = ctx.session.server.credentials.current()
    if login is None or login.mode != "chatgpt":
        return account_session.GetAccountSecuritySetupResponse()
    await import_late("treadle.accounts.sessions")
    from treadle.accounts.backend import AccountService
    from treadle.accounts.sessions import read_notice

    backend = AccountService(ctx.session.server.credentials, seconds=USAGE_SECONDS)
    notice = await read_notice(backend, login)
    return account_session.GetAccountSecuritySetupResponse(notice=notice)


@router.request(ACCOUNT_SESSION_LIST)
async def account_session_list(
    ctx: Context[ClientSession], params: account_session.AccountSessionsListParams
) -> account_session.AccountSessionsResponse:
    """List the ChatGPT login of the home, which has only one at a time."""
    await import_late("treadle.accounts.sessions")
    from treadle.accounts.backend import AccountService
    from treadle.accounts.sessions import list_sessions

    credentials = ctx.session.server.credentials
    backend = AccountService(credentials, seconds=USAGE_SECONDS)
    return await list_sessions(credentials, backend if params.refresh_workspace_metadata else None)


@router.request(ACCOUNT_SESSION_SWITCH)
async def account_session_switch(
    ctx: Context[ClientSession], params: account_session.AccountSessionsSwitchParams
) -> account_session.AccountSessionsSwitchResponse:
    """Use another workspace of the ChatGPT login."""
    _check_name(params.account_id, "accountId")
    await import_late("treadle.accounts.sessions")
    from treadle.accounts.backend import BackendError
    from treadle.accounts.sessions import SwitchRefused, list_sessions, switch_workspace

    server = ctx.session.server
    try:
        has_changed = await switch_workspace(
            server.credentials, server.settings_workers, params.session_id, params.account_id
        )
    except SwitchRefused as error:
        raise InvalidRequest(str(error)) from None
    except (BackendError, CredentialsRejected) as error:
        message = f"failed to switch the workspace: {error}"
        raise InternalError(message) from None
    if has_changed:
        ctx.after_reply(server.publish_account)
    return await list_sessions(server.credentials)


def _chatgpt_login(ctx: Context[ClientSession], purpose: str) -> OpenaiLogin:
    """Return the login, or refuse with upstream's texts, which clients show."""
    login = ctx.session.server.credentials.current()
    if login is None or not login.is_chatgpt:
        needed = "codex account" if login is None else "chatgpt"
        message = f"{needed} authentication required {purpose}"
        raise InvalidRequest(message, kind="loginRequired")
    return login


async def _ask(
    ctx: Context[ClientSession],
    ask: Callable[[AccountService], Awaitable[R]],
    what: str,
    *,
    seconds: float | None = None,
) -> R:
    """Ask the backend; its failure is that of the request."""
    from treadle.accounts.backend import AccountService, BackendError

    try:
        return await ask(AccountService(ctx.session.server.credentials, seconds=seconds))
    except (BackendError, CredentialsRejected) as error:
        message = f"{what}: {error}"
        raise InternalError(message) from None


def _check_name(value: str, field: str) -> None:
    if not value:
        message = f"{field} must not be empty"
        raise InvalidRequest(message, path=field)
    if len(value) > MAX_KEY:
        message = f"{field} has {len(value)} characters, expected at most {MAX_KEY}"
        raise InvalidRequest(message, path=field)
