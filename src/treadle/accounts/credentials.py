"""The login in force: an API key or ChatGPT tokens, and the provider that may receive it.

A login is sent only to its own provider and never written to a log.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from treadle.accounts.document import API_KEY, MAX_BYTES, AuthDocument, decode
from treadle.accounts.settings import AccountSettings, Endpoints, endpoints
from treadle.accounts.stores import AuthStore, LoginStoreError, Stamp, open_store
from treadle.accounts.tokens import Claims, plan_of, read_claims
from treadle.model.provider import Bearer, CredentialsRejected
from treadle.protocol.account import (
    ChatgptAuthTokensRefreshParams,
    ChatgptAuthTokensRefreshResponse,
    PlanType,
)

if TYPE_CHECKING:
    from treadle.accounts.renewal import Renewal

LoginMode: TypeAlias = Literal["apikey", "chatgpt", "chatgptAuthTokens"]

CHATGPT_API: Final = "https://chatgpt.com/backend-api/codex"
"""Where ChatGPT logins reach OpenAI's models."""

# Upstream renews tokens without an expiry after this time.
_MAX_AGE_S: Final = 8 * 24 * 3600

logger = logging.getLogger(__name__)


class ExternalTokens(Struct, frozen=True):
    """Tokens that a client owns."""

    access_token: str
    account_id: str
    claims: Claims
    plan: PlanType

    def __repr__(self) -> str:
        return "ExternalTokens(...)"


AskClient: TypeAlias = Callable[
    [ChatgptAuthTokensRefreshParams], Awaitable[ChatgptAuthTokensRefreshResponse]
]
"""Requests new tokens from the client that owns them."""


class OpenaiLogin(Struct, frozen=True, kw_only=True):
    """One login."""

    mode: LoginMode
    token: str
    claims: Claims = Claims()
    account_id: str | None = None
    plan: PlanType | None = None
    refresh_token: str = ""
    # When the token should be renewed, in seconds since the epoch.
    stale_at: float | None = None

    def __repr__(self) -> str:
        return f"OpenaiLogin({self.mode}, ...)"

    @property
    def is_chatgpt(self) -> bool:
        """Whether ChatGPT's services accept it."""
        return self.mode != "apikey"

    @property
    def bearer(self) -> Bearer:
        """The login as requests to models carry it."""
        if not self.is_chatgpt:
            return Bearer(token=self.token)
        return Bearer(
            token=self.token,
            account_id=self.account_id,
            is_fedramp=self.claims.is_fedramp,
            base_url=CHATGPT_API,
        )


