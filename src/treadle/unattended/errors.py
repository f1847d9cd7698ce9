"""What can end an unattended session, as one tree with a word for each case.

    SessionError                 `kind`, `is_retryable`, `ends_session`, `exit_code`
    ├── InvalidWorkspaceCwd      invalid_workspace_cwd: `reason`
    ├── ServerNotFound           codex_not_found
    ├── ResponseTimeout          response_timeout: `method`
    ├── ResponseError            response_error: `method`, `code`, `data`
    │   ├── InvalidThreadPayload invalid_thread_payload
    │   └── InvalidTurnPayload   invalid_turn_payload
    ├── PortExit                 port_exit: `status`, `stderr`
    └── TurnError                a turn was begun: `report`
        ├── TurnFailed           turn_failed: `codex_error_info`, `retry_at`
        ├── TurnCancelled        turn_cancelled
        ├── TurnTimeout          turn_timeout
        ├── Stalled              stalled
        ├── TurnInputRequired    turn_input_required: `payload`
        ├── ApprovalRequired     approval_required: `payload`
        ├── BudgetExceeded       budget_exceeded
        └── NoProgress           no_progress

The words are those that other drivers of this kind use, so that their users can read our logs.
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
    """One word for each way to fail."""

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
"""What `treadle run` ends with."""


class SessionError(errors.ClientError):
    """Anything that ends an unattended turn or session otherwise than asked."""

    kind: ClassVar[ErrorKind]
    is_retryable: bool = False
    """Whether the same may succeed later, without a person changing something."""
    ends_session: bool = True
    """Whether the session is over; its server was stopped then, and all that ran in it."""
    retry_at: float | None = None
    """When it makes sense to try again, in Unix seconds, where the server said so."""

    @property
    def exit_code(self) -> int:
        """What a program that fails with this ends with."""
        return EXIT_CODES[self.kind]

    def payload_document(self) -> JsonValue:
        """The fields, for logs."""
        return {"kind": str(self.kind), "message": str(self), "isRetryable": self.is_retryable}


class InvalidWorkspaceCwd(SessionError):
    """The folder is not one that the agent may be let into."""

    kind = ErrorKind.INVALID_WORKSPACE_CWD

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(f"{path!r} is no workspace: {reason}")
        self.reason = reason
        self.path = path


class ServerNotFound(SessionError):
    """There is no server to talk to."""

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
    """The server started a thread and did not say which."""

    kind = ErrorKind.INVALID_THREAD_PAYLOAD


class InvalidTurnPayload(ResponseError):
    """The server started a turn and did not say which."""

    kind = ErrorKind.INVALID_TURN_PAYLOAD


class PortExit(SessionError):
    """The server is gone; `status` is its exit code, or `None` if it was no process of ours."""

    kind = ErrorKind.PORT_EXIT
    is_retryable = True

    def __init__(self, message: str, status: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.stderr = stderr


class TurnError(SessionError):
    """A turn was begun and came to no good end; `report` holds what came of it."""

    report: TurnReport | None = None


_HOPELESS: Final = frozenset(
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
_PASSING: Final = frozenset({408, 409, 425, 429})
_LIMITS: Final = frozenset({"usageLimitExceeded", "rateLimitExceeded"})


class SessionTurnFailed(TurnError):
    """The turn ended with an error; the thread may be continued."""

    kind = ErrorKind.TURN_FAILED
    ends_session = False

    def __init__(self, message: str, info: CodexErrorInfo | None = None) -> None:
        super().__init__(message)
        self.codex_error_info = info
        self.is_retryable = not self._will_stay

    @property
    def _will_stay(self) -> bool:
        """Whether the cause is one that no time changes: a bad key or question, not a busy line."""
        status = errors.http_status_of(self.codex_error_info) or 0
        is_refused = 400 <= status < 500 and status not in _PASSING
        return is_refused or (
            isinstance(self.codex_error_info, str) and self.codex_error_info in _HOPELESS
        )

    @property
    def is_limit(self) -> bool:
        """Whether the account has nothing left for now."""
        return isinstance(self.codex_error_info, str) and self.codex_error_info in _LIMITS


class SessionTurnCancelled(TurnError):
    """Somebody stopped the turn; the thread may be continued."""

    kind = ErrorKind.TURN_CANCELLED
    ends_session = False


class SessionTurnTimeout(TurnError):
    """The turn took too long in all."""

    kind = ErrorKind.TURN_TIMEOUT
    is_retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the turn did not end within {seconds:g} s")
        self.seconds = seconds


class Stalled(TurnError):
    """Nothing was heard of the turn for too long, and the server knows of no end either."""

    kind = ErrorKind.STALLED
    is_retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nothing was heard of the turn for {seconds:g} s")
        self.seconds = seconds


class TurnInputRequired(TurnError):
    """The turn needs an answer that nobody is there to give."""

    kind = ErrorKind.TURN_INPUT_REQUIRED

    def __init__(self, payload: JsonValue) -> None:
        super().__init__("the turn needs somebody's answer")
        self.payload = payload


class SessionApprovalRequired(TurnError):
    """The turn needs an approval that nobody may give."""

    kind = ErrorKind.APPROVAL_REQUIRED

    def __init__(self, payload: JsonValue) -> None:
        super().__init__("the turn needs somebody's approval")
        self.payload = payload


class SessionBudgetExceeded(TurnError):
    """The session used more tokens than it was given."""

    kind = ErrorKind.BUDGET_EXCEEDED

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(f"{used} tokens were used, {limit} were given")
        self.used = used
        self.limit = limit


class NoProgress(TurnError):
    """Turns ended well one after another, the work is not done, and nothing changed."""

    kind = ErrorKind.NO_PROGRESS

    def __init__(self, turns: int) -> None:
        super().__init__(f"{turns} turns in a row changed nothing, and the work is not done")
        self.turns = turns


INVALID_THREAD: Final = "invalidThreadPayload"
INVALID_TURN: Final = "invalidTurnPayload"
_INVALID: Final[dict[str | None, type[ResponseError]]] = {
    INVALID_THREAD: InvalidThreadPayload,
    INVALID_TURN: InvalidTurnPayload,
}


def translated(error: errors.ClientError) -> SessionError:
    """The same in the words of an unattended session."""
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
