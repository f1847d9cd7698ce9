"""OAuth login to MCP servers, and the renewal of tokens.

The SDK finds the authorization server, registers the client and exchanges the code for a token,
with PKCE. This module adds the callback page for the browser, the storage and the renewal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from hmac import compare_digest
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from msgspec import Struct
from pydantic import AnyUrl

from treadle.engine.mcp.config import McpConfig, ServerConfig
from treadle.engine.mcp.connection.http_bodies import (
    AS_DOCUMENT,
    UNCOMPRESSED,
    bound_document,
    document_timeouts,
)
from treadle.engine.mcp.connection.limits import DOCUMENT_SECONDS
from treadle.engine.mcp.connection.requests import error_text, recording_hook
from treadle.engine.mcp.server import McpError
from treadle.engine.mcp.tokens import McpLogin, TokenFile
from treadle.protocol.base import JsonValue
from treadle.support.http.loopback_page import PageAnswer, loopback_page
from treadle.support.text.secrets import Secrets

CLIENT_NAME: Final = "Treadle"
CLIENT_FIELDS: Final = ("client_id", "client_secret")
"""What the renewal of a token needs of a registered client."""

CALLBACK_PATH: Final = "/callback"
# A program on the user's machine cannot keep a client secret.
_PUBLIC: Final = "none"
_LONGEST_LIFE: Final = 10**10
# Any request would trigger the login; this one is also the first of a session.
_HELLO: Final = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": CLIENT_NAME, "version": "1"},
    },
}

logger = logging.getLogger(__name__)


class StoredLogin(httpx2.Auth):
    """Adds the token of a login to requests, and renews it when it has expired."""

    def __init__(self, name: str, url: str, tokens: TokenFile) -> None:
        self._name, self._url, self._tokens = name, url, tokens
        self._renewing = asyncio.Lock()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request, with a new token if the old one has expired or is rejected."""
        is_new = False
        # One renewal at a time: a server may accept a refresh token only once.
        async with self._renewing:
            login = self._tokens.get(self._name, self._url)
            if login is not None and login.is_stale(time.time()) and login.refresh_token:
                login, is_new = await self._renewed(login, (yield self._renewal(login))), True
        if login is None:
            yield request
            return
        request.headers["Authorization"] = f"Bearer {login.access_token}"
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED and login.refresh_token and not is_new:
            login = await self._renewed(login, (yield self._renewal(login)))
            request.headers["Authorization"] = f"Bearer {login.access_token}"
            yield request

    def _renewal(self, login: McpLogin) -> httpx2.Request:
        form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token or ""}
        for name in CLIENT_FIELDS:
            if login.client.get(name):
                form[name] = str(login.client[name])
        if login.resource:
            form["resource"] = login.resource
        request = httpx2.Request(
            "POST",
            login.token_endpoint or self._url,
            data=form,
            headers=UNCOMPRESSED,
            extensions={AS_DOCUMENT: True},
        )
        document_timeouts(request)
        return request

    async def _renewed(self, login: McpLogin, response: httpx2.Response) -> McpLogin:
        """The new login; if the renewal failed, the one that another thread may have stored."""
        try:
            response.raise_for_status()
            token = OAuthToken.model_validate_json(await response.aread())
        except (httpx2.HTTPStatusError, ValueError):
            return self._tokens.get(self._name, self._url) or login
        renewed = msgspec.structs.replace(
            login,
            access_token=token.access_token,
            refresh_token=token.refresh_token or login.refresh_token,
            expires_at=_expiry(token),
        )
        try:
            await asyncio.to_thread(self._tokens.set, self._name, self._url, renewed)
        except OSError as error:
            # The request can be made nevertheless.
            logger.warning("mcp login not stored", extra={"server": self._name, "error": error})
        return renewed


def stored_login(name: str, url: str, tokens: TokenFile) -> httpx2.Auth | None:
    """The authentication of requests to a server, if there is a login."""
    return StoredLogin(name, url, tokens) if tokens.get(name, url) is not None else None


class SignIn(Struct, frozen=True, kw_only=True):
    """A requested login."""

    name: str
    server: ServerConfig
    common: McpConfig
    tokens: TokenFile
    scopes: Sequence[str] | None

    async def run(self, show: Callable[[str], None]) -> None:
        """Log in; `show` receives the URL that the user has to open.

        Raises:
            McpError: the login failed.
        """
        async with _callback(self.common) as callback:
            try:
                provider = self._provider(callback, show)
            except ValueError as error:
                raise McpError(f"invalid OAuth callback URL {callback.url!r}") from error
            status = await self._post_hello(provider)
        if not callback.was_used:
            raise McpError("No authorization support detected for this server.")
        if status >= httpx2.codes.BAD_REQUEST:
            raise McpError(f"the server rejected the new token: HTTP {status}")

    async def _post_hello(self, provider: OAuthClientProvider) -> int:
        """Send the request that triggers the login; return the status of the answer."""
        secrets = Secrets()
        record = recording_hook(secrets, self.server.http_headers)
        refusals: list[str] = []

        async def prepare(request: httpx2.Request) -> None:
            # The SDK's requests lack the client's headers and timeouts.
            request.headers.update(UNCOMPRESSED)
            document_timeouts(request)
            await record(request)

        async def bound(response: httpx2.Response) -> None:
            bound_document(response, refusals.append)

        accepted = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(
            auth=provider,
            headers={**UNCOMPRESSED, **accepted, **self.server.http_headers},
            timeout=httpx2.Timeout(DOCUMENT_SECONDS),
            event_hooks={"request": [prepare], "response": [bound]},
        ) as http:
            try:
                # The body is not read: it may be a stream that does not end.
                async with http.stream("POST", str(self.server.url), json=_HELLO) as response:
                    return response.status_code
            except Exception as error:  # noqa: BLE001 - the SDK raises errors of many kinds
                causes = (f"a document {refusal}" for refusal in dict.fromkeys(refusals))
                reason = secrets.redact("; ".join([error_text(error), *causes]))
                # Without the cause, which a traceback would print.
                raise McpError(f"failed to sign in to `{self.name}`: {reason}") from None

    def _provider(self, callback: Callback, show: Callable[[str], None]) -> OAuthClientProvider:
        storage = _LoginStorage(self, callback.url)

        async def redirect(url: str) -> None:
            url = _with_scopes(url, self.scopes or self.server.scopes)
            callback.expect(url)
            show(url)

        storage.provider = OAuthClientProvider(
            server_url=str(self.server.url),
            client_metadata=OAuthClientMetadata(
                client_name=CLIENT_NAME,
                redirect_uris=[AnyUrl(callback.url)],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
                token_endpoint_auth_method=_PUBLIC,
            ),
            storage=storage,
            redirect_handler=redirect,
            callback_handler=callback.answer,
        )
        return storage.provider


