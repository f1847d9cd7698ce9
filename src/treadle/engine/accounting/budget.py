"""Limits on what a turn or a thread may use, checked before every model request."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec
from msgspec import Struct

from treadle.protocol.extension import Budget
from treadle.store.stored_thread import StoredThread


class BudgetExceeded(Exception):
    """A limit was reached; the turn ends with this."""


class Meter(Struct):
    """The usage of one budget."""

    budget: Budget
    whose: str
    monotonic: Callable[[], float] = time.monotonic
    tokens: int = 0
    requests: int = 0
    # Seconds of turns that are over; only the time of turns counts, not the time between them.
    seconds: float = 0.0
    started_at: float | None = None

    def start(self) -> None:
        """Start the time of a turn."""
        self.started_at = self.monotonic()

    def stop(self) -> None:
        """Stop the time of a turn."""
        self.seconds, self.started_at = self._used_seconds(), None

    def charge(self, tokens: int) -> None:
        """Count one model response."""
        self.tokens += tokens

    def admit(self) -> None:
        """Count one model request.

        Raises:
            BudgetExceeded: the budget is used up.
        """
        budget = self.budget
        if budget.max_tokens is not None and self.tokens >= budget.max_tokens:
            raise BudgetExceeded(f"the {self.whose}'s budget of {budget.max_tokens} tokens is used")
        if budget.max_model_requests is not None and self.requests >= budget.max_model_requests:
            limit = budget.max_model_requests
            raise BudgetExceeded(f"the {self.whose}'s budget of {limit} model requests is used")
        if self.is_timed and not self.seconds_left():
            raise self.out_of_time()
        self.requests += 1

    @property
    def is_timed(self) -> bool:
        """Whether the budget limits time."""
        return self.budget.max_seconds is not None

    def seconds_left(self) -> float:
        """Return the remaining seconds; infinity if time is not limited."""
        if self.budget.max_seconds is None:
            return math.inf
        return max(0.0, self.budget.max_seconds - self._used_seconds())

    def out_of_time(self) -> BudgetExceeded:
        """Return the error to raise when the time is used up."""
        return BudgetExceeded(f"the {self.whose}'s budget of {self.budget.max_seconds} s is used")

    def _used_seconds(self) -> float:
        running = 0.0 if self.started_at is None else self.monotonic() - self.started_at
        return self.seconds + running


def meter_of(stored: StoredThread) -> Meter | None:
    """Return the usage of a stored thread's budget, if it has one."""
    budget = (stored.meta.extra or {}).get("budget")
    if budget is None:
        return None
    return Meter(
        msgspec.convert(budget, Budget),
        "thread",
        tokens=stored.usage.total.total_tokens if stored.usage else 0,
        requests=len(stored.response_ids),
        seconds=sum(max(0, turn.duration_ms or 0) for turn in stored.turns) / 1000,
    )
