"""What can go wrong for a client, as one tree.

    ClientError
    ├── ServerUnavailable        there is no server to talk to: not found, not started, not reached
    ├── Disconnected             the line is gone
    │   └── ServerExited         ... because the server's process ended: `exit_code`, `stderr`
    ├── RequestRefused           the server answered with an error: `code`, `kind`, `data`
    │   └── ServerBusy           ... that it is overloaded, again and again
    ├── RequestTimeout           no answer in time
    ├── TurnUnsuccessful         a turn ended otherwise than asked: `turn`, `result`
    │   ├── TurnFailed           `codex_error_info`, `http_status`
    │   ├── TurnInterrupted
    │   ├── TurnTimeout          it was silent for too long, or took too long in all
    │   ├── ApprovalRequired     somebody would have had to decide: `ask`
    │   └── InputRequired        somebody would have had to answer: `ask`
    ├── LoginFailed              somebody could not sign in, or gave it up: `reason`
    ├── OutputInvalid            the model's last word does not fit the type: `text`, `reason`
    └── EventsLost               whoever reads a stream fell too far behind

Each carries what a program needs in fields; messages are for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo, CodexErrorInfoDetail

if TYPE_CHECKING:
    from treadle.client.result import TurnResult
    from treadle.jsonrpc.errors import RpcError
    from treadle.protocol.turn import Turn


class ClientError(Exception):
    """Anything that a client raises by itself."""


class ServerUnavailable(ClientError):
    """There is no server to talk to; `is_final` if trying again would change nothing."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class Disconnected(ClientError):
    """The line to the server is gone, or was never there."""


class ServerExited(Disconnected):
    """The server's process ended; `exit_code` is negative for a signal."""

    def __init__(self, exit_code: int | None, stderr: str) -> None:
        last = stderr.strip().rpartition("\n")[2]
        said = f": {last}" if last else ""
        super().__init__(f"the server ended with exit code {exit_code}{said}")
        self.exit_code = exit_code
        self.stderr = stderr


class RequestRefused(ClientError):
    """The server answered a request with an error."""

    def __init__(self, method: str, code: int, message: str, data: JsonValue = None) -> None:
        self.method = method
        self.code = code
        self.message = message
        self.data = data
        # The reference lists all that it has instead: two screens of names.
        said = "the server has no such method" if self._is_unknown_variant else message
        super().__init__(f"{method}: {said}")

    @property
    def kind(self) -> str | None:
        """The precise kind of error, where the server names one; `methodNotFound` from any."""
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
        """Say the same in the client's words."""
        kind = ServerBusy if error.code == OVERLOADED else RequestRefused
        return kind(method, error.code, error.message, error.data)


class ServerBusy(RequestRefused):
    """The server had no room for the request, however often it was sent."""


OVERLOADED = -32001
NO_METHOD = -32601


class RequestTimeout(ClientError):
    """The server did not answer in time."""

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(f"{method}: no answer within {seconds:g} s")
        self.method = method
        self.seconds = seconds


class TurnUnsuccessful(ClientError):
    """A turn ended otherwise than asked; `result` holds what came of it nevertheless."""

    def __init__(self, message: str, result: TurnResult[None]) -> None:
        super().__init__(message)
        self.result = result

    @property
    def turn(self) -> Turn:
        """The turn as it was last seen."""
        return self.result.turn


class TurnFailed(TurnUnsuccessful):
    """The turn ended with an error."""

    def __init__(self, result: TurnResult[None]) -> None:
        error = result.turn.error
        super().__init__(error.message if error else "the turn failed", result)
        self.codex_error_info: CodexErrorInfo | None = error.codex_error_info if error else None
        self.additional_details = error.additional_details if error else None

    @property
    def http_status(self) -> int | None:
        """The status of the provider's answer, where there was one."""
        return http_status_of(self.codex_error_info)


def http_status_of(info: CodexErrorInfo | None) -> int | None:
    """The status of the provider's answer that an error tells of."""
    if not isinstance(info, CodexErrorInfoDetail):
        return None
    given = (getattr(info, name) for name in info.__struct_fields__)
    return next((getattr(detail, "http_status_code", None) for detail in given if detail), None)


class TurnInterrupted(TurnUnsuccessful):
    """Somebody stopped the turn."""

    def __init__(self, result: TurnResult[None]) -> None:
        super().__init__("the turn was interrupted", result)


class TurnTimeout(TurnUnsuccessful):
    """The turn was silent for too long, or took too long in all."""

    def __init__(self, result: TurnResult[None], seconds: float, *, is_total: bool) -> None:
        what = "did not end within" if is_total else "was silent for"
        super().__init__(f"the turn {what} {seconds:g} s", result)
        self.seconds = seconds
        self.is_total = is_total


class ApprovalRequired(TurnUnsuccessful):
    """The turn asked for an approval, and nobody may give it."""

    def __init__(self, result: TurnResult[None], ask: object) -> None:
        super().__init__("the turn needs an approval", result)
        self.ask = ask


class InputRequired(TurnUnsuccessful):
    """The turn asked the user something, and there is no user."""

    def __init__(self, result: TurnResult[None], ask: object) -> None:
        super().__init__("the turn needs the user's answer", result)
        self.ask = ask


class LoginFailed(ClientError):
    """Nobody signed in: it was refused, or given up."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(f"nobody signed in: {reason}" if reason else "nobody signed in")
        self.reason = reason


class OutputInvalid(ClientError):
    """The model's last word does not fit the type that was asked for."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"the answer does not fit the output type: {reason}")
        self.text = text
        self.reason = reason


class EventsLost(ClientError):
    """Whoever reads a stream fell so far behind that events had to be dropped."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} events were not read in time")
        self.count = count
