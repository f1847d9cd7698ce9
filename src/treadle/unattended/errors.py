"""The errors that end an unattended turn or session, with one `kind` for each case.

    SessionError                    `kind`, `is_retryable`, `ends_session`, `exit_code`
    ├── InvalidWorkspaceCwd         invalid_workspace_cwd: `reason`
    ├── ServerNotFound              codex_not_found
    ├── ResponseTimeout             response_timeout: `method`
    ├── ResponseError               response_error: `method`, `code`, `data`
    │   ├── InvalidThreadPayload    invalid_thread_payload
    │   └── InvalidTurnPayload      invalid_turn_payload
    ├── PortExit                    port_exit: `status`, `stderr`
    └── TurnError                   a turn was started: `report`
        ├── SessionTurnFailed       turn_failed: `codex_error_info`, `retry_at`
        ├── SessionTurnCancelled    turn_cancelled
        ├── SessionTurnTimeout      turn_timeout
        ├── Stalled                 stalled
        ├── TurnInputRequired       turn_input_required: `payload`
        ├── SessionApprovalRequired approval_required: `payload`
        ├── SessionBudgetExceeded   budget_exceeded
        └── NoProgress              no_progress

The kinds have the names that other drivers of app-servers use in their logs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

from treadle.client import errors
from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo

if TYPE_CHECKING:
    from treadle.unattended.report import TurnReport


class ErrorKind(StrEnum):
    """The kinds of failure, as they appear in logs and state files."""

    INVALID_WORKSPACE_CWD = "invalid_workspace_cwd"
    CODEX_NOT_FOUND = "codex_not_found"
    RESPONSE_TIMEOUT = "response_timeout"
    RESPONSE_ERROR = "response_error"
    INVALID_THREAD_PAYLOAD = "invalid_thread_payload"
    INVALID_TURN_PAYLOAD = "invalid_turn_payload"
    PORT_EXIT = "port_exit"
    TURN_FAILED = "turn_failed"
    TURN_CANCELLED = "turn_cancelled"
    TURN_TIMEOUT = "turn_timeout"
    STALLED = "stalled"
    TURN_INPUT_REQUIRED = "turn_input_required"
    APPROVAL_REQUIRED = "approval_required"
    BUDGET_EXCEEDED = "budget_exceeded"
    NO_PROGRESS = "no_progress"


EXIT_CODES: Final = {
    ErrorKind.TURN_FAILED: 10,
    ErrorKind.TURN_CANCELLED: 11,
    ErrorKind.TURN_TIMEOUT: 12,
    ErrorKind.STALLED: 13,
    ErrorKind.TURN_INPUT_REQUIRED: 14,
    ErrorKind.APPROVAL_REQUIRED: 15,
    ErrorKind.BUDGET_EXCEEDED: 16,
    ErrorKind.NO_PROGRESS: 17,
    ErrorKind.CODEX_NOT_FOUND: 20,
    ErrorKind.PORT_EXIT: 21,
    ErrorKind.RESPONSE_TIMEOUT: 22,
    ErrorKind.RESPONSE_ERROR: 23,
    ErrorKind.INVALID_THREAD_PAYLOAD: 24,
    ErrorKind.INVALID_TURN_PAYLOAD: 25,
    ErrorKind.INVALID_WORKSPACE_CWD: 30,
}
"""The exit codes of `treadle run`."""


class SessionError(errors.ClientError):
    """Base class of errors that end an unattended turn or session."""

    kind: ClassVar[ErrorKind]
    is_retryable: bool = False
    """Whether a retry may succeed without a change by a person."""
    ends_session: bool = True
    """Whether the session is over; its server and all processes in it are stopped then."""
    retry_at: float | None = None
    """When to retry, in Unix seconds, if the server reported it."""

    @property
    def exit_code(self) -> int:
        """The exit code of a program that fails with this error."""
        return EXIT_CODES[self.kind]

    def payload_document(self) -> JsonValue:
        """Return the fields, for logs."""
        return {"kind": str(self.kind), "message": str(self), "isRetryable": self.is_retryable}


class InvalidWorkspaceCwd(SessionError):
    """The folder is not a permitted workspace."""

    kind = ErrorKind.INVALID_WORKSPACE_CWD

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(f"{path!r} is not a valid workspace: {reason}")
        self.reason = reason
        self.path = path


class ServerNotFound(SessionError):
    """The server cannot be found or reached."""

    kind = ErrorKind.CODEX_NOT_FOUND

    def __init__(self, message: str, *, is_retryable: bool) -> None:
        super().__init__(message)
        self.is_retryable = is_retryable


class ResponseTimeout(SessionError):
    """The server did not answer a request in time."""

    kind = ErrorKind.RESPONSE_TIMEOUT
    is_retryable = True

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(f"{method}: no answer within {seconds:g} s")
        self.method = method
        self.seconds = seconds


class ResponseError(SessionError):
    """The server answered a request with an error."""

    kind = ErrorKind.RESPONSE_ERROR

    def __init__(self, method: str, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(f"{method}: {message}")
        self.method = method
        self.code = code
        self.message = message
        self.data = data
        self.is_retryable = code == errors.OVERLOADED


class InvalidThreadPayload(ResponseError):
    """The server started a thread without returning its id."""

    kind = ErrorKind.INVALID_THREAD_PAYLOAD


class InvalidTurnPayload(ResponseError):
    """The server started a turn without returning its id."""

    kind = ErrorKind.INVALID_TURN_PAYLOAD


class PortExit(SessionError):
    """The server is gone; `status` is its exit code if the session had started it."""

    kind = ErrorKind.PORT_EXIT
    is_retryable = True

    def __init__(self, message: str, status: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.stderr = stderr


class TurnError(SessionError):
    """A started turn did not succeed; `report` holds its partial result."""

    report: TurnReport | None = None


_PERMANENT: Final = frozenset(
    {
        "unauthorized",
        "badRequest",
        "cyberPolicy",
        "misalignmentPolicyViolation",
        "sessionBudgetExceeded",
        "tooManyDenials",
        "sandboxError",
    }
)
_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429})
_LIMITS: Final = frozenset({"usageLimitExceeded", "rateLimitExceeded"})


class SessionTurnFailed(TurnError):
    """The turn ended with an error; the thread may be continued."""

    kind = ErrorKind.TURN_FAILED
    ends_session = False

    def __init__(self, message: str, info: CodexErrorInfo | None = None) -> None:
        super().__init__(message)
        self.codex_error_info = info
        self.is_retryable = not self._is_permanent

    @property
    def _is_permanent(self) -> bool:
        """Whether a retry cannot help: a bad key or request, as opposed to an overloaded server."""
        status = errors.http_status_of(self.codex_error_info) or 0
        is_refused = 400 <= status < 500 and status not in _TRANSIENT_STATUSES
        return is_refused or (
            isinstance(self.codex_error_info, str) and self.codex_error_info in _PERMANENT
        )

    @property
    def is_limit(self) -> bool:
        """Whether a rate limit of the account is exhausted."""
        return isinstance(self.codex_error_info, str) and self.codex_error_info in _LIMITS


class SessionTurnCancelled(TurnError):
    """The turn was interrupted; the thread may be continued."""

    kind = ErrorKind.TURN_CANCELLED
    ends_session = False


class SessionTurnTimeout(TurnError):
    """The turn exceeded its total time limit."""

    kind = ErrorKind.TURN_TIMEOUT
    is_retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the turn did not end within {seconds:g} s")
        self.seconds = seconds


class Stalled(TurnError):
    """The turn exceeded its idle timeout, and the server does not report its end either."""

    kind = ErrorKind.STALLED
    is_retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no message about the turn for {seconds:g} s")
        self.seconds = seconds


class TurnInputRequired(TurnError):
    """The turn needs user input, which the session does not provide."""

    kind = ErrorKind.TURN_INPUT_REQUIRED

    def __init__(self, payload: JsonValue) -> None:
        super().__init__("the turn requires user input")
        self.payload = payload


class SessionApprovalRequired(TurnError):
    """The turn needs an approval that the session's policy does not grant."""

    kind = ErrorKind.APPROVAL_REQUIRED

    def __init__(self, payload: JsonValue) -> None:
        super().__init__("the turn requires an approval")
        self.payload = payload


