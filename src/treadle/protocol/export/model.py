"""The protocol's types between Python and a schema language: types, fields, definitions.

Knows neither how the types are read nor how a schema language spells them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from treadle.protocol.base import JsonValue


class Scalar(Struct, frozen=True):
    """A string, boolean or number."""

    kind: Literal["string", "boolean", "number"]
    min_length: int | None = None


class Integer(Struct, frozen=True):
    """An integer of a stated width, such as `int64` or `uint16`."""

    format: str


class Anything(Struct, frozen=True):
    """Any JSON document."""


class Null(Struct, frozen=True):
    """The null of `T | None`."""


class Named(Struct, frozen=True):
    """A named type."""

    name: str


class ListOf(Struct, frozen=True):
    """An array."""

    item: Type


class MapOf(Struct, frozen=True):
    """An object with arbitrary keys."""

    value: Type


class StringEnum(Struct, frozen=True):
    """One of a fixed set of strings."""

    values: tuple[str, ...]


class Union(Struct, frozen=True):
    """One of several types, including null if the value may be null."""

    members: tuple[Type, ...]


Type = Scalar | Integer | Anything | Null | Named | ListOf | MapOf | StringEnum | Union

NOT_GIVEN = object()
"""The default of a field that has none: `None` is a valid default."""


class Field(Struct, frozen=True):
    """One property of an object, under its name on the wire."""

    name: str
    type: Type
    required: bool
    """Whether a decoder rejects the object without it."""
    omittable: bool
    """Whether an encoder may omit it."""
    default: JsonValue = NOT_GIVEN


class Record(Struct, frozen=True):
    """An object; with a tag it is one variant of a union."""

    name: str
    doc: str
    fields: tuple[Field, ...]
    tag: tuple[str, str] | None = None
    closed: bool = False
    is_choice: bool = False
    """Whether exactly one field is present, with its name as the tag."""
    rest: Type | None = None
    """The type of keys that are not fields; `None` if other keys have no meaning."""


class Alias(Struct, frozen=True):
    """A name for a type that is not an object."""

    name: str
    doc: str
    type: Type


Definition = Record | Alias


def references(type_: Type) -> Iterator[str]:
    """Yield the names that a type mentions."""
    match type_:
        case Named(name):
            yield name
        case ListOf(inner) | MapOf(inner):
            yield from references(inner)
        case Union(members):
            for member in members:
                yield from references(member)
        case _:
            return


def split_null(type_: Type) -> tuple[Type, bool]:
    """Remove null from a type, and return whether it was there."""
    if not isinstance(type_, Union) or Null() not in type_.members:
        return type_, False
    rest = tuple(member for member in type_.members if member != Null())
    return (rest[0] if len(rest) == 1 else Union(rest)), True
