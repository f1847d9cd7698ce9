"""Treadle: an independent implementation of the Codex app-server protocol.

Names are resolved on first use, so that importing the package costs almost nothing.
"""

from __future__ import annotations

# Stands for `typing.TYPE_CHECKING`: importing `typing` would slow down the start of the server.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from treadle.client._compat.lenient import UnknownItem
    from treadle.client.approvals import (
        ApprovalPolicy,
        CannotDecide,
        CommandApproval,
        FileChangeApproval,
        approve_all,
        approve_safe,
        deny_all,
        fail_on_ask,
    )
    from treadle.client.async_client import AsyncClient
    from treadle.client.client import Client
    from treadle.client.connectors import Connector
    from treadle.client.errors import (
        ApprovalRequired,
        ClientError,
        Disconnected,
        EventsLost,
        InputRequired,
        LoginFailed,
        OutputInvalid,
        RequestRefused,
        RequestTimeout,
        ServerBusy,
        ServerExited,
        ServerUnavailable,
        TurnFailed,
        TurnInterrupted,
        TurnTimeout,
        TurnUnsuccessful,
    )
    from treadle.client.result import ReviewResult, TurnResult
    from treadle.client.terminal.prompt import ask_in_terminal
    from treadle.client.thread import AsyncThread
    from treadle.client.tools import Image, Tool, ToolContext, ToolError, tool
    from treadle.client.turn import AsyncTurn
    from treadle.server.server import Server

__version__ = "0.1.0"

__all__ = [
    "ApprovalPolicy",
    "ApprovalRequired",
    "AsyncClient",
    "AsyncThread",
    "AsyncTurn",
    "CannotDecide",
    "Client",
    "ClientError",
    "CommandApproval",
    "Connector",
    "Disconnected",
    "EventsLost",
    "FileChangeApproval",
    "Image",
    "InputRequired",
    "LoginFailed",
    "OutputInvalid",
    "RequestRefused",
    "RequestTimeout",
    "ReviewResult",
    "Server",
    "ServerBusy",
    "ServerExited",
    "ServerUnavailable",
    "Tool",
    "ToolContext",
    "ToolError",
    "TurnFailed",
    "TurnInterrupted",
    "TurnResult",
    "TurnTimeout",
    "TurnUnsuccessful",
    "UnknownItem",
    "__version__",
    "approve_all",
    "approve_safe",
    "ask_in_terminal",
    "deny_all",
    "fail_on_ask",
    "tool",
]

_MODULES = {
    "client.approvals": "ApprovalPolicy CannotDecide CommandApproval FileChangeApproval "
    "approve_all approve_safe deny_all fail_on_ask",
    "client.async_client": "AsyncClient",
    "client.client": "Client",
    "client.connectors": "Connector",
    "client.errors": "ApprovalRequired ClientError Disconnected EventsLost InputRequired "
    "LoginFailed OutputInvalid RequestRefused RequestTimeout ServerBusy ServerExited "
    "ServerUnavailable TurnFailed TurnInterrupted TurnTimeout TurnUnsuccessful",
    "client._compat.lenient": "UnknownItem",
    "client.result": "ReviewResult TurnResult",
    "client.terminal.prompt": "ask_in_terminal",
    "client.thread": "AsyncThread",
    "client.tools": "Image Tool ToolContext ToolError tool",
    "client.turn": "AsyncTurn",
    "server.server": "Server",
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names.split():
            from importlib import import_module

            value: object = getattr(import_module(f"treadle.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'treadle' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
