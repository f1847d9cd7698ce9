"""Adds the login of an account to the requests to the MCP server with the tools of its apps.

This module imports the HTTP library, so it is imported only when there is such a server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx2

from treadle.engine.mcp.config import AccountLogin
from treadle.model.provider import Bearer


class AccountAuth(httpx2.Auth):
    """Signs requests; the account's own renewal provides the next token when one is rejected."""

    def __init__(self, login: AccountLogin) -> None:
        self._login = login

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request, with a new token if the last one is rejected; none without a login."""
        bearer = await self._login(None)
        if bearer is None:
            raise httpx2.RequestError("not signed in with ChatGPT", request=request)
        _sign(request, bearer)
        response = yield request
        if response.status_code != httpx2.codes.UNAUTHORIZED:
            return
        renewed = await self._login(bearer)
        if renewed is not None and renewed.token != bearer.token:
            _sign(request, renewed)
            yield request


def _sign(request: httpx2.Request, bearer: Bearer) -> None:
    request.headers["Authorization"] = f"Bearer {bearer.token}"
    if bearer.account_id:
        request.headers["chatgpt-account-id"] = bearer.account_id
    if bearer.is_fedramp:
        request.headers["x-openai-fedramp"] = "true"
