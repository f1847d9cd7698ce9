"""What Treadle adds to the protocol: optional fields that other servers and clients ignore."""

from __future__ import annotations

from treadle.protocol.base import Sparse, UInt64


class Budget(Sparse, frozen=True):
    """How much a turn or a thread may use; the turn that would use more ends as failed."""

    # Input and output tokens together, as the provider counts them.
    max_tokens: UInt64 | None = None
    max_model_requests: UInt64 | None = None
    max_seconds: float | None = None