class _LoginStorage:
    """Stores the tokens that the SDK obtains."""

    def __init__(self, sign_in: SignIn, redirect_url: str) -> None:
        self.provider: OAuthClientProvider | None = None
        self._sign_in = sign_in
        self._redirect_url = redirect_url
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """No token: a login always obtains a new one."""
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the token with the data for its renewal."""
        context = self.provider.context if self.provider else None
        metadata = context.oauth_metadata if context else None
        protected = context.protected_resource_metadata if context else None
        client: dict[str, JsonValue] = {}
        if self._client is not None:
            # The rest of the registration has any size, and is not needed.
            fields = set(CLIENT_FIELDS)
            client = self._client.model_dump(mode="json", exclude_none=True, include=fields)
        login = McpLogin(
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            expires_at=_expiry(tokens),
            scope=tokens.scope,
            client=client,
            token_endpoint=str(metadata.token_endpoint) if metadata else None,
            resource=str(protected.resource) if protected else None,
        )
        sign_in = self._sign_in
        url = str(sign_in.server.url)
        await asyncio.to_thread(sign_in.tokens.set, sign_in.name, url, login)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client that was registered by hand, if there is one."""
        oauth = self._sign_in.server.oauth
        if oauth is not None and oauth.client_id is not None:
            self._client = OAuthClientInformationFull(
                client_id=oauth.client_id,
                redirect_uris=[AnyUrl(self._redirect_url)],
                token_endpoint_auth_method=_PUBLIC,
            )
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registered client."""
        self._client = client_info


class Callback:
    """The page that the browser is redirected to."""

    def __init__(self) -> None:
        self.url = ""
        self.was_used = False
        self._state: str | None = None
        self._result: asyncio.Future[AuthorizationCodeResult] = (
            asyncio.get_running_loop().create_future()
        )

    def expect(self, authorization_url: str) -> None:
        """Accept only the answer to this request: any program on this machine can call the page."""
        self.was_used = True
        self._state = _parameter(authorization_url, "state")

    async def answer(self) -> AuthorizationCodeResult:
        """Wait for the browser."""
        return await self._result

    async def respond(self, method: str, target: str) -> PageAnswer:
        """Answer a request for the page."""
        if method != "GET" or urlsplit(target).path != urlsplit(self.url).path:
            return PageAnswer(HTTPStatus.NOT_FOUND, "Page not found")
        # In constant time: programs on this machine could measure how much of a guess is right.
        if not self._state or not compare_digest(_bytes(target, "state"), self._state.encode()):
            return PageAnswer(HTTPStatus.BAD_REQUEST, "This does not match a sign-in in progress")
        if not self._result.done():
            code, refusal = _parameter(target, "code"), _parameter(target, "error")
            if code is None:
                reason = _parameter(target, "error_description") or refusal or "missing code"
                self._result.set_exception(McpError(reason))
                return PageAnswer(HTTPStatus.OK, "The sign-in was refused")
            self._result.set_result(
                AuthorizationCodeResult(code=code, state=self._state, iss=_parameter(target, "iss"))
            )
        return PageAnswer(HTTPStatus.OK, "You are signed in")


@asynccontextmanager
async def _callback(common: McpConfig) -> AsyncIterator[Callback]:
    """Listen for the browser on the loopback interface, on the configured port if there is one."""
    callback = Callback()
    async with loopback_page(common.callback_port or 0, callback.respond) as port:
        callback.url = common.callback_url or f"http://127.0.0.1:{port}{CALLBACK_PATH}"
        yield callback


def _parameter(url: str, name: str) -> str | None:
    return parse_qs(urlsplit(url).query).get(name, [None])[0]


def _bytes(url: str, name: str) -> bytes:
    return (_parameter(url, name) or "").encode()


def _with_scopes(url: str, scopes: Sequence[str] | None) -> str:
    """Request these scopes instead of those that the server proposes."""
    if not scopes:
        return url
    parts = urlsplit(url)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    return urlunsplit(parts._replace(query=urlencode({**query, "scope": " ".join(scopes)})))


def _expiry(token: OAuthToken) -> float | None:
    if token.expires_in is None:
        return None
    # Some servers mean "never" by a number that no clock has.
    return time.time() + max(0, min(token.expires_in, _LONGEST_LIFE))
