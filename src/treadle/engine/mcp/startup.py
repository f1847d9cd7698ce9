"""How long MCP servers may keep the model waiting, whichever threads they are started for."""

from __future__ import annotations

from math import inf
from typing import Final

import msgspec

from treadle.protocol.base import JsonValue

_NOT_AT_ALL: Final = -inf


class StartupRecord:
    """Remembers of each configuration whether servers of it start in time.

    One of which nothing is known yet may take its time once, counted from its first start. After
    that only those are waited for that were ready in time when they were started last.
    """

    def __init__(self) -> None:
        # Until when nobody knows better: without end for those that have proved themselves.
        self._until: dict[bytes, float] = {}

    def begins(self, table: JsonValue, deadline: float) -> None:
        """A server is started, and should be ready by then."""
        self._until.setdefault(_key(table), deadline)

    def until(self, table: JsonValue) -> float:
        """How long a server of this configuration may be waited for, at most."""
        return self._until.get(_key(table), _NOT_AT_ALL)

    def keep(self, table: JsonValue) -> None:
        """A server was ready in time: others of its kind are worth waiting for."""
        self._until[_key(table)] = inf

    def lose(self, table: JsonValue) -> None:
        """A server failed, or was waited for in vain."""
        self._until[_key(table)] = _NOT_AT_ALL

    def regain(self, table: JsonValue) -> None:
        """Somebody has mended a server: nothing is known of it any more."""
        self._until.pop(_key(table), None)


def _key(table: JsonValue) -> bytes:
    return msgspec.json.encode(table, order="sorted")
