"""Why a turn failed, and warnings outside turns."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import OneOf, TextRange, UInt16, UInt64, Value


class HttpStatus(Value, frozen=True):
    """The status of the provider's response, if there was one."""

    http_status_code: UInt16 | None = None


NonSteerableTurnKind = Literal["review", "compact"]


class ActiveTurnNotSteerable(Value, frozen=True):
    """The active turn does not accept input, because of its kind."""

    turn_kind: NonSteerableTurnKind


class CodexErrorInfoDetail(OneOf, frozen=True):
    """A cause that carries data: exactly one field is set."""

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
        "modelNotFound",
        "policyCapacityUnavailable",
        "inferenceHookDenied",
        "threadRollbackFailed",
        "sandboxError",
        "other",
    ]
    | CodexErrorInfoDetail
)
"""The machine-readable cause of an error: a string, or an object if it carries data."""


class ConfigWarningNotification(Value, frozen=True):
    """A problem in the configuration and its location; the server runs nevertheless."""

    summary: str
    details: str | None = None
    path: str | UnsetType | None = UNSET
    range: TextRange | UnsetType | None = UNSET


class DeprecationNoticeNotification(Value, frozen=True):
    """The client or the configuration uses a deprecated feature."""

    summary: str
    details: str | None = None


class MisalignmentSteer(Value, frozen=True):
    """Input for the next turn, if the user decides to continue after a block."""

    message: str


class MisalignmentErrorDetails(Value, frozen=True):
    """Why the provider blocked the agent's actions, and how the user may continue."""

    # Offer to continue only if it is present.
    detailed_explanation: str | None = None
    # An open set: new values appear without notice.
    error_type: str | None = None
    review_target: str | None = None
    steer: MisalignmentSteer | None = None


class TurnError(Value, frozen=True):
    """The error of a turn: a message for people, a cause for programs."""

    message: str
    additional_details: str | None = None
    codex_error_info: CodexErrorInfo | None = None
    misalignment: MisalignmentErrorDetails | None = None


class ErrorNotification(Value, frozen=True):
    """An error occurred in a turn; the turn continues if `willRetry`, otherwise it fails."""

    error: TurnError
    thread_id: str
    turn_id: str
    will_retry: bool


class GuardianWarningNotification(Value, frozen=True):
    """The automatic reviewer has a warning for the user of a thread."""

    message: str
    thread_id: str


class WarningNotification(Value, frozen=True):
    """A warning for the user, about one thread or about the server."""

    message: str
    thread_id: str | None = None


class WindowsWorldWritableWarningNotification(Value, frozen=True):
    """World-writable folders, which weaken the sandbox on Windows; some by name."""

    extra_count: UInt64
    failed_scan: bool
    sample_paths: list[str]
