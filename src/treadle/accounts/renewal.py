"""Renews the tokens of a ChatGPT login: one renewal at a time, in all processes of a home.

The issuer accepts a refresh token once, so a renewal that has begun is never cancelled, and its
result is stored before anyone uses it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.accounts.credentials import OpenaiLogin, external_tokens, login_of
from treadle.accounts.document import AuthDocument, ManagedTokens
from treadle.accounts.renewal_lock import renewing
from treadle.accounts.tokens import InvalidToken
from treadle.model.provider import CredentialsRejected
from treadle.protocol.account import ChatgptAuthTokensRefreshParams
from treadle.protocol.base import JsonValue
from treadle.support.concurrency.imports import import_late
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.support.concurrency.workers import Workers

if TYPE_CHECKING:
    from treadle.accounts.credentials import CredentialStore
    from treadle.accounts.services import ServiceAnswer

LOCK: Final = "auth.lock"
LOCK_SECONDS: Final = 45.0
"""How long another process may take: longer than a request to the issuer."""

CLIENT_SECONDS: Final = 10.0
"""How long a client that owns the tokens may take; upstream's value."""

CLOSE_SECONDS: Final = 5.0
"""How long the end of a server waits for a renewal that has begun."""

# Upstream's texts: its clients show them.
_RENEWED_BEFORE: Final = "Your access token could not be refreshed because "
_SIGN_IN_AGAIN: Final = " Please log out and sign in again."
_BY_CODE: Final = {
    "refresh_token_expired": "your refresh token has expired.",
    "refresh_token_reused": "your refresh token was already used.",
    "refresh_token_invalidated": "your refresh token was revoked.",
}
_REFUSED: Final = f"Your access token could not be refreshed.{_SIGN_IN_AGAIN}"
_OTHER_ACCOUNT: Final = (
    f"{_RENEWED_BEFORE}you have since logged out or signed in to another account."
    " Please sign in again."
)


