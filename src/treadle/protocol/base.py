"""What every message is built from: the struct bases, integer widths, and shared small types.

Knows no method and no resource. A field that is `None` was not given; `UNSET` appears only where
the protocol tells an absent field from a null one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct

JsonValue: TypeAlias = Any
"""Any JSON document: the one place where `Any` is the honest type."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
UInt8 = Annotated[int, Meta(ge=0, le=2**8 - 1)]
UInt16 = Annotated[int, Meta(ge=0, le=2**16 - 1)]
UInt32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
UInt64 = Annotated[int, Meta(ge=0)]

StructT = TypeVar("StructT", bound=type[Struct])

EXPERIMENTAL: Final[dict[type, frozenset[str]]] = {}
"""Attribute names of each struct that only clients with `experimentalApi` may use or see."""


def experimental(*attributes: str) -> Callable[[StructT], StructT]:
    """Mark fields of a struct as experimental; without names, the struct as a whole."""

    def mark(struct: StructT) -> StructT:
        EXPERIMENTAL[struct] = frozenset(attributes)
        return struct

    return mark


class AnyOf:
    """Names the structs that a free-form object may be, where the wire carries no tag to tell."""

    __slots__ = ("names",)

    def __init__(self, *names: str) -> None:
        self.names = names


class Value(Struct, frozen=True, rename="camel"):
    """An object on the wire: responses, notifications and their parts; nulls are sent."""


class Sparse(Value, frozen=True, omit_defaults=True):
    """An object on the wire whose unset fields are left out."""


class Params(Sparse, frozen=True):
    """The params of a request: what is not given is left out."""


class NoParams(Params, frozen=True):
    """The params of a method that takes none; `null`, `{}` and nothing at all mean the same."""


class SnakeValue(Struct, frozen=True):
    """A `Value` that the wire spells in snake_case."""


class SnakeSparse(SnakeValue, frozen=True, omit_defaults=True):
    """A `Sparse` that the wire spells in snake_case."""


def _check_one_set(value: Struct) -> None:
    given = [name for name in value.__struct_fields__ if getattr(value, name) is not None]
    if len(given) != 1:
        names = ", ".join(f"`{name}`" for name in value.__struct_encode_fields__)
        message = f"expected exactly one of {names}, got {len(given)}"
        raise ValueError(message)


class OneOf(Sparse, frozen=True):
    """An externally tagged variant: exactly one field is set, and its name is the tag."""

    def __post_init__(self) -> None:
        _check_one_set(self)


class SnakeOneOf(SnakeSparse, frozen=True):
    """A `OneOf` that the wire spells in snake_case."""

    def __post_init__(self) -> None:
        _check_one_set(self)


RequestId = str | Int64
AbsolutePathBuf = str
AgentPath = str
LegacyAppPathString = str
PathUri = str
ThreadId = str
SortDirection = Literal["asc", "desc"]


class ByteRange(Value, frozen=True):
    """A half-open range of bytes."""

    end: UInt64
    start: UInt64


class TextPosition(Value, frozen=True):
    """A place in a text file."""

    column: UInt64
    line: UInt64


class TextRange(Value, frozen=True):
    """A stretch of a text file."""

    end: TextPosition
    start: TextPosition


class GitInfo(Value, frozen=True):
    """The commit, branch and origin that a thread's folder had."""

    branch: str | None = None
    origin_url: str | None = None
    sha: str | None = None
