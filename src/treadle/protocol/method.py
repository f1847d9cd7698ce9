"""What a method is: its name, types, gate and ordering scope. Does not know its handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType, UnionType
from typing import Any, Final, Generic, TypeVar

import msgspec

P = TypeVar("P")
R = TypeVar("R")

Scope = Callable[[object], str | None]
"""Returns the key of the queue that a request waits in; `None` runs it at once."""


class Request(Generic[P, R]):
    """A method that gets exactly one response."""

    def __init__(
        self,
        method: str,
        params: type[P] | UnionType,
        result: type[R] | UnionType,
        *,
        experimental: bool = False,
        scope: Scope | None = None,
        call: str | None = None,
        is_large: bool = False,
    ) -> None:
        self.method: Final = method
        self.params: Final = params
        self.result: Final = result
        self.experimental: Final = experimental
        self.scope: Final = scope
        self.call: Final = call
        """The name of the client's method that sends this request."""
        self.is_large: Final = is_large
        """Whether its response may take many megabytes: a server answers few of them at once."""

    @cached_property
    def params_decoder(self) -> msgspec.json.Decoder[P]:
        """Build on first use: building all of them costs more than starting the server."""
        return msgspec.json.Decoder(self.params)

    @cached_property
    def result_decoder(self) -> msgspec.json.Decoder[R]:
        """Build on first use, as `params_decoder`."""
        return msgspec.json.Decoder(self.result)

    def __repr__(self) -> str:
        return f"Request({self.method!r})"


class Notification(Generic[P]):
    """A method that gets no response."""

    def __init__(
        self, method: str, params: type[P] | UnionType, *, experimental: bool = False
    ) -> None:
        self.method: Final = method
        self.params: Final = params
        self.experimental: Final = experimental

    @cached_property
    def params_decoder(self) -> msgspec.json.Decoder[P]:
        """Build on first use."""
        return msgspec.json.Decoder(self.params)

    def __repr__(self) -> str:
        return f"Notification({self.method!r})"


M = TypeVar("M", Request[Any, Any], Notification[Any])


def index(namespace: Mapping[str, object], kind: type[M]) -> Mapping[str, M]:
    """Collect the methods that a module defines, by name, in the order of definition."""
    methods = {value.method: value for value in namespace.values() if isinstance(value, kind)}
    return MappingProxyType(methods)


def _by(kind: str, attribute: str) -> Scope:
    def scope(params: object) -> str | None:
        value = getattr(params, attribute, None)
        return None if value is None else f"{kind}:{value}"

    return scope


def _all(kind: str) -> Scope:
    return lambda _params: kind


by_thread: Final = _by("thread", "thread_id")
by_process: Final = _by("process", "process_id")
by_watch: Final = _by("watch", "watch_id")
by_session: Final = _by("session", "session_id")
by_config: Final = _all("config")
by_account: Final = _all("account")
by_plugins: Final = _all("plugins")
by_catalogue: Final = _all("catalogue")