class CredentialStore:
    """The logins that this server may use; what other programs store is noticed."""

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str] = os.environ,
        settings: Callable[[], AccountSettings] = AccountSettings,
        *,
        key: str | None = None,
    ) -> None:
        self.home = home
        self.environ = environ
        self._settings = settings
        # Precedes all other logins.
        self._given_key = key
        self._mode, self._store = "file", open_store("file", home)
        self._stamp: Stamp = None
        self._document: AuthDocument | None = None
        self._external: ExternalTokens | None = None
        # Asks the client that owns the external tokens.
        self.ask_client: AskClient | None = None

    def __repr__(self) -> str:
        return "Credentials(...)"

    @property
    def settings(self) -> AccountSettings:
        """What the configuration says about accounts."""
        return self._settings()

    @property
    def endpoints(self) -> Endpoints:
        """The services behind a ChatGPT login."""
        return endpoints(self.environ, self.settings)

    @cached_property
    def renewal(self) -> Renewal:
        """Renews tokens."""
        from treadle.accounts.renewal import Renewal

        return Renewal(self)

    # -- the login in force

    def current(self) -> OpenaiLogin | None:
        """Return the login in force, if there is one that the configuration allows."""
        if self._given_key is not None:
            return OpenaiLogin(mode="apikey", token=self._given_key)
        if self._external is not None:
            return _external_login(self._external)
        stored = self._stored_login()
        if stored is not None:
            return stored
        key = self.environ.get(API_KEY)
        return OpenaiLogin(mode="apikey", token=key) if key and self._allows_keys else None

    @property
    def api_key(self) -> str | None:
        """The OpenAI key: the stored one, or else that of the environment."""
        login = self.current()
        return login.token if login is not None and login.mode == "apikey" else None

    @property
    def auth_mode(self) -> LoginMode | None:
        """How the server is logged in with OpenAI."""
        login = self.current()
        return None if login is None else login.mode

    @property
    def has_external(self) -> bool:
        """Whether a client owns the tokens in force."""
        return self._external is not None

    async def login(self, rejected: Bearer | None = None) -> Bearer | None:
        """Return the login for OpenAI providers; after a rejection a new one, if there is any.

        Raises:
            CredentialsRejected: the tokens cannot be renewed.
        """
        login = self.current()
        if rejected is not None:
            if login is None or not login.is_chatgpt:
                return None
            return (await self.renewal.renew(rejected.token)).bearer
        if login is not None and login.stale_at is not None and login.stale_at <= time.time():
            try:
                return (await self.renewal.renew(login.token)).bearer
            except CredentialsRejected as error:
                # As upstream: the provider decides, and its refusal is reported.
                logger.warning("login not renewed", extra={"reason": str(error)})
        return None if login is None else login.bearer

    async def close(self) -> None:
        """Wait for a renewal that has begun."""
        if "renewal" in self.__dict__:
            await self.renewal.close()

    def has_variable(self, name: str) -> bool:
        """Return whether an environment variable has a non-empty value."""
        return bool(self.environ.get(name))

    # -- changes; these block, so call them in a worker thread

    def sign_in(self, api_key: str) -> None:
        """Store a key in Codex's format.

        Raises:
            OSError: it cannot be stored.
        """
        self.save(AuthDocument(api_key=api_key))

    def save(self, document: AuthDocument) -> None:
        """Replace the stored login.

        Raises:
            OSError: it cannot be stored.
        """
        data = document.encode()
        if len(data) > MAX_BYTES:
            # It could not be read any more, and would replace a login that can.
            raise LoginStoreError(f"the login has more than {MAX_BYTES} bytes")
        self._open().write(data)
        self.forget()
        # Here rather than on the event loop: a keyring takes its time.
        self.document()

    def sign_out(self) -> None:
        """Delete the login, also one of a client.

        Raises:
            OSError: it cannot be removed.
        """
        self._external = self.ask_client = None
        self._open().delete()
        self.forget()

    def use_external(self, tokens: ExternalTokens, ask: AskClient | None = None) -> None:
        """Use tokens of a client until it replaces them or the server logs out."""
        self._external = tokens
        self.ask_client = ask or self.ask_client

    def document(self) -> AuthDocument | None:
        """Return the stored login, whether or not the configuration allows it."""
        store = self._open()
        stamp = store.stamp()
        if stamp is None:
            self._stamp = self._document = None
        elif stamp != self._stamp:
            try:
                data = store.read()
            except LoginStoreError as error:
                logger.warning("login not read", extra={"reason": str(error)})
                data = None
            self._document = None if data is None else decode(data)
            self._stamp = stamp
        return self._document

    def forget(self) -> None:
        """Read the stored login again at its next use."""
        self._stamp = None

    def _open(self) -> AuthStore:
        mode = self.settings.store
        if mode != self._mode:
            self._mode, self._store = mode, open_store(mode, self.home)
            self.forget()
        return self._store

    @property
    def _allows_keys(self) -> bool:
        return self.settings.allows("api")

    def _stored_login(self) -> OpenaiLogin | None:
        document = self.document()
        if document is None:
            return None
        if document.tokens is None:
            key = document.api_key
            return OpenaiLogin(mode="apikey", token=key) if key and self._allows_keys else None
        login = login_of(document)
        settings = self.settings
        is_allowed = settings.allows("chatgpt") and settings.allows_workspace(
            login.claims.account_id
        )
        return login if is_allowed else None


def login_of(document: AuthDocument) -> OpenaiLogin:
    """Return the login of a document with tokens."""
    tokens = document.tokens
    if tokens is None:
        raise ValueError("the document has no tokens")
    claims = tokens.claims
    return OpenaiLogin(
        mode="chatgpt",
        token=tokens.access_token,
        claims=claims,
        account_id=tokens.account_id or claims.account_id,
        plan=plan_of(claims.plan),
        refresh_token=tokens.refresh_token,
        stale_at=_stale_at(document),
    )


def external_tokens(
    access_token: str, account_id: str | None, plan: str | None, id_token: str | None = None
) -> ExternalTokens:
    """Return the tokens of a client; what it does not say is taken from the tokens.

    Raises:
        InvalidToken: the token is not a JWT, or does not name a workspace.
    """
    claims = read_claims(id_token or access_token)
    account = account_id or claims.account_id or read_claims(access_token).account_id or ""
    return ExternalTokens(access_token, account, claims, plan_of(plan or claims.plan))


def _external_login(tokens: ExternalTokens) -> OpenaiLogin:
    return OpenaiLogin(
        mode="chatgptAuthTokens",
        token=tokens.access_token,
        claims=tokens.claims,
        account_id=tokens.account_id,
        plan=tokens.plan,
    )


def _stale_at(document: AuthDocument) -> float | None:
    from treadle.accounts.tokens import expiry_of

    expiry = expiry_of(document.tokens.access_token) if document.tokens else None
    if expiry is not None:
        return expiry
    refreshed = document.last_refresh
    return None if refreshed is None else refreshed.timestamp() + _MAX_AGE_S
