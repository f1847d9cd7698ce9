"""Limits on what a turn or a thread may use, checked before every model request."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from treadle.protocol.extension import Budget


class BudgetExceeded(Exception):
    """A limit was reached; the turn ends with this."""


@dataclass(slots=True)
class Meter:
    """What was used of one budget."""

    budget: Budget
    whose: str
    monotonic: Callable[[], float] = time.monotonic
    tokens: int = 0
    requests: int = 0
    started_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.started_at = self.monotonic()

    def charge(self, tokens: int) -> None:
        """Count one model response."""
        self.tokens += tokens

    def admit(self) -> None:
        """Count one model request.

        Raises:
            BudgetExceeded: there is nothing left for it.
        """
        budget = self.budget
        if budget.max_tokens is not None and self.tokens >= budget.max_tokens:
            raise BudgetExceeded(f"the {self.whose}'s budget of {budget.max_tokens} tokens is used")
        if budget.max_model_requests is not None and self.requests >= budget.max_model_requests:
            limit = budget.max_model_requests
            raise BudgetExceeded(f"the {self.whose}'s budget of {limit} model requests is used")
        if self.seconds_left() == 0:
            raise BudgetExceeded(f"the {self.whose}'s budget of {budget.max_seconds} s is used")
        self.requests += 1

    def seconds_left(self) -> float | None:
        """The time that is left, `None` if it is not limited."""
        if self.budget.max_seconds is None:
            return None
        return max(0.0, self.started_at + self.budget.max_seconds - self.monotonic())
