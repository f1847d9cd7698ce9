"""The methods as a generator sees them, and where the reference puts each type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, get_args

from msgspec import Struct

from treadle.protocol.base import JsonValue, NoParams
from treadle.protocol.client_requests import CLIENT_REQUESTS
from treadle.protocol.export.vocabulary import Vocabulary, alias_of, read_vocabulary
from treadle.protocol.legacy import LEGACY_REQUESTS
from treadle.protocol.method import Notification, Request
from treadle.protocol.notifications import SERVER_NOTIFICATIONS
from treadle.protocol.server_requests import SERVER_REQUESTS

ENVELOPES: Final = (
    "JSONRPCError",
    "JSONRPCErrorError",
    "JSONRPCMessage",
    "JSONRPCNotification",
    "JSONRPCRequest",
    "JSONRPCResponse",
    "RequestId",
)

CLIENT_NOTIFICATIONS: Final = ("initialized",)

ERROR_TYPES: Final = {"UserVerificationRpcError": "userVerification/"}
"""Errors with a documented shape, and the prefix of the methods that return them."""


class Method(Struct, frozen=True):
    """One entry of the method table, with the names of its types."""

    name: str
    params: str | None
    result: str | None
    is_request: bool
    nullable: str | None
    """The name of the params or null, where the schema lets a client omit the params."""

    @property
    def may_omit_params(self) -> bool:
        """Whether the schema allows a message without params."""
        return self.params is None or self.nullable is not None

    @property
    def files(self) -> tuple[str, ...]:
        """The types of this method that get a schema file."""
        return tuple(name for name in (self.nullable or self.params, self.result) if name)

    @property
    def title(self) -> str:
        """The name of this alternative among all messages of its kind."""
        kind = "Request" if self.is_request else "Notification"
        return self.name[0].upper() + self.name[1:] + kind


class Messages(Struct, frozen=True):
    """Every method of the stable or the experimental protocol."""

    vocabulary: Vocabulary
    client_requests: tuple[Method, ...]
    legacy_requests: tuple[Method, ...]
    server_requests: tuple[Method, ...]
    notifications: tuple[Method, ...]

    def all(self) -> Iterator[Method]:
        """Yield the methods that the JSON Schemas describe."""
        yield from self.client_requests
        yield from self.server_requests
        yield from self.notifications

    def error_types(self) -> Iterator[str]:
        """Yield the error types of the exported methods."""
        for name, prefix in ERROR_TYPES.items():
            if any(method.name.startswith(prefix) for method in self.client_requests):
                yield name


def read_messages(*, experimental: bool) -> Messages:
    """Read the method tables; without `experimental`, gated methods are omitted."""
    vocabulary = read_vocabulary(experimental=experimental)

    def methods(
        table: Mapping[str, Request[JsonValue, JsonValue] | Notification[JsonValue]],
    ) -> tuple[Method, ...]:
        return tuple(
            _method(vocabulary, entry)
            for entry in table.values()
            if experimental or not entry.experimental
        )

    return Messages(
        vocabulary=vocabulary,
        client_requests=methods(CLIENT_REQUESTS),
        legacy_requests=methods(LEGACY_REQUESTS),
        server_requests=methods(SERVER_REQUESTS),
        notifications=methods(SERVER_NOTIFICATIONS),
    )


def _method(
    vocabulary: Vocabulary, entry: Request[JsonValue, JsonValue] | Notification[JsonValue]
) -> Method:
    params = _name(vocabulary, entry.params)
    nullable = f"Nullable{params}"
    return Method(
        name=entry.method,
        params=params,
        result=_name(vocabulary, entry.result) if isinstance(entry, Request) else None,
        is_request=isinstance(entry, Request),
        nullable=nullable if nullable in vocabulary.definitions else None,
    )


def _name(vocabulary: Vocabulary, type_: JsonValue) -> str | None:
    if type_ is NoParams:
        return None
    if isinstance(type_, type):
        return type_.__name__
    return alias_of(vocabulary, get_args(type_))


def is_version_two(method: Method) -> bool:
    """Return whether the reference puts a method's types under `v2`.

    The handshake, the file search and the server requests are older than that folder.
    """
    return not method.name.startswith(("initialize", "fuzzyFileSearch"))


def version_two(messages: Messages) -> set[str]:
    """Return the types that the JSON Schemas put under `v2`: all that a `v2` method needs."""
    methods = (*messages.client_requests, *messages.notifications)
    roots = [name for method in methods if is_version_two(method) for name in method.files]
    return messages.vocabulary.reachable([*roots, *messages.error_types(), "RequestId"])
