"""Why a turn failed, and warnings that belong to no turn."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import OneOf, TextRange, UInt16, UInt64, Value


class HttpStatus(Value, frozen=True):
    """The status that the provider answered with, if it got as far as an answer."""

    http_status_code: UInt16 | None = None


NonSteerableTurnKind = Literal["review", "compact"]


class ActiveTurnNotSteerable(Value, frozen=True):
    """The running turn takes no further input because of what it does."""

    turn_kind: NonSteerableTurnKind


class CodexErrorInfoDetail(OneOf, frozen=True):
    """A cause that carries data with it: exactly one field is set."""

    http_connection_failed: HttpStatus | None = None
    response_stream_connection_failed: HttpStatus | None = None
    response_stream_disconnected: HttpStatus | None = None
    response_too_many_failed_attempts: HttpStatus | None = None
    active_turn_not_steerable: ActiveTurnNotSteerable | None = None


CodexErrorInfo = (
    Literal[
        "contextWindowExceeded",
        "sessionBudgetExceeded",
        "usageLimitExceeded",
        "rateLimitExceeded",
        "flexUnavailable",
        "serverOverloaded",
        "cyberPolicy",
        "misalignmentPolicyViolation",
        "tooManyDenials",
        "internalServerError",
        "unauthorized",
        "badRequest",
        "threadRollbackFailed",
        "sandboxError",
        "other",
    ]
    | CodexErrorInfoDetail
)
"""The cause of an error, for programs: a word, or an object where there is more to say."""


class ConfigWarningNotification(Value, frozen=True):
    """Something is wrong in the configuration, and where; the server runs nevertheless."""

    summary: str
    details: str | None = None
    path: str | UnsetType | None = UNSET
    range: TextRange | UnsetType | None = UNSET


class DeprecationNoticeNotification(Value, frozen=True):
    """The client or the configuration uses something that will go away."""

    summary: str
    details: str | None = None


class MisalignmentSteer(Value, frozen=True):
    """Words for the next turn, should the user decide to go on after a block."""

    message: str


class MisalignmentErrorDetails(Value, frozen=True):
    """Why the provider blocked the agent's course, and how the user may go on."""

    # Offer to go on only if there is one.
    detailed_explanation: str | None = None
    # An open set: new words appear without notice.
    error_type: str | None = None
    review_target: str | None = None
    steer: MisalignmentSteer | None = None


class TurnError(Value, frozen=True):
    """What went wrong in a turn: words for people, a cause for programs."""

    message: str
    additional_details: str | None = None
    codex_error_info: CodexErrorInfo | None = None
    misalignment: MisalignmentErrorDetails | None = None


class ErrorNotification(Value, frozen=True):
    """A turn ran into an error; it goes on if `willRetry`, else it is about to fail."""

    error: TurnError
    thread_id: str
    turn_id: str
    will_retry: bool


class GuardianWarningNotification(Value, frozen=True):
    """The automatic reviewer has something to tell the user of a thread."""

    message: str
    thread_id: str


class WarningNotification(Value, frozen=True):
    """Something the user should know, about one thread or about the server."""

    message: str
    thread_id: str | None = None


class WindowsWorldWritableWarningNotification(Value, frozen=True):
    """Folders that anyone may write to, which weaken the sandbox on Windows; some by name."""

    extra_count: UInt64
    failed_scan: bool
    sample_paths: list[str]
