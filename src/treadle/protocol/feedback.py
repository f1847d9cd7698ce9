"""Feedback uploads."""

from __future__ import annotations

from treadle.protocol.base import LegacyAppPathString, Params, Value


class FeedbackRequirements(Value, frozen=True):
    """Whether the administrator allows users to send feedback."""

    enabled: bool | None = None


class FeedbackSaveParams(Params, frozen=True):
    """Save feedback as a ZIP file on the server's machine, at a path that does not exist yet."""

    classification: str
    save_path: LegacyAppPathString
    extra_log_files: list[str] | None = None
    include_logs: bool = False
    reason: str | None = None
    tags: dict[str, str] | None = None
    thread_id: str | None = None


class FeedbackSaveResponse(Value, frozen=True):
    """The file was written; it belongs to the client."""

    saved_path: LegacyAppPathString
    thread_id: str
    prompt_hash: str | None = None


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
