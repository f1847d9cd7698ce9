"""The client's exceptions.

    ClientError
    ├── ServerUnavailable        the server was not found, did not start or cannot be reached
    ├── Disconnected             the connection is lost
    │   └── ServerExited         ... because the server's process ended: `exit_code`, `stderr`
    ├── RequestRefused           the server answered with an error: `code`, `kind`, `data`
    │   └── ServerBusy           ... because it is overloaded, after all retries
    ├── RequestTimeout           no answer in time
    ├── TurnUnsuccessful         a turn did not complete: `turn`, `result`
    │   ├── TurnFailed           it ended with an error: `codex_error_info`, `http_status`
    │   ├── TurnInterrupted      it was interrupted
    │   ├── TurnTimeout          the idle timeout or the total timeout expired
    │   ├── ApprovalRequired     it needs an approval: `ask`
    │   └── InputRequired        it needs an answer from the user: `ask`
    ├── LoginFailed              a sign-in was refused or cancelled: `reason`
    ├── OutputInvalid            the final answer does not match the type: `text`, `reason`
    └── EventsLost               the reader of a stream fell too far behind: `count`

Programs read the fields; the messages are for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo, CodexErrorInfoDetail, TurnError

if TYPE_CHECKING:
    from treadle.client.result import TurnResult
    from treadle.jsonrpc.errors import RpcError
    from treadle.protocol.turn import Turn


class ClientError(Exception):
    """Base class of the client's exceptions."""


class ServerUnavailable(ClientError):
    """The server cannot be reached; `is_final` if a retry cannot succeed."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class Disconnected(ClientError):
    """The client is not connected to the server, or no longer."""


class ServerExited(Disconnected):
    """The server's process ended; `exit_code` is negative for a signal."""

    def __init__(self, exit_code: int | None, stderr: str) -> None:
        last = stderr.strip().rpartition("\n")[2]
        detail = f": {last}" if last else ""
        super().__init__(f"the server ended with exit code {exit_code}{detail}")
        self.exit_code = exit_code
        self.stderr = stderr


class RequestRefused(ClientError):
    """The server answered a request with an error."""

    def __init__(self, method: str, code: int, message: str, data: JsonValue = None) -> None:
        self.method = method
        self.code = code
        self.message = message
        self.data = data
        # The reference lists all its methods instead: two screens of names.
        detail = "the server has no such method" if self._is_unknown_variant else message
        super().__init__(f"{method}: {detail}")

    @property
    def kind(self) -> str | None:
        """The kind of error, if the server names one; `methodNotFound` works with any server."""
        if isinstance(self.data, dict) and "kind" in self.data:
            kind: str = self.data["kind"]
            return kind
        is_missing = self.code == NO_METHOD or self._is_unknown_variant
        return "methodNotFound" if is_missing else None

    @property
    def _is_unknown_variant(self) -> bool:
        return f"unknown variant `{self.method}`" in self.message

    @classmethod
    def of(cls, method: str, error: RpcError) -> RequestRefused:
        """Convert a JSON-RPC error."""
        kind = ServerBusy if error.code == OVERLOADED else RequestRefused
        return kind(method, error.code, error.message, error.data)


class ServerBusy(RequestRefused):
    """The server is overloaded and rejected the request on every attempt."""


OVERLOADED = -32001
NO_METHOD = -32601


class RequestTimeout(ClientError):
    """The server did not answer in time."""

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(f"{method}: no answer within {seconds:g} s")
        self.method = method
        self.seconds = seconds


class TurnUnsuccessful(ClientError):
    """A turn did not complete; `result` holds its partial result."""

    def __init__(self, message: str, result: TurnResult[None]) -> None:
        super().__init__(message)
        self.result = result

    @property
    def turn(self) -> Turn:
        """The last known state of the turn."""
        return self.result.turn


class TurnFailed(TurnUnsuccessful):
    """The turn ended with an error."""

    def __init__(self, result: TurnResult[None]) -> None:
        error = result.turn.error
        known = error if isinstance(error, TurnError) else None  # a server may send anything
        super().__init__(known.message if known else str(error or "the turn failed"), result)
        self.codex_error_info: CodexErrorInfo | None = known.codex_error_info if known else None
        self.additional_details = known.additional_details if known else None

    @property
    def http_status(self) -> int | None:
        """The HTTP status of the provider's answer, if there was one."""
        return http_status_of(self.codex_error_info)


def http_status_of(info: CodexErrorInfo | None) -> int | None:
    """Return the HTTP status of the provider's answer that an error carries."""
    if not isinstance(info, CodexErrorInfoDetail):
        return None
    details = (getattr(info, name) for name in info.__struct_fields__)
    return next((getattr(detail, "http_status_code", None) for detail in details if detail), None)


class TurnInterrupted(TurnUnsuccessful):
    """The turn was interrupted."""

    def __init__(self, result: TurnResult[None]) -> None:
        super().__init__("the turn was interrupted", result)


class TurnTimeout(TurnUnsuccessful):
    """The turn's idle timeout expired, or its total timeout (`is_total`)."""

    def __init__(self, result: TurnResult[None], seconds: float, *, is_total: bool) -> None:
        problem = "did not end within" if is_total else "was silent for"
        super().__init__(f"the turn {problem} {seconds:g} s", result)
        self.seconds = seconds
        self.is_total = is_total


class ApprovalRequired(TurnUnsuccessful):
    """The turn asked for an approval, and its handler raised `CannotDecide`."""

    def __init__(self, result: TurnResult[None], ask: object) -> None:
        super().__init__("the turn needs an approval", result)
        self.ask = ask


class InputRequired(TurnUnsuccessful):
    """The turn asked the user a question, and its handler raised `CannotDecide`."""

    def __init__(self, result: TurnResult[None], ask: object) -> None:
        super().__init__("the turn needs the user's answer", result)
        self.ask = ask


class LoginFailed(ClientError):
    """A sign-in was refused or cancelled."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(f"sign-in failed: {reason}" if reason else "sign-in failed")
        self.reason = reason


class OutputInvalid(ClientError):
    """The final answer does not match the requested type."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"the answer does not match the output type: {reason}")
        self.text = text
        self.reason = reason


class EventsLost(ClientError):
    """The reader of a stream fell so far behind that events were dropped."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} events were not read in time")
        self.count = count
