"""The token ledger of a thread: one entry per model response."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.model.base import ResponseUsage
from treadle.protocol.usage import ThreadTokenUsage, TokenUsageBreakdown

NOTHING = TokenUsageBreakdown(
    cached_input_tokens=0,
    input_tokens=0,
    output_tokens=0,
    reasoning_output_tokens=0,
    total_tokens=0,
)


class TokenLedger:
    """The token usage of a thread; a response counts once, however often it is reported."""

    def __init__(
        self,
        total: TokenUsageBreakdown = NOTHING,
        last: TokenUsageBreakdown = NOTHING,
        context_window: int | None = None,
    ) -> None:
        self.total = total
        self.last = last
        self.context_window = context_window
        self._seen: set[str] = set()

    def know(self, response_ids: Iterable[str]) -> None:
        """Register responses that the totals already include."""
        self._seen.update(response_ids)

    def add(self, response_id: str, usage: ResponseUsage, window: int) -> bool:
        """Count a response of a model with this context window; false if counted before."""
        if response_id in self._seen:
            return False
        self._seen.add(response_id)
        self.last = breakdown(usage)
        self.total = plus(self.total, self.last)
        self.context_window = window
        return True

    def to_protocol(self) -> ThreadTokenUsage:
        """Return the ledger as clients see it."""
        return ThreadTokenUsage(
            last=self.last, total=self.total, model_context_window=self.context_window
        )


def breakdown(usage: ResponseUsage) -> TokenUsageBreakdown:
    """Convert the provider's usage to the protocol's type."""
    return TokenUsageBreakdown(
        cached_input_tokens=usage.cached_input_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_output_tokens=usage.reasoning_output_tokens,
        total_tokens=usage.total_tokens or usage.input_tokens + usage.output_tokens,
        cache_write_input_tokens=usage.cache_write_input_tokens,
    )


def plus(one: TokenUsageBreakdown, two: TokenUsageBreakdown) -> TokenUsageBreakdown:
    """Add two usages."""
    return TokenUsageBreakdown(
        cached_input_tokens=one.cached_input_tokens + two.cached_input_tokens,
        input_tokens=one.input_tokens + two.input_tokens,
        output_tokens=one.output_tokens + two.output_tokens,
        reasoning_output_tokens=one.reasoning_output_tokens + two.reasoning_output_tokens,
        total_tokens=one.total_tokens + two.total_tokens,
        cache_write_input_tokens=one.cache_write_input_tokens + two.cache_write_input_tokens,
    )
