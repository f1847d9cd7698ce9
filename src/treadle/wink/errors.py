"""Client errors as WINK's errors: a phase, a message and a payload with the details."""

from __future__ import annotations

from typing import Final

import msgspec
from weakincentives import DeadlineExceededError
from weakincentives.adapters import PromptEvaluationError
from weakincentives.errors import PromptEvaluationPhase

from treadle.client.errors import (
    ClientError,
    RequestRefused,
    ServerExited,
    ServerUnavailable,
    TurnFailed,
    TurnUnsuccessful,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo, CodexErrorInfoDetail

STDERR_CHARACTERS: Final = 8192

_PHASES: Final[dict[str, PromptEvaluationPhase]] = {
    "contextWindowExceeded": "response",
    "usageLimitExceeded": "budget",
    "sessionBudgetExceeded": "budget",
    "rateLimitExceeded": "budget",
    "modelCap": "budget",
    "httpConnectionFailed": "request",
    "unauthorized": "request",
    "badRequest": "request",
    "serverOverloaded": "request",
    "flexUnavailable": "request",
    "responseTooManyFailedAttempts": "request",
    "responseStreamConnectionFailed": "request",
    "responseStreamDisconnected": "request",
    "sandboxError": "tool",
    "threadRollbackFailed": "response",
    "internalServerError": "response",
}


class PromptDeadlineExceeded(PromptEvaluationError, DeadlineExceededError):
    """The deadline passed before the prompt was evaluated."""


def cause_of(info: CodexErrorInfo | None) -> tuple[str | None, JsonValue]:
    """Return the cause of a failure by name, and in its wire form."""
    document: JsonValue = msgspec.to_builtins(info)
    if isinstance(info, CodexErrorInfoDetail):
        document = {key: each for key, each in document.items() if each is not None}
    if isinstance(document, dict):
        return next(iter(document), None), document
    return document, document


def phase_of(name: str | None) -> PromptEvaluationPhase:
    """Return the phase of a cause."""
    return _PHASES.get(name or "", "response")


def evaluation_error(error: ClientError, prompt_name: str, stderr: str) -> PromptEvaluationError:
    """Return the prompt's error for a client error."""
    payload: dict[str, JsonValue] = {}
    phase: PromptEvaluationPhase = "request"
    message = str(error)
    if isinstance(error, TurnUnsuccessful):
        payload |= {"turn_id": error.turn.id, "status": error.turn.status}
    match error:
        case TurnFailed():
            name, document = cause_of(error.codex_error_info)
            phase = phase_of(name)
            payload["codexErrorInfo"] = document
            payload["httpStatusCode"] = error.http_status
            payload["additionalDetails"] = error.additional_details
        case RequestRefused():
            payload |= {"method": error.method, "code": error.code, "data": error.data}
        case ServerExited():
            phase = "response"
            payload["exit_code"] = error.exit_code
            stderr = error.stderr
        case ServerUnavailable():
            message = f"{message}; install it or set codex_bin"
        case _:
            pass
    payload["stderr"] = stderr[-STDERR_CHARACTERS:]
    return PromptEvaluationError(
        message, prompt_name=prompt_name, phase=phase, provider_payload=payload
    )
