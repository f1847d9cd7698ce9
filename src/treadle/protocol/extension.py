"""What Treadle adds to the protocol: optional fields that other servers and clients ignore."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import SnakeValue, Sparse, UInt64


class Budget(Sparse, frozen=True):
    """How much a turn or a thread may use; the turn that would use more ends as failed."""

    # Input and output tokens together, as the provider counts them.
    max_tokens: UInt64 | None = None
    max_model_requests: UInt64 | None = None
    max_seconds: float | None = None


class AskPolicy(SnakeValue, frozen=True):
    """The table `asks` of the configuration: how long questions to clients stay open."""

    # Null waits for ever.
    deadline_ms: UInt64 | None = None
    # What counts as the answer then; questions that it does not fit are refused.
    decision: Literal["accept", "decline", "cancel"] = "decline"
