"""Every method of the protocol as a Python method, generated from the protocol's table.

`methods.pyi` holds the signatures for type checkers and editors; a test compares it with the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Final

import msgspec

from treadle.client._methods.names import NAMES, OWN
from treadle.protocol.base import NoParams
from treadle.protocol.client_requests import CLIENT_REQUESTS
from treadle.protocol.legacy import LEGACY_REQUESTS
from treadle.protocol.method import Request

# The subject of a request comes first, whatever the order on the wire.
_FIRST: Final = ("thread_id", "turn_id", "process_id", "path")


def request_named(method: str) -> Request[Any, Any]:
    """Return the protocol's entry of a method."""
    return CLIENT_REQUESTS.get(method) or LEGACY_REQUESTS[method]


def parameters(request: Request[Any, Any]) -> list[Parameter]:
    """Return the parameters of the Python method: required fields, then keyword-only ones."""
    kind = request.params
    if kind is NoParams:
        return []
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        return [Parameter("params", Parameter.POSITIONAL_OR_KEYWORD)]
    fields = msgspec.structs.fields(kind)
    required = sorted((field.name for field in fields if field.required), key=_rank)
    optional = [field for field in fields if not field.required]
    return [
        *(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in required),
        *(Parameter(f.name, Parameter.KEYWORD_ONLY, default=_default(f)) for f in optional),
    ]


def _rank(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if callable(field.default_factory) else None


def _make(name: str, request: Request[Any, Any]) -> Callable[..., object]:
    kind = request.params
    signature = parameters(request)
    names = [each.name for each in signature if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    is_struct = isinstance(kind, type)

    def method(self: Any, *args: object, **kwargs: object) -> object:  # noqa: ANN401 - either client
        if len(args) > len(names):
            raise TypeError(f"{name}() takes {len(names)} positional arguments, got {len(args)}")
        kwargs.update(zip(names, args, strict=False))
        fields = {
            key: str(each) if isinstance(each, Path) else each for key, each in kwargs.items()
        }
        return self.request(request, kind(**fields) if is_struct else fields["params"])

    method.__name__ = name
    method.__doc__ = inspect.getdoc(kind) if is_struct and kind is not NoParams else None
    me = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = Signature([me, *signature])  # type: ignore[attr-defined]  # inspect reads it
    return method


def _methods() -> dict[str, Callable[..., object]]:
    methods = {}
    for method, name in NAMES.items():
        if method not in OWN:
            methods[name] = _make(name, request_named(method))
    return methods


AsyncMethods: Final = type("AsyncMethods", (), _methods())
"""Base class of the asyncio client."""

Methods: Final = type("Methods", (), _methods())
"""Base class of the blocking client."""
