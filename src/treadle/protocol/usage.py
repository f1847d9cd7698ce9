"""Token usage of a thread."""

from __future__ import annotations

from treadle.protocol.base import Int64, Value


class TokenUsageBreakdown(Value, frozen=True):
    """Tokens counted by kind; cached input is part of input, reasoning part of output."""

    cached_input_tokens: Int64
    input_tokens: Int64
    output_tokens: Int64
    reasoning_output_tokens: Int64
    total_tokens: Int64
    cache_write_input_tokens: Int64 = 0


class ThreadTokenUsage(Value, frozen=True):
    """The usage of the latest model request and of the thread so far, and the context size."""

    last: TokenUsageBreakdown
    total: TokenUsageBreakdown
    model_context_window: Int64 | None = None


class ThreadTokenUsageUpdatedNotification(Value, frozen=True):
    """The model reported token counts during a turn; turns themselves contain none."""

    thread_id: str
    token_usage: ThreadTokenUsage
    turn_id: str
