"""API keys from `auth.json` and the environment, and the provider that may receive each.

A key is sent only to its own provider and never written to a log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from treadle.model.provider import Bearer
from treadle.support.files.descriptors import is_shortage
from treadle.support.files.reading import read_regular
from treadle.support.files.writing import replace_file, sync_folder

OPENAI_KEY: Final = "OPENAI_API_KEY"
MAX_BYTES: Final = 1024 * 1024


class CredentialStore:
    """The keys that this server may use; `auth.json` is read again when it changes."""

    def __init__(self, home: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._path = home / "auth.json"
        self._environ = environ
        self._stamp: tuple[int, int, int] | None = None
        self._key: str | None = None

    def __repr__(self) -> str:
        return "Credentials(...)"

    @property
    def api_key(self) -> str | None:
        """The OpenAI key: from `auth.json`, or else from the environment."""
        return self._signed_in_key() or self._environ.get(OPENAI_KEY) or None

    @property
    def auth_mode(self) -> Literal["apikey"] | None:
        """How the server is signed in with OpenAI."""
        return None if self.api_key is None else "apikey"

    async def login(self) -> Bearer | None:
        """Return the bearer token for OpenAI providers, if there is a key."""
        key = self.api_key
        return None if key is None else Bearer(token=key)

    def has_variable(self, name: str) -> bool:
        """Return whether an environment variable has a non-empty value."""
        return bool(self._environ.get(name))

    def sign_in(self, api_key: str) -> None:
        """Store a key in Codex's format, readable by its owner only.

        Raises:
            OSError: the file cannot be written.
        """
        text = json.dumps({"auth_mode": "apikey", OPENAI_KEY: api_key}, indent=2)
        replace_file(self._path, text.encode())

    def sign_out(self) -> None:
        """Delete the stored key.

        Raises:
            OSError: the file cannot be removed.
        """
        self._path.unlink(missing_ok=True)
        # Otherwise a power failure could restore the deleted key.
        if self._path.parent.exists():
            sync_folder(self._path.parent)

    def _signed_in_key(self) -> str | None:
        try:
            status = self._path.stat()
        except OSError:
            self._stamp, self._key = None, None
            return None
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp != self._stamp:
            self._key = _read_key(self._path)
            self._stamp = stamp
        return self._key


def _read_key(path: Path) -> str | None:
    """Read the key, or return `None` if the file is damaged or holds other credentials."""
    try:
        document = json.loads(read_regular(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        if is_shortage(error):
            raise  # otherwise the key would be reported as missing
        return None
    key = document.get(OPENAI_KEY) if isinstance(document, dict) else None
    return key if isinstance(key, str) and key else None
