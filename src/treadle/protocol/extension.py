"""What Treadle adds to the protocol: optional fields that other servers and clients ignore."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import SnakeValue, Sparse, UInt64


class Budget(Sparse, frozen=True):
    """Limits for a turn or a thread; a turn that would exceed them fails."""

    # Input and output tokens together, as the provider counts them.
    max_tokens: UInt64 | None = None
    max_model_requests: UInt64 | None = None
    max_seconds: float | None = None


class AskPolicy(SnakeValue, frozen=True):
    """The `asks` table of the configuration: how long server requests stay open."""

    # Null waits forever.
    deadline_ms: UInt64 | None = None
    # The answer used on expiry; requests that it does not fit are declined.
    decision: Literal["accept", "decline", "cancel"] = "decline"
