"""What can be answered instead of a result.

    RpcError                 any error answer, ours or the peer's
    ├── InvalidRequest       -32600  refused: unknown, malformed, or not possible now
    │   ├── MethodNotFound
    │   ├── InvalidParams            names the method, the path and what was expected
    │   ├── NotInitialized
    │   ├── AlreadyInitialized
    │   └── ExperimentalApiRequired
    ├── InvalidOptions       -32602  options that exclude each other
    ├── NotImplementedYet    -32601  in the table, not built
    ├── InternalError        -32603  i/o failed, or our own fault
    └── Overloaded           -32001  try again later

Codes follow the reference server, which answers -32600 to nearly everything it refuses;
`data.kind` names the precise kind, so that nobody has to parse a message.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from treadle.protocol.base import JsonValue


class ErrorObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """The `error` member of a failed answer."""

    code: int
    message: str
    data: JsonValue = None


class RpcError(Exception):
    """An answer that is an error; `code`, `message` and `data` are what went over the wire."""

    def __init__(self, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @property
    def kind(self) -> str | None:
        """The precise kind of error, where the peer names one."""
        return self.data.get("kind") if isinstance(self.data, dict) else None

    def to_object(self) -> ErrorObject:
        """The error as it goes over the wire."""
        return ErrorObject(self.code, self.message, self.data)

    @classmethod
    def from_object(cls, error: ErrorObject) -> RpcError:
        """The error as it came over the wire."""
        return RpcError(error.code, error.message, error.data)


class _Kind(RpcError):
    CODE: ClassVar[int]
    KIND: ClassVar[str]

    def __init__(self, message: str, **data: JsonValue) -> None:
        super().__init__(self.CODE, message, {"kind": self.KIND} | data)


class InvalidRequest(_Kind):
    """The request cannot be done as asked."""

    CODE = -32600
    KIND = "invalidRequest"


class MethodNotFound(InvalidRequest):
    """No such method in the table."""

    KIND = "methodNotFound"


class InvalidParams(InvalidRequest):
    """The params do not fit the method."""

    KIND = "invalidParams"


class NotInitialized(InvalidRequest):
    """Something else came before `initialize`."""

    KIND = "notInitialized"

    def __init__(self) -> None:
        super().__init__("Not initialized")


class AlreadyInitialized(InvalidRequest):
    """`initialize` came twice."""

    KIND = "alreadyInitialized"

    def __init__(self) -> None:
        super().__init__("Already initialized")


class ExperimentalApiRequired(InvalidRequest):
    """The client did not opt in to what it asks for."""

    KIND = "experimentalApiRequired"

    def __init__(self, descriptor: str) -> None:
        super().__init__(f"{descriptor} requires experimentalApi capability", descriptor=descriptor)


class InvalidOptions(_Kind):
    """The options of a command exclude each other, or one of them is impossible."""

    CODE = -32602
    KIND = "invalidParams"


class NotImplementedYet(_Kind):
    """The method is known but this server cannot do it yet."""

    CODE = -32601
    KIND = "notImplemented"

    def __init__(self, method: str) -> None:
        super().__init__(f"{method} is not implemented by this server", method=method)


class InternalError(_Kind):
    """The machine or the server failed; the request may be fine."""

    CODE = -32603
    KIND = "internalError"


class Overloaded(_Kind):
    """Too many requests at once; the same request may be sent again."""

    CODE = -32001
    KIND = "overloaded"

    def __init__(self) -> None:
        # The official Python SDK retries only when the data holds the word server_overloaded.
        super().__init__("Server overloaded; retry later.", codexErrorInfo="server_overloaded")
