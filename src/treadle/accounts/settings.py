"""What the configuration and the environment say about accounts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

LoginMethod: TypeAlias = Literal["chatgpt", "api"]
StoreMode: TypeAlias = Literal["file", "keyring", "auto", "ephemeral"]

ISSUER: Final = "CODEX_APP_SERVER_LOGIN_ISSUER"
CLIENT_ID: Final = "CODEX_APP_SERVER_LOGIN_CLIENT_ID"
REFRESH_URL: Final = "CODEX_REFRESH_TOKEN_URL_OVERRIDE"
REVOKE_URL: Final = "CODEX_REVOKE_TOKEN_URL_OVERRIDE"
LOGIN_PORT: Final = "TREADLE_LOGIN_PORT"

_ISSUER: Final = "https://auth.openai.com"
_CLIENT_ID: Final = "app_EMoamEEZ73f0CkXaXp7hrann"
_BACKEND: Final = "https://chatgpt.com/backend-api"
_CHATGPT_HOSTS: Final = ("https://chatgpt.com", "https://chat.openai.com")
# The issuer knows these two.
_PORTS: Final = (1455, 1457)
_LOOPBACK: Final = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")


class AccountSettings(Struct, frozen=True, kw_only=True):
    """The settings of the user's own configuration; no project can change them."""

    store: StoreMode = "file"
    # The only ways to log in; all without.
    methods: tuple[LoginMethod, ...] | None = None
    # The only workspaces that may be used; all without.
    workspaces: tuple[str, ...] | None = None
    chatgpt_base_url: str | None = None

    def allows(self, method: LoginMethod) -> bool:
        """Return whether logins of this kind may be used."""
        if method == "chatgpt" and self.workspaces == ():
            return False
        return self.methods is None or method in self.methods

    def allows_workspace(self, account_id: str | None) -> bool:
        """Return whether tokens of this workspace may be used."""
        return self.workspaces is None or account_id in self.workspaces


class Endpoints(Struct, frozen=True, kw_only=True):
    """The addresses of the services behind a ChatGPT login."""

    issuer: str
    client_id: str
    refresh_url: str
    revoke_url: str
    backend: str
    ports: tuple[int, ...]

    def backend_url(self, path: str, *, chatgpt_path: str | None = None) -> str:
        """Return the address of a resource, which depends on the kind of the backend."""
        if "/backend-api" in self.backend:
            return f"{self.backend}/{chatgpt_path or f'wham/{path}'}"
        return f"{self.backend}/api/codex/{path}"


def endpoints(environ: Mapping[str, str], settings: AccountSettings) -> Endpoints:
    """Return the addresses in force."""
    issuer = (environ.get(ISSUER, "").strip() or _ISSUER).rstrip("/")
    refresh = environ.get(REFRESH_URL)
    parts = urlsplit(refresh or "")
    derived = parts._replace(path="/oauth/revoke", query="").geturl() if refresh else None
    port = environ.get(LOGIN_PORT, "")
    return Endpoints(
        issuer=issuer,
        client_id=environ.get(CLIENT_ID, "").strip() or _CLIENT_ID,
        # By default at the issuer of the tokens, which nothing else should receive.
        refresh_url=refresh or f"{issuer}/oauth/token",
        revoke_url=environ.get(REVOKE_URL) or derived or f"{issuer}/oauth/revoke",
        backend=_backend(settings.chatgpt_base_url),
        ports=(int(port),) if port.isdecimal() and int(port) < 65536 else _PORTS,
    )


def _backend(configured: str | None) -> str:
    base = (configured or _BACKEND).rstrip("/")
    if base.startswith(_CHATGPT_HOSTS) and "/backend-api" not in base:
        return f"{base}/backend-api"
    return base


def is_confidential(url: str) -> bool:
    """Return whether secrets can be sent there: encrypted, or within this machine."""
    try:
        parts = urlsplit(url)
        is_here = _LOOPBACK.fullmatch(parts.hostname or "") is not None
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_here)
