"""Registration of listeners, handlers of server requests, and client tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar, overload

from treadle.client._runtime.notifications import Listener
from treadle.client.approvals import (
    OnCommand,
    OnElicitation,
    OnFileChange,
    OnPermissions,
    OnUserInput,
)
from treadle.client.tools import Function, Tool, make_tool
from treadle.protocol import server_requests as wire
from treadle.protocol.account import (
    ChatgptAuthTokensRefreshParams,
    ChatgptAuthTokensRefreshResponse,
)
from treadle.protocol.method import Request

if TYPE_CHECKING:
    from treadle.client._runtime.runtime import ClientRuntime

P = TypeVar("P")
R = TypeVar("R")
C = TypeVar("C", bound=OnCommand)
F = TypeVar("F", bound=OnFileChange)
G = TypeVar("G", bound=OnPermissions)
U = TypeVar("U", bound=OnUserInput)
E = TypeVar("E", bound=OnElicitation)
L = TypeVar("L", bound=Listener)
W = TypeVar("W", bound=Function)

OnTokenRefresh: TypeAlias = Callable[
    [ChatgptAuthTokensRefreshParams],
    ChatgptAuthTokensRefreshResponse | Awaitable[ChatgptAuthTokensRefreshResponse],
]
K = TypeVar("K", bound=OnTokenRefresh)


class Handlers:
    """The decorators of a client; handlers may be coroutine functions or plain functions.

    Plain handlers and tools run in separate threads, so that they may block. A request without a
    handler is declined, and so is one whose handler raises.
    """

    _core: ClientRuntime

    # -- notifications

    @overload
    def on(self, name: str) -> Callable[[L], L]: ...
    @overload
    def on(self, name: str, listener: L) -> L: ...
    def on(self, name: str, listener: L | None = None) -> L | Callable[[L], L]:
        """Register a listener of an event name, such as `turn:started` or `item:completed`.

        `*` receives every event, `error` the failures of the client itself. Listeners are called
        one after another, in the order of the events.
        """

        def register(listener: L) -> L:
            self._core.notifications.listen(name, listener)
            return listener

        return register if listener is None else register(listener)

    def off(self, name: str, listener: Listener) -> None:
        """Remove a listener."""
        self._core.notifications.unlisten(name, listener)

    # -- server requests

    def on_command_approval(self, handler: C) -> C:
        """Register the handler that decides whether a command may run."""
        self._core.server_requests.handle(wire.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL, handler)
        return handler

    def on_file_change(self, handler: F) -> F:
        """Register the handler that decides whether files may be changed."""
        self._core.server_requests.handle(wire.ITEM_FILE_CHANGE_REQUEST_APPROVAL, handler)
        return handler

    def on_permissions(self, handler: G) -> G:
        """Register the handler that decides which additional permissions are granted."""
        self._core.server_requests.handle(wire.ITEM_PERMISSIONS_REQUEST_APPROVAL, handler)
        return handler

    def on_user_input(self, handler: U) -> U:
        """Register the handler of the model's questions; it returns answers by question id."""
        self._core.server_requests.handle(wire.ITEM_TOOL_REQUEST_USER_INPUT, handler)
        return handler

    def on_elicitation(self, handler: E) -> E:
        """Register the handler of elicitations; it returns the form's content, or `False`."""
        self._core.server_requests.handle(wire.MCP_SERVER_ELICITATION_REQUEST, handler)
        return handler

    def on_token_refresh(self, handler: K) -> K:
        """Register the handler that returns new ChatGPT tokens."""
        self._core.server_requests.handle(wire.ACCOUNT_CHATGPT_AUTH_TOKENS_REFRESH, handler)
        return handler

    def on_request(
        self, method: Request[P, R]
    ) -> Callable[[Callable[[P], R | Awaitable[R]]], Callable[[P], R | Awaitable[R]]]:
        """Register the handler of any server request, by its entry in `server_requests`."""

        def register(handler: Callable[[P], R | Awaitable[R]]) -> Callable[[P], R | Awaitable[R]]:
            self._core.server_requests.handle(method, handler)
            return handler

        return register

    # -- tools

    @overload
    def tool(self, function: W, /) -> W: ...
    @overload
    def tool(
        self, /, *, name: str | None = None, description: str | None = None
    ) -> Callable[[W], W]: ...
    def tool(
        self,
        function: Function | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> Function:
        """Offer a function to the model in every thread that starts from now on."""

        def register(function: Function) -> Function:
            self._core.tools.add(make_tool(function, name=name, description=description))
            return function

        return register if function is None else register(function)

    def add_tool(self, tool: Tool) -> None:
        """Offer a `Tool` to the model in every thread that starts from now on."""
        self._core.tools.add(tool)
