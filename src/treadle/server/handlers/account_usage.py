"""The usage of the account: rate limits, token totals and messages of its workspace."""

from __future__ import annotations

from typing import NoReturn

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InvalidRequest
from treadle.protocol import account_usage
from treadle.protocol.account import GetWorkspaceMessagesResponse
from treadle.protocol.base import NoParams
from treadle.protocol.client_requests import (
    ACCOUNT_RATE_LIMITS_READ,
    ACCOUNT_USAGE_READ,
    ACCOUNT_WORKSPACE_MESSAGES_READ,
    CLIENT_REQUESTS,
)
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


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


def _refuse_without_plan(ctx: Context[ClientSession], what: str) -> NoReturn:
    is_signed_in = ctx.session.server.credentials.auth_mode is not None
    needed = "chatgpt" if is_signed_in else "codex account"
    # Upstream's text: its clients show it.
    message = f"{needed} authentication required to read {what}"
    raise InvalidRequest(message, kind="loginRequired")
