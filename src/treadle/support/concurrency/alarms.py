"""Deadlines that almost never expire, for code that sets one with each operation.

A timer of the loop costs more than the small request it guards: it is sorted in, cancelled and
removed again. Here one timer serves all deadlines, and work that ends in time never touches it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType


class Alarm:
    """An action and the time on the loop's clock at which it is due."""

    __slots__ = ("_alarms", "action", "when")

    def __init__(self, alarms: Alarms, when: float, action: Callable[[], object]) -> None:
        self._alarms = alarms
        self.when = when
        self.action = action

    def cancel(self) -> None:
        """Cancel the alarm."""
        self._alarms.forget(self)


class Alarms:
    """The alarms of one loop, without a task."""

    def __init__(self) -> None:
        self._pending: dict[Alarm, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float, action: Callable[[], object]) -> Alarm:
        """Call `action` after this many seconds, unless cancelled before."""
        loop = asyncio.get_running_loop()
        alarm = Alarm(self, loop.time() + seconds, action)
        self._pending[alarm] = None
        if self._timer is None or alarm.when < self._timer.when():
            self._arm(loop, alarm.when)
        return alarm

    def limit(self, seconds: float | None) -> Limit:
        """Return an `asyncio.timeout` based on an alarm; `None` never expires."""
        return Limit(self, seconds)

    def forget(self, alarm: Alarm) -> None:
        """Cancel an alarm."""
        self._pending.pop(alarm, None)
        # Its owner refers to it, and it would refer to its owner.
        alarm.action = _ignore

    def close(self) -> None:
        """Cancel all alarms."""
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(when, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        # The alarm it was armed for may be cancelled; then it is armed for the next one.
        self._timer = None
        now = loop.time()
        due = [alarm for alarm in self._pending if alarm.when <= now]
        try:
            for alarm in sorted(due, key=attrgetter("when")):
                # An action may cancel another alarm.
                if alarm in self._pending:
                    action = alarm.action
                    self.forget(alarm)
                    action()
        finally:
            if self._pending:
                self._arm(loop, min(alarm.when for alarm in self._pending))


class Limit:
    """Ends the block with a `TimeoutError` when its time is up."""

    __slots__ = ("_alarm", "_alarms", "_cancelling", "_is_expired", "_seconds", "_task")

    def __init__(self, alarms: Alarms, seconds: float | None) -> None:
        self._alarms = alarms
        self._seconds = seconds
        self._is_expired = False
        self._alarm: Alarm | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("a time limit requires a running task")
        self._cancelling = self._task.cancelling()
        if self._seconds is not None:
            self._alarm = self._alarms.set(self._seconds, self._expire)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if not self._is_expired or self._task is None:
            return
        # If the task was also cancelled from elsewhere, that cancellation wins.
        is_ours = self._task.uncancel() <= self._cancelling
        if is_ours and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def _expire(self) -> None:
        self._is_expired = True
        if self._task is not None:
            self._task.cancel()


def _ignore() -> None:
    pass
