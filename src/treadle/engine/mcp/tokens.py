"""Stores the logins of MCP servers in a file that only its owner can read."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

import msgspec

from treadle.protocol.base import JsonValue
from treadle.support.files.folder_lock import locked
from treadle.support.files.reading import FileTooLarge, read_regular
from treadle.support.files.writing import make_folders, replace_file, sync_folder

FILE: Final = "mcp_logins.json"
# A token that expires this soon might expire during the request.
_SPARE_SECONDS: Final = 30
_MAX_BYTES: Final = 4 * 1024 * 1024
MAX_LOGIN_BYTES: Final = 64 * 1024
"""The most bytes of one login: the file holds all logins, and no server may fill it."""


class McpLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a login: the token, and the data for its renewal."""

    access_token: str
    refresh_token: str | None = None
    # Seconds since the epoch; `None` if unknown.
    expires_at: float | None = None
    scope: str | None = None
    # The id and the secret of the registered client.
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
        """Return the login of a server at a URL, if there is one that can be read."""
        try:
            return _decoded(self._entries().get(_key(name, url)))
        except (OSError, msgspec.MsgspecError):
            return None

    def set(self, name: str, url: str, login: McpLogin | None) -> None:
        """Store a login, or remove it; waits for other processes, so call it in a worker thread.

        Other logins stay as they are, also those that this version cannot read.

        Raises:
            OSError: the login is too large, or the file cannot be read or written.
        """
        entry = None if login is None else msgspec.json.encode(login)
        if entry is not None and len(entry) > MAX_LOGIN_BYTES:
            raise OSError(errno.EFBIG, f"the login has more than {MAX_LOGIN_BYTES} bytes")
        for folder in make_folders(self._path.parent)[1:]:
            sync_folder(folder)
        with locked(self._path.parent):
            entries = self._entries_to_keep()
            entries.pop(_key(name, url), None)
            if entry is not None:
                entries[_key(name, url)] = msgspec.Raw(entry)
            content = msgspec.json.format(msgspec.json.encode(entries))
            if len(content) > _MAX_BYTES:
                raise FileTooLarge(self._path, _MAX_BYTES)
            replace_file(self._path, content)

    def _entries(self) -> dict[str, msgspec.Raw]:
        return msgspec.json.decode(
            read_regular(self._path, _MAX_BYTES), type=dict[str, msgspec.Raw]
        )

    def _entries_to_keep(self) -> dict[str, msgspec.Raw]:
        """Return all entries; a file that is damaged as a whole is kept under another name."""
        try:
            return self._entries()
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError:
            self._path.replace(self._path.with_suffix(".damaged"))
            return {}


def _decoded(entry: msgspec.Raw | None) -> McpLogin | None:
    return None if entry is None else msgspec.json.decode(entry, type=McpLogin)


def _key(name: str, url: str) -> str:
    # The URL is part of the key: a token must not be sent to a new URL of the same name.
    return f"{name}|{url}"
