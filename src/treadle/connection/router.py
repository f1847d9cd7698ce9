"""The mapping from methods to their handlers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from treadle.connection.context import Context, S
from treadle.jsonrpc.errors import MethodNotFound, NotImplementedYet, RpcError
from treadle.protocol.method import Notification, Request

P = TypeVar("P")
R = TypeVar("R")

Handler: TypeAlias = Callable[[Context[S], P], R | Awaitable[R]]
Guard: TypeAlias = Callable[[S, Request[Any, Any], object], None]
Translate: TypeAlias = Callable[[Exception], RpcError | None]


class Route(Struct, Generic[S], frozen=True):
    """A method and its handler; a plain function answers at once, without a separate task."""

    method: Request[Any, Any]
    handler: Callable[[Context[S], Any], Any]
    is_async: bool


class Router(Generic[S]):
    """The methods that one side handles.

    `guard` may reject a decoded request; `translate` turns errors of the layers below into
    error responses. Both raise or return an `RpcError`.
    """

    def __init__(
        self,
        known: Mapping[str, Request[Any, Any]],
        *,
        guard: Guard[S] | None = None,
        translate: Translate | None = None,
    ) -> None:
        self._known = known
        self._routes: dict[str, Route[S]] = {}
        self._later: dict[str, Callable[[], Router[S]]] = {}
        self._notices: dict[str, tuple[Notification[Any], Callable[[Context[S], Any], None]]] = {}
        self.guard = guard
        self.translate = translate

    def request(self, method: Request[P, R]) -> Callable[[Handler[S, P, R]], Handler[S, P, R]]:
        """Register the handler of a request."""

        def register(handler: Handler[S, P, R]) -> Handler[S, P, R]:
            is_async = inspect.iscoroutinefunction(handler)
            self._routes[method.method] = Route(method, handler, is_async)
            return handler

        return register

    def notification(
        self, method: Notification[P]
    ) -> Callable[[Callable[[Context[S], P], None]], Callable[[Context[S], P], None]]:
        """Register the handler of a notification; it must not block."""

        def register(handler: Callable[[Context[S], P], None]) -> Callable[[Context[S], P], None]:
            self._notices[method.method] = (method, handler)
            return handler

        return register

    def include(self, other: Router[S]) -> None:
        """Add the handlers of another router."""
        self._routes.update(other._routes)
        self._notices.update(other._notices)

    def include_later(self, methods: Iterable[str], load: Callable[[], Router[S]]) -> None:
        """Add the handlers of another router when one of these methods is first called."""
        self._later.update(dict.fromkeys(methods, load))

    def route(self, method: str) -> Route[S]:
        """Find the handler of a request; a known method without one is rejected after the guard.

        Raises:
            MethodNotFound: the method is unknown.
            Exception: its handler cannot be loaded now.
        """
        load = self._later.get(method)
        if load is not None:
            self.include(load())
            # Only now: if loading fails, for lack of a descriptor say, the next call tries again.
            del self._later[method]
        route = self._routes.get(method)
        if route is not None:
            return route
        if method in self._known:
            return Route(self._known[method], partial(_refuse_unbuilt, method), is_async=False)
        names = ", ".join(f"`{name}`" for name in self._known)
        raise MethodNotFound(
            f"Invalid request: unknown variant `{method}`, expected one of {names}", method=method
        )

    def methods(self) -> Iterable[str]:
        """Return the requests whose handlers are loaded."""
        return self._routes.keys()

    def notice(
        self, method: str
    ) -> tuple[Notification[Any], Callable[[Context[S], Any], None]] | None:
        """Find the handler of a notification, if there is one."""
        return self._notices.get(method)

    def unhandled(self) -> Iterable[str]:
        """Return the known methods without a handler."""
        built = self._routes.keys() | self._later.keys()
        return [name for name in self._known if name not in built]


def _refuse_unbuilt(method: str, _context: object, _params: object) -> None:
    raise NotImplementedYet(method)
