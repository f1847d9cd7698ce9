"""Requests new tokens from the clients that can have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from treadle.connection.connection import ConnectionLost
from treadle.jsonrpc.errors import RpcError
from treadle.model.provider import CredentialsRejected
from treadle.protocol.account import (
    ChatgptAuthTokensRefreshParams,
    ChatgptAuthTokensRefreshResponse,
)
from treadle.protocol.server_requests import ACCOUNT_CHATGPT_AUTH_TOKENS_REFRESH

if TYPE_CHECKING:
    from treadle.server.session import ClientSession


class TokenOwner:
    """Asks the client that logged in; if it has disconnected, the others, oldest first."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def __call__(
        self, params: ChatgptAuthTokensRefreshParams
    ) -> ChatgptAuthTokensRefreshResponse:
        """Return the tokens of the first client that is connected.

        Raises:
            CredentialsRejected: no client is connected, or it refuses.
        """
        server = self._session.server
        others = [each for each in server.sessions if each is not self._session]
        for session in (self._session, *others):
            if session not in server.sessions or session.client is None:
                continue
            try:
                return await _ask(session, params)
            except ConnectionLost:
                continue
        raise CredentialsRejected("auth refresh request failed: no client is connected")


async def _ask(
    session: ClientSession, params: ChatgptAuthTokensRefreshParams
) -> ChatgptAuthTokensRefreshResponse:
    connection = session.connection
    if connection is None:
        raise ConnectionLost("the client is not connected")
    try:
        return await connection.request(ACCOUNT_CHATGPT_AUTH_TOKENS_REFRESH, params)
    except RpcError as error:
        message = f"auth refresh request failed: code={error.code} message={str(error)[:400]}"
        raise CredentialsRejected(message, is_final=True) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Without the cause, which quotes the answer.
        raise CredentialsRejected("invalid auth refresh response", is_final=True) from None
