"""Feedback uploads."""

from __future__ import annotations

from treadle.protocol.base import Params, Value


class FeedbackRequirements(Value, frozen=True):
    """Whether the administrator allows users to send feedback."""

    enabled: bool | None = None


class FeedbackUploadParams(Params, frozen=True):
    """Send feedback, optionally with the server's logs and files of the client."""

    classification: str
    extra_log_files: list[str] | None = None
    include_logs: bool = False
    reason: str | None = None
    tags: dict[str, str] | None = None
    thread_id: str | None = None


class FeedbackUploadResponse(Value, frozen=True):
    """The report was sent; quote the thread id when asking about it."""

    thread_id: str
    prompt_hash: str | None = None
