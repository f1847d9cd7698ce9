"""The time of a call, and the questions that a server asks the user during it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from treadle.engine.mcp.connection.limits import MAX_QUESTIONS


class CallTime:
    """Limits a call to so many seconds in total in which no question to the user is open."""

    def __init__(self, seconds: float, *, may_ask: bool = True) -> None:
        self.limit = asyncio.timeout(seconds)
        # Whether questions of the server may belong to this call.
        self.may_ask = may_ask
        self._left = seconds
        self._open = 0
        self._questions = 0

    @property
    def has_too_many_questions(self) -> bool:
        """Tell whether the call fails because of the number of its questions."""
        return self._questions > MAX_QUESTIONS

    def count_question(self) -> bool:
        """Count one more question; returns whether it may be asked. If not, the call fails."""
        self._questions += 1
        if self.has_too_many_questions:
            self._schedule(0)
        return not self.has_too_many_questions

    def pause(self) -> None:
        """Note that a question is open."""
        self._open += 1
        if self._open == 1 and not self.has_too_many_questions:
            when = self.limit.when()
            self._left = 0 if when is None else max(0, when - asyncio.get_running_loop().time())
            self._schedule(None)

    def resume(self) -> None:
        """Note that a question is closed; with the last one, the time goes on."""
        self._open -= 1
        if not self._open and not self.has_too_many_questions:
            self._schedule(self._left)

    def _schedule(self, seconds: float | None) -> None:
        now = asyncio.get_running_loop().time()
        # A call that has ended while a question was open cannot be changed any more.
        with suppress(RuntimeError):
            self.limit.reschedule(None if seconds is None else now + seconds)
