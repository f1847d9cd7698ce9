"""What is seen on the way to an MCP server that an error of the SDK does not say."""

from __future__ import annotations

from typing import Final

from treadle.support.text.secrets import Secrets

_TAIL_BYTES: Final = 2048


class Notes:
    """What was seen of one server, in one session."""

    def __init__(self) -> None:
        self.needs_login = False
        # The server does not know the session that it was asked in.
        self.is_forgotten = False
        # It wrote something that is no message.
        self.is_garbled = False
        # What requests carried, and no error or log line may repeat.
        self.secrets = Secrets()
        self._stderr = b""

    def add_stderr(self, data: bytes) -> None:
        """Keep the end of what the server writes to its stderr."""
        self._stderr = (self._stderr + data)[-_TAIL_BYTES:]

    @property
    def last_words(self) -> str:
        """The end of what the server wrote to its stderr."""
        return self._stderr.decode("utf-8", "replace").strip()
