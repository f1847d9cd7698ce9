"""Arrival order within a scope; everything else runs concurrently."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class _Lane:
    __slots__ = ("is_busy", "is_starting", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        # A request of this lane has started and not left.
        self.is_busy = True
        # The loop that starts requests is running, further up the stack.
        self.is_starting = False


class Lanes:
    """One lane per scope key: its first request runs, the others wait."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def enter(self, key: str, start: Callable[[], None]) -> None:
        """Start now if the lane is free, otherwise after all earlier requests have left."""
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = _Lane()
            start()
        else:
            lane.waiting.append(start)

    def leave(self, key: str) -> None:
        """Start the next request, or close the lane."""
        lane = self._lanes[key]
        lane.is_busy = False
        # Requests that leave before `start` returns are followed by this loop: each of them would
        # otherwise add its frames to the stack of the next one.
        if lane.is_starting:
            return
        lane.is_starting = True
        while lane.waiting and not lane.is_busy:
            lane.is_busy = True
            lane.waiting.popleft()()
        lane.is_starting = False
        if not lane.is_busy:
            del self._lanes[key]
