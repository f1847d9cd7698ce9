"""The errors of a request.

    RpcError                 any error response, ours or the peer's
    ├── InvalidRequest       -32600  rejected: unknown, malformed, or not possible now
    │   ├── MethodNotFound
    │   ├── InvalidParams            names the method, the path and the expected value
    │   ├── NotInitialized
    │   ├── AlreadyInitialized
    │   └── ExperimentalApiRequired
    ├── InvalidOptions       -32602  mutually exclusive options
    ├── NotImplementedYet    -32601  in the method table, but not implemented
    ├── InternalError        -32603  i/o failed, or a defect of the server
    └── Overloaded           -32001  retry later

Codes follow the reference server, which answers -32600 to nearly everything it rejects;
`data.kind` names the precise kind, so that clients need not parse the message.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from treadle.protocol.base import JsonValue


class ErrorObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """The `error` member of an error response."""

    code: int
    message: str
    data: JsonValue = None


class RpcError(Exception):
    """An error response; `code`, `message` and `data` are its members on the wire."""

    def __init__(self, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @property
    def kind(self) -> str | None:
        """The precise kind of error, if the peer names one."""
        return self.data.get("kind") if isinstance(self.data, dict) else None

    def to_object(self) -> ErrorObject:
        """Convert to the wire format."""
        return ErrorObject(self.code, self.message, self.data)

    @classmethod
    def from_object(cls, error: ErrorObject) -> RpcError:
        """Convert from the wire format."""
        return RpcError(error.code, error.message, error.data)


class _Kind(RpcError):
    CODE: ClassVar[int]
    KIND: ClassVar[str]

    def __init__(self, message: str, **data: JsonValue) -> None:
        super().__init__(self.CODE, message, {"kind": self.KIND} | data)


class InvalidRequest(_Kind):
    """The request is not possible as sent."""

    CODE = -32600
    KIND = "invalidRequest"


class MethodNotFound(InvalidRequest):
    """The method is not in the table."""

    KIND = "methodNotFound"


class InvalidParams(InvalidRequest):
    """The params do not fit the method."""

    KIND = "invalidParams"


class NotInitialized(InvalidRequest):
    """The first request was not `initialize`."""

    KIND = "notInitialized"

    def __init__(self) -> None:
        super().__init__("Not initialized")


class AlreadyInitialized(InvalidRequest):
    """`initialize` was sent twice."""

    KIND = "alreadyInitialized"

    def __init__(self) -> None:
        super().__init__("Already initialized")


class ExperimentalApiRequired(InvalidRequest):
    """The client did not opt in to the experimental feature that it uses."""

    KIND = "experimentalApiRequired"

    def __init__(self, descriptor: str) -> None:
        super().__init__(f"{descriptor} requires experimentalApi capability", descriptor=descriptor)


class InvalidOptions(_Kind):
    """The options of a command exclude each other, or one of them is invalid."""

    CODE = -32602
    KIND = "invalidParams"


class NotImplementedYet(_Kind):
    """The method is known but not implemented by this server."""

    CODE = -32601
    KIND = "notImplemented"

    def __init__(self, method: str) -> None:
        super().__init__(f"{method} is not implemented by this server", method=method)


class InternalError(_Kind):
    """The machine or the server failed; the request may be valid."""

    CODE = -32603
    KIND = "internalError"


class Overloaded(_Kind):
    """Too many requests at once; the client may retry the request."""

    CODE = -32001
    KIND = "overloaded"

    def __init__(self) -> None:
        # The official Python SDK retries only when the data contains the word server_overloaded.
        super().__init__("Server overloaded; retry later.", codexErrorInfo="server_overloaded")
