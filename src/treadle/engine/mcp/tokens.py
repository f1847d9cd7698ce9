"""Stores the logins of MCP servers in a file that only its owner can read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from treadle.protocol.base import JsonValue
from treadle.support.files.reading import read_regular
from treadle.support.files.writing import replace_file

FILE: Final = "mcp_logins.json"
# A token that expires this soon might expire during the request.
_SPARE_SECONDS: Final = 30
_MAX_BYTES: Final = 4 * 1024 * 1024


class McpLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a login: the token, and the data for its renewal."""

    access_token: str
    refresh_token: str | None = None
    # Seconds since the epoch; `None` if unknown.
    expires_at: float | None = None
    scope: str | None = None
    # The registered client, in the format of the authorization server.
    client: dict[str, JsonValue] = msgspec.field(default_factory=dict)
    token_endpoint: str | None = None
    resource: str | None = None

    def __repr__(self) -> str:
        return "Login(...)"

    def is_stale(self, now: float) -> bool:
        """Whether the token has expired, or is about to."""
        return self.expires_at is not None and self.expires_at < now + _SPARE_SECONDS


class TokenFile:
    """Logins by server name and URL; reads the file each time, because others may write it."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE

    def get(self, name: str, url: str) -> McpLogin | None:
        """The login of a server at a URL."""
        return self._read().get(_key(name, url))

    def set(self, name: str, url: str, login: McpLogin | None) -> None:
        """Store a login, or remove it.

        Raises:
            OSError: it cannot be written.
        """
        logins = self._read()
        if login is None:
            logins.pop(_key(name, url), None)
        else:
            logins[_key(name, url)] = login
        replace_file(self._path, msgspec.json.format(msgspec.json.encode(logins)))

    def _read(self) -> dict[str, McpLogin]:
        try:
            return msgspec.json.decode(
                read_regular(self._path, _MAX_BYTES), type=dict[str, McpLogin]
            )
        except (OSError, msgspec.MsgspecError):
            return {}


def _key(name: str, url: str) -> str:
    # The URL is part of the key: a token must not be sent to a new URL of the same name.
    return f"{name}|{url}"
