"""Records how MCP servers start, to decide how long the model waits for them."""

from __future__ import annotations

from math import inf
from typing import Final

import msgspec

from treadle.protocol.base import JsonValue

_NEVER: Final = -inf


class StartupRecord:
    """Records for each configuration, across threads, whether its servers start in time.

    The model waits for an unknown server until a deadline after its first start. After that, it
    waits only for servers that were ready in time at their last start.
    """

    def __init__(self) -> None:
        # The latest time to wait; infinite for servers that were ready in time.
        self._deadlines: dict[bytes, float] = {}

    def add_start(self, table: JsonValue, deadline: float) -> None:
        """Record the start of a server that should be ready by the deadline."""
        self._deadlines.setdefault(_key(table), deadline)

    def deadline(self, table: JsonValue) -> float:
        """The latest time to wait for a server of this configuration."""
        return self._deadlines.get(_key(table), _NEVER)

    def add_success(self, table: JsonValue) -> None:
        """Record that a server was ready in time."""
        self._deadlines[_key(table)] = inf

    def add_failure(self, table: JsonValue) -> None:
        """Record that a server failed or was late."""
        self._deadlines[_key(table)] = _NEVER

    def reset(self, table: JsonValue) -> None:
        """Forget a configuration, because its server may have been repaired."""
        self._deadlines.pop(_key(table), None)


def _key(table: JsonValue) -> bytes:
    return msgspec.json.encode(table, order="sorted")
