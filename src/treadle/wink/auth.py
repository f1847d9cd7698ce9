"""Login and token refresh, for older and newer servers at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from treadle.client.async_client import AsyncClient
from treadle.protocol.account import (
    ApiKeyLoginAccountParams,
    ChatgptAuthTokensRefreshParams,
    LoginAccountResponse,
)
from treadle.protocol.base import JsonValue, Params
from treadle.protocol.client_requests import ACCOUNT_LOGIN_START
from treadle.protocol.method import Request
from treadle.protocol.server_requests import ACCOUNT_CHATGPT_AUTH_TOKENS_REFRESH
from treadle.wink.config import ApiKeyAuth, CodexAuthMode, ExternalTokenAuth

IN_MEMORY: Final = ("-c", 'cli_auth_credentials_store="ephemeral"')
"""Keeps a server from writing the key to the user's `auth.json`."""

Renew: TypeAlias = Callable[[str], ExternalTokenAuth]

_CLAIMS: Final = "https://api.openai.com/auth"


class _Tokens(Params, frozen=True):
    """Tokens under the names of all releases: older servers read one of them, newer two others."""

    access_token: str
    chatgpt_account_id: str
    id_token: str
    chatgpt_plan_type: str | None = None


class _TokenLogin(_Tokens, frozen=True, tag="chatgptAuthTokens"):
    """The tokens as login parameters."""


_TOKEN_LOGIN: Final[Request[_TokenLogin, JsonValue]] = Request(
    "account/login/start", _TokenLogin, LoginAccountResponse
)


async def sign_in(client: AsyncClient, mode: CodexAuthMode) -> None:
    """Log in, and register the handler that refreshes the tokens.

    Raises:
        ClientError: the server refuses.
    """
    if isinstance(mode, ApiKeyAuth):
        await client.request(ACCOUNT_LOGIN_START, ApiKeyLoginAccountParams(mode.api_key))
        return
    if mode.refresh is not None:
        _handle_refresh(client, mode, mode.refresh)
    await client.request(_TOKEN_LOGIN, _TokenLogin(**_fields(mode)))


def _handle_refresh(client: AsyncClient, mode: ExternalTokenAuth, renew: Renew) -> None:
    def refresh(request: ChatgptAuthTokensRefreshParams) -> _Tokens:
        tokens = renew(request.reason)
        account, plan = tokens.account_id or mode.account_id, tokens.plan_type or mode.plan_type
        return _Tokens(**_fields(replace(tokens, account_id=account, plan_type=plan)))

    client.core.server_requests.handle(ACCOUNT_CHATGPT_AUTH_TOKENS_REFRESH, refresh)


def _fields(mode: ExternalTokenAuth) -> dict[str, JsonValue]:
    claims = {**_claims(mode.access_token), **_claims(mode.id_token)}
    return {
        "access_token": mode.access_token,
        "id_token": mode.id_token,
        "chatgpt_account_id": mode.account_id or str(claims.get("chatgpt_account_id") or ""),
        "chatgpt_plan_type": mode.plan_type or claims.get("chatgpt_plan_type"),
    }


def _claims(token: str) -> dict[str, JsonValue]:
    """Return a token's claims about its owner, unverified: the server verifies them."""
    import jwt

    try:
        claims = jwt.decode(token, options={"verify_signature": False}).get(_CLAIMS)
    except jwt.InvalidTokenError:
        return {}
    return claims if isinstance(claims, dict) else {}
