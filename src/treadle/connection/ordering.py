"""Arrival order within a scope; everything else runs concurrently."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Lanes:
    """One lane per scope key: its first request runs, the others wait."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def enter(self, key: str, start: Callable[[], None]) -> None:
        """Start now if the lane is free, otherwise after all earlier requests have left."""
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = deque()
            start()
        else:
            waiting.append(start)

    def leave(self, key: str) -> None:
        """Start the next request, or close the lane."""
        waiting = self._waiting[key]
        if waiting:
            waiting.popleft()()
        else:
            del self._waiting[key]
