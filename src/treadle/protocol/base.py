"""Building blocks of every message: the struct bases, integer widths, and shared small types.

Knows no method and no resource. A field that is `None` was not given; `UNSET` appears only where
the protocol distinguishes an absent field from a null one.
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
"""Attribute names of each struct that only clients with `experimentalApi` may use or receive."""


def experimental(*attributes: str) -> Callable[[StructT], StructT]:
    """Mark fields of a struct as experimental; without names, the whole struct."""

    def mark(struct: StructT) -> StructT:
        EXPERIMENTAL[struct] = frozenset(attributes)
        return struct

    return mark


class AnyOf:
    """The possible structs of a free-form object that has no tag on the wire."""

    __slots__ = ("names",)

    def __init__(self, *names: str) -> None:
        self.names = names


class Value(Struct, frozen=True, rename="camel"):
    """An object on the wire: responses, notifications and their parts; nulls are sent."""


class Sparse(Value, frozen=True, omit_defaults=True):
    """An object on the wire whose unset fields are omitted."""


class Params(Sparse, frozen=True):
    """The params of a request; fields that are not given are omitted."""


class NoParams(Params, frozen=True):
    """The params of a method without any; `null`, `{}` and absent params are equivalent."""


class SnakeValue(Struct, frozen=True):
    """A `Value` with snake_case names on the wire."""


class SnakeSparse(SnakeValue, frozen=True, omit_defaults=True):
    """A `Sparse` with snake_case names on the wire."""


def _check_one_set(value: Struct) -> None:
    present = [name for name in value.__struct_fields__ if getattr(value, name) is not None]
    if len(present) != 1:
        names = ", ".join(f"`{name}`" for name in value.__struct_encode_fields__)
        message = f"expected exactly one of {names}, got {len(present)}"
        raise ValueError(message)


class OneOf(Sparse, frozen=True):
    """An externally tagged variant: exactly one field is set, and its name is the tag."""

    def __post_init__(self) -> None:
        _check_one_set(self)


class SnakeOneOf(SnakeSparse, frozen=True):
    """A `OneOf` with snake_case names on the wire."""

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
    """A position in a text file."""

    column: UInt64
    line: UInt64


class TextRange(Value, frozen=True):
    """A range of a text file."""

    end: TextPosition
    start: TextPosition


class GitInfo(Value, frozen=True):
    """The commit, branch and origin of a thread's folder."""

    branch: str | None = None
    origin_url: str | None = None
    sha: str | None = None
