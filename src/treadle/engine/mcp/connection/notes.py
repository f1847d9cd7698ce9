"""Observations on the connection to an MCP server that the errors of the SDK lack."""

from __future__ import annotations

from typing import Final

from treadle.support.text.secrets import Secrets

_TAIL_BYTES: Final = 2048


class Notes:
    """The observations of one session."""

    def __init__(self) -> None:
        self.needs_login = False
        # The server does not know the session any more.
        self.is_lost_session = False
        # The server wrote something that is not a message.
        self.is_malformed = False
        # The server sends requests and does not read the answers.
        self.is_not_reading = False
        # Secrets of requests, which errors and logs must not contain.
        self.secrets = Secrets()
        self._stderr = b""

    def set_malformed(self, *, is_malformed: bool = True) -> None:
        """Record that the server wrote something that is not a message, or forget it."""
        self.is_malformed = is_malformed

    def set_not_reading(self) -> None:
        """Record that the server does not read the answers to its requests."""
        self.is_not_reading = True

    def add_stderr(self, data: bytes) -> None:
        """Add to the stderr output, of which only the end is kept."""
        self._stderr = (self._stderr + data)[-_TAIL_BYTES:]

    @property
    def stderr_tail(self) -> str:
        """The end of the server's stderr output."""
        return self._stderr.decode("utf-8", "replace").strip()
