"""Login in a browser on this machine: authorization code with PKCE, received on the loopback."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from hmac import compare_digest
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from treadle.accounts.login.tokens import Code, LoginError, TokenIntake
from treadle.support.http.loopback_page import PageAnswer, loopback_page

if TYPE_CHECKING:
    from treadle.accounts.credentials import CredentialStore
    from treadle.accounts.settings import Endpoints

CALLBACK_PATH: Final = "/auth/callback"
CANCEL_PATH: Final = "/cancel"
SCOPES: Final = "openid profile email offline_access api.connectors.read api.connectors.invoke"
NOT_COMPLETED: Final = "Login was not completed"
PORT_ATTEMPTS: Final = 10
PORT_RETRY_SECONDS: Final = 0.2
_CANCEL_SECONDS: Final = 2.0
_DENIED: Final = "access_denied"
_NO_ENTITLEMENT: Final = "missing_codex_entitlement"


class BrowserLogin:
    """One login that waits for a browser."""

    def __init__(self, credentials: CredentialStore, intake: TokenIntake) -> None:
        self._credentials = credentials
        self._intake = intake
        self._state = secrets.token_urlsafe(32)
        self._verifier = secrets.token_urlsafe(64)
        self._redirect_uri = ""
        self._is_used = False
        self._outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The outcome may come while nothing waits for it.
        self._outcome.add_done_callback(lambda done: done.cancelled() or done.exception())

    def listen_on(self, port: int) -> None:
        """Set the port to which the browser is sent."""
        self._redirect_uri = f"http://localhost:{port}{CALLBACK_PATH}"

    def auth_url(self, originator: str) -> str:
        """Return the address that the user has to open."""
        endpoints: Endpoints = self._credentials.endpoints
        digest = hashlib.sha256(self._verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": endpoints.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": SCOPES,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "id_token_add_organizations": "true",
            "codex_cli_simplified_flow": "true",
            "state": self._state,
            "originator": originator,
        }
        workspaces = self._credentials.settings.workspaces
        if workspaces is not None:
            query["allowed_workspace_id"] = ",".join(workspaces)
        return f"{endpoints.issuer}/oauth/authorize?{urlencode(query, quote_via=quote)}"

    async def completed(self) -> None:
        """Wait until the login has ended.

        Raises:
            LoginError: it failed.
        """
        await asyncio.shield(self._outcome)

    async def respond(self, method: str, target: str) -> PageAnswer:
        """Answer a request for the page."""
        path = urlsplit(target).path
        if path == CANCEL_PATH:
            # As upstream: a later login of another program takes the port.
            self._fail(LoginError("Login cancelled"))
            return PageAnswer(HTTPStatus.OK, "Login cancelled")
        if method != "GET" or path != CALLBACK_PATH:
            return PageAnswer(HTTPStatus.NOT_FOUND, "Page not found")
        answer = parse_qs(urlsplit(target).query)
        state = answer.get("state", [""])[0]
        # In constant time: programs on this machine could measure how much of a guess is right.
        if not compare_digest(state.encode(), self._state.encode()):
            return PageAnswer(HTTPStatus.BAD_REQUEST, "This does not match a sign-in in progress")
        if self._is_used:
            return PageAnswer(HTTPStatus.BAD_REQUEST, "This sign-in has already been used")
        self._is_used = True
        try:
            await self._take_in(answer)
        except LoginError as error:
            self._fail(error)
            return PageAnswer(HTTPStatus.OK, f"Sign-in could not be completed: {error}")
        except BaseException:
            self._fail(LoginError(NOT_COMPLETED))
            raise
        if not self._outcome.done():
            self._outcome.set_result(None)
        return PageAnswer(HTTPStatus.OK, "You are signed in")

    async def _take_in(self, answer: dict[str, list[str]]) -> None:
        fault = answer.get("error", [""])[0]
        if fault:
            raise LoginError(_refusal(fault, answer.get("error_description", [""])[0]))
        code = answer.get("code", [""])[0]
        if not code:
            raise LoginError("Missing authorization code. Sign-in could not be completed.")
        try:
            tokens = await self._intake.exchange(Code(code, self._verifier, self._redirect_uri))
        except LoginError as error:
            raise LoginError(f"Token exchange failed: {error}") from None
        self._intake.check(tokens)
        if not self._outcome.done():  # it may have been cancelled meanwhile
            await self._intake.store(tokens)

    def _fail(self, error: LoginError) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(error)


def _refusal(code: str, description: str) -> str:
    """Return upstream's text for a refusal of the issuer, which clients show."""
    if code == _DENIED and _NO_ENTITLEMENT in description.lower():
        return (
            "Codex is not enabled for your workspace. Contact your workspace administrator to"
            " request access to Codex."
        )
    return f"Sign-in failed: {(description.strip() or code)[:400]}"


@asynccontextmanager
async def browser_login(
    credentials: CredentialStore, intake: TokenIntake
) -> AsyncIterator[BrowserLogin]:
    """Listen for the browser in the block.

    Raises:
        OSError: no port is free.
    """
    login = BrowserLogin(credentials, intake)
    async with AsyncExitStack() as stack:
        login.listen_on(await _open_page(stack, credentials.endpoints.ports, login))
        yield login


async def _open_page(stack: AsyncExitStack, ports: Sequence[int], login: BrowserLogin) -> int:
    """Listen on the first free port; a login of another program that waits there is cancelled."""
    has_cancelled = False
    for port in ports:
        for _attempt in range(PORT_ATTEMPTS):
            try:
                page = loopback_page(port, login.respond, for_programs=[CANCEL_PATH])
                return await stack.enter_async_context(page)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            if not has_cancelled:
                has_cancelled = True
                await _cancel_other(port)
            await asyncio.sleep(PORT_RETRY_SECONDS)
    message = f"Port 127.0.0.1:{ports[-1]} is already in use"
    raise OSError(errno.EADDRINUSE, message)


async def _cancel_other(port: int) -> None:
    """Ask a login that waits on this port to end; what listens there may be anything."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                host = f"127.0.0.1:{port}"
                head = f"GET {CANCEL_PATH} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                await reader.read(64)
            finally:
                writer.close()