class Renewal:
    """Replaces tokens that have expired or were rejected."""

    def __init__(self, credentials: CredentialStore) -> None:
        self._credentials = credentials
        self._workers = Workers("renewal", 1)
        self._tasks = BackgroundTasks()
        self._running: asyncio.Future[OpenaiLogin] | None = None
        # The refresh token that the issuer has refused for good, and why.
        self._refused: tuple[str, str] | None = None

    async def renew(self, token: str) -> OpenaiLogin:
        """Return a login with another access token than this one; callers share one renewal.

        Raises:
            CredentialsRejected: there is none.
        """
        login = self._credentials.current()
        if login is not None and login.is_chatgpt and login.token != token:
            return login
        running = self._running
        if running is None or running.done():
            running = self._running = asyncio.get_running_loop().create_future()
            # Otherwise a failure that no caller waits for would be logged.
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._tasks.spawn(self._run(running, token), "renew the login")
        return await asyncio.shield(running)

    async def refresh(self) -> None:
        """Renew the tokens of the server even if they are valid; a failure is reported.

        Raises:
            CredentialsRejected: they could not be renewed.
        """
        login = self._credentials.current()
        if login is not None and login.mode == "chatgpt":
            await self.renew(login.token)

    def is_refused(self, login: OpenaiLogin) -> bool:
        """Return whether the issuer has refused to renew this login for good."""
        return self._refused is not None and self._refused[0] == login.refresh_token

    async def close(self) -> None:
        """Wait for a renewal that has begun: what the issuer sends now would be lost."""
        if self._running is not None and not self._running.done():
            await asyncio.wait([self._running], timeout=CLOSE_SECONDS)
        await self._tasks.close()

    async def _run(self, outcome: asyncio.Future[OpenaiLogin], token: str) -> None:
        try:
            login = await self._renewed(token)
        except CredentialsRejected as error:
            outcome.set_exception(error)
        except Exception:
            # The owner of this task logs it; the callers must not wait for ever.
            outcome.set_exception(CredentialsRejected("the login could not be renewed"))
            raise
        except asyncio.CancelledError:
            outcome.cancel()
            raise
        else:
            outcome.set_result(login)

    async def _renewed(self, token: str) -> OpenaiLogin:
        login = self._credentials.current()
        if login is None or not login.is_chatgpt:
            raise CredentialsRejected(_OTHER_ACCOUNT, is_final=True)
        if login.mode == "chatgptAuthTokens":
            return await self._from_client(login)
        if self.is_refused(login) and self._refused is not None:
            raise CredentialsRejected(self._refused[1], is_final=True)
        async with self.exclusive():
            return await self._from_issuer(token, login)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the lock of the home in the block: nothing else replaces its tokens meanwhile.

        Raises:
            CredentialsRejected: another process holds it for too long.
        """
        stack = await self._workers.run_owned(partial(_lock, self._credentials), _release)
        if stack is None:
            raise CredentialsRejected(
                "the home is not locked: another process renews the login, or it is read-only"
            )
        try:
            yield
        finally:
            stack.close()

    async def _from_issuer(self, token: str, login: OpenaiLogin) -> OpenaiLogin:
        """Renew the tokens, unless another process has done so."""
        credentials = self._credentials
        credentials.forget()
        document = await self._workers.run(credentials.document)
        if document is None or document.tokens is None:
            raise CredentialsRejected(_OTHER_ACCOUNT, is_final=True)
        stored = login_of(document)
        if stored.account_id != login.account_id:
            raise CredentialsRejected(_OTHER_ACCOUNT, is_final=True)
        if stored.token != token:
            return stored
        if not stored.refresh_token:
            raise CredentialsRejected(_REFUSED, is_final=True)
        renewed = with_tokens(document, await self._request(stored))
        try:
            await self._workers.run(credentials.save, renewed)
        except OSError as error:
            reason = f"failed to save the renewed login: {error.strerror}"
            raise CredentialsRejected(reason) from error
        return login_of(renewed)

    async def _request(self, login: OpenaiLogin) -> dict[str, JsonValue]:
        await import_late("treadle.accounts.services")
        from treadle.accounts.services import ServiceError, Services

        endpoints = self._credentials.endpoints
        body: JsonValue = {
            "client_id": endpoints.client_id,
            "grant_type": "refresh_token",
            "refresh_token": login.refresh_token,
        }
        secrets = (login.refresh_token, login.token)
        services = Services(self._credentials.environ)
        try:
            answer = await services.post_json(endpoints.refresh_url, body, secrets=secrets)
            if answer.is_success:
                return answer.document()
        except ServiceError as error:
            message = f"Failed to refresh token: {error}"
            raise CredentialsRejected(message, is_retryable=True) from None
        raise self._refusal(login, answer)

    def _refusal(self, login: OpenaiLogin, answer: ServiceAnswer) -> CredentialsRejected:
        from treadle.accounts.services import error_code, error_message

        reason = _BY_CODE.get(error_code(answer) or "")
        if reason is None and answer.status != 401:
            status = f"{answer.status} {answer.reason}".strip()
            message = f"Failed to refresh token: {status}: {error_message(answer)}"
            return CredentialsRejected(message, is_retryable=True)
        message = f"{_RENEWED_BEFORE}{reason}{_SIGN_IN_AGAIN}" if reason else _REFUSED
        self._refused = (login.refresh_token, message)
        return CredentialsRejected(message, is_final=True)

    async def _from_client(self, login: OpenaiLogin) -> OpenaiLogin:
        credentials = self._credentials
        ask = credentials.ask_client
        if ask is None:
            raise CredentialsRejected("the client that owns the login is gone")
        params = ChatgptAuthTokensRefreshParams(
            reason="unauthorized", previous_account_id=login.account_id
        )
        try:
            async with asyncio.timeout(CLIENT_SECONDS):
                answer = await ask(params)
        except TimeoutError:
            reason = f"auth refresh request timed out after {CLIENT_SECONDS:g}s"
            raise CredentialsRejected(reason) from None
        try:
            tokens = external_tokens(
                answer.access_token,
                answer.chatgpt_account_id,
                answer.chatgpt_plan_type,
                answer.id_token or None,
            )
        except InvalidToken as error:
            raise CredentialsRejected(f"invalid auth refresh response: {error}") from None
        settings = credentials.settings
        if not settings.allows_workspace(tokens.account_id):
            reason = (
                f"external auth refresh returned workspace {tokens.account_id!r}, "
                f"expected one of {list(settings.workspaces or ())}"
            )
            raise CredentialsRejected(reason)
        if credentials.has_external:  # it may have been logged out meanwhile
            credentials.use_external(tokens)
        renewed = credentials.current()
        if renewed is None or not renewed.is_chatgpt:
            raise CredentialsRejected(_OTHER_ACCOUNT, is_final=True)
        return renewed


def with_tokens(document: AuthDocument, granted: dict[str, JsonValue]) -> AuthDocument:
    """Return a document with the tokens that the issuer has sent; it may omit some.

    Raises:
        CredentialsRejected: there is no access token among them.
    """
    known = document.tokens
    fields: dict[str, JsonValue] = {} if known is None else msgspec.to_builtins(known)
    for name in ("id_token", "access_token", "refresh_token"):
        token = granted.get(name)
        if isinstance(token, str) and token:
            fields[name] = token
    if not isinstance(granted.get("access_token"), str):
        raise CredentialsRejected("Failed to refresh token: the answer has no access token")
    now = datetime.fromtimestamp(time.time(), UTC)
    tokens = msgspec.convert(fields, ManagedTokens)
    return msgspec.structs.replace(document, tokens=tokens, last_refresh=now)


def _lock(credentials: CredentialStore) -> ExitStack | None:
    """Wait for the lock, in a worker thread."""
    with ExitStack() as stack:
        if stack.enter_context(renewing(credentials.home / LOCK, seconds=LOCK_SECONDS)):
            return stack.pop_all()
    return None


def _release(stack: ExitStack | None) -> None:
    if stack is not None:
        stack.close()
