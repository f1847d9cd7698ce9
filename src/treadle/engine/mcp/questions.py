"""Limits the time of a call and the number of elicitations during it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from treadle.engine.mcp.connection.limits import MAX_QUESTIONS


class CallTime:
    """Limits the time of a call, not counting the time in which an elicitation is open."""

    def __init__(self, seconds: float, *, may_ask: bool = True) -> None:
        self.limit = asyncio.timeout(seconds)
        # Whether elicitations may belong to this call.
        self.may_ask = may_ask
        self._left = seconds
        self._open = 0
        self._questions = 0

    @property
    def has_too_many_questions(self) -> bool:
        """Whether the call fails because it has too many elicitations."""
        return self._questions > MAX_QUESTIONS

    def count_question(self) -> bool:
        """Count an elicitation; return whether it is allowed. If not, the call fails."""
        self._questions += 1
        if self.has_too_many_questions:
            self._schedule(0)
        return not self.has_too_many_questions

    def pause(self) -> None:
        """Stop the time: an elicitation is open."""
        self._open += 1
        if self._open == 1 and not self.has_too_many_questions:
            when = self.limit.when()
            self._left = 0 if when is None else max(0, when - asyncio.get_running_loop().time())
            self._schedule(None)

    def resume(self) -> None:
        """Handle the end of an elicitation; after the last one, the time continues."""
        self._open -= 1
        if not self._open and not self.has_too_many_questions:
            self._schedule(self._left)

    def _schedule(self, seconds: float | None) -> None:
        now = asyncio.get_running_loop().time()
        # The timeout of a call that ended during an elicitation cannot be rescheduled.
        with suppress(RuntimeError):
            self.limit.reschedule(None if seconds is None else now + seconds)