class SessionBudgetExceeded(TurnError):
    """The session used more tokens than its budget allows."""

    kind = ErrorKind.BUDGET_EXCEEDED

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(f"used {used} tokens of a budget of {limit}")
        self.used = used
        self.limit = limit


class NoProgress(TurnError):
    """Consecutive turns succeeded without changes while the work is not done."""

    kind = ErrorKind.NO_PROGRESS

    def __init__(self, turns: int) -> None:
        super().__init__(f"{turns} consecutive turns changed nothing and the work is not done")
        self.turns = turns


INVALID_THREAD: Final = "invalidThreadPayload"
INVALID_TURN: Final = "invalidTurnPayload"
_INVALID: Final[dict[str | None, type[ResponseError]]] = {
    INVALID_THREAD: InvalidThreadPayload,
    INVALID_TURN: InvalidTurnPayload,
}


def to_session_error(error: errors.ClientError) -> SessionError:
    """Return the session error that corresponds to a client error."""
    match error:
        case SessionError():
            return error
        case errors.ServerUnavailable():
            return ServerNotFound(str(error), is_retryable=not error.is_final)
        case errors.ServerExited():
            return PortExit(str(error), error.exit_code, error.stderr)
        case errors.RequestTimeout():
            return ResponseTimeout(error.method, error.seconds)
        case errors.RequestRefused():
            kind = _INVALID.get(error.kind, ResponseError)
            return kind(error.method, error.code, error.message, error.data)
        case errors.TurnFailed():
            return SessionTurnFailed(str(error), error.codex_error_info)
        case errors.TurnInterrupted():
            return SessionTurnCancelled(str(error))
        case _:
            return PortExit(str(error))
