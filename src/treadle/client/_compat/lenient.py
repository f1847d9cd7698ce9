"""Lenient decoding of messages from newer, older or other servers.

The strict decoder goes first. This module decodes only what it rejects: an unknown variant becomes
an `Unknown`, an unknown enum value stays a string, a missing field is `None`.
"""

from __future__ import annotations

import json
import types
from functools import cache
from typing import Annotated, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from treadle.protocol.base import JsonValue
from treadle.protocol.item import AgentMessageThreadItem, ThreadItem

T = TypeVar("T")


class Unknown(msgspec.Struct, frozen=True):
    """A variant that this version does not know: its tag and its fields."""

    type: str
    fields: dict[str, JsonValue]


class UnknownItem(Unknown, frozen=True):
    """An item of a type that this version does not know."""

    id: str = ""


Item = ThreadItem | UnknownItem
"""An item of a turn, including items of unknown types."""


def decode(decoder: msgspec.json.Decoder[T], kind: object, raw: bytes | msgspec.Raw) -> T:
    """Decode a document as a type, leniently if the strict decoder rejects it.

    Raises:
        ValueError: the document is not JSON.
    """
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError):
        return read_leniently(kind, raw)  # type: ignore[return-value]  # the closest value


def read_leniently(kind: object, raw: bytes | msgspec.Raw) -> object:
    """Decode a document that the strict decoder has rejected.

    Raises:
        ValueError: the document is not JSON.
    """
    return read(json.loads(bytes(raw).decode("utf-8", "replace")), kind)


def fault_of(answer: object, kind: object) -> str | None:
    """Return why an answer that was read leniently is of no use, if it is not."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return None
    if not isinstance(answer, kind):
        return "it is not an object"
    for name, encoded, part in _required_parts(kind):
        if not isinstance(getattr(answer, name), part):
            return f"`{encoded}` is not an object"
    return None


@cache
def _required_parts(kind: type[msgspec.Struct]) -> list[tuple[str, str, type[msgspec.Struct]]]:
    """The required fields of a type that are objects of one type themselves."""
    hints = _hints(kind)
    return [
        (field.name, field.encode_name, hint)
        for field in msgspec.structs.fields(kind)
        if field.required
        and isinstance(hint := hints[field.name], type)
        and issubclass(hint, msgspec.Struct)
    ]


def read(value: JsonValue, kind: object) -> object:
    """Convert a document to a type; parts that do not match stay unchanged."""
    origin = get_origin(kind)
    if origin is Annotated:
        return read(value, get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return _read_union(value, get_args(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _read_struct(value, kind)
    if origin is list:
        # Readers iterate over a list: anything else in its place counts as an empty one.
        (inner,) = get_args(kind)
        return [read(each, inner) for each in value] if isinstance(value, list) else []
    if origin is dict and isinstance(value, dict):
        _key, inner = get_args(kind)
        return {name: read(each, inner) for name, each in value.items()}
    return value


def _read_union(value: JsonValue, members: tuple[object, ...]) -> object:
    structs = [
        each for each in members if isinstance(each, type) and issubclass(each, msgspec.Struct)
    ]
    if AgentMessageThreadItem in structs and types.NoneType not in members:
        return _read_item(value, structs)
    if value is None:
        return None
    if not isinstance(value, dict) or not structs:
        return _read_plain(value, members)
    for struct in structs:
        config = struct.__struct_config__
        if config.tag is None or value.get(config.tag_field) == config.tag:
            return _read_struct(value, struct)
    return _unknown(value, structs)


def _read_item(value: JsonValue, structs: list[type[msgspec.Struct]]) -> object:
    """Return an item; without an id that is a text, it is unknown."""
    if not isinstance(value, dict):
        return UnknownItem("", {})
    if isinstance(value.get("id"), str):
        for struct in structs:
            if value.get("type") == struct.__struct_config__.tag:
                return _read_struct(value, struct)
    return _unknown(value, structs)


def _read_plain(value: JsonValue, members: tuple[object, ...]) -> object:
    for member in members:
        if get_origin(member) in (list, dict, Annotated, Union, types.UnionType):
            read_value = read(value, member)
            if read_value is not value:
                return read_value
    return value


def _unknown(value: dict[str, JsonValue], structs: list[type[msgspec.Struct]]) -> Unknown:
    field = structs[0].__struct_config__.tag_field or "type"
    tag = value.get(field)
    name = tag if isinstance(tag, str) else ""
    if AgentMessageThreadItem in structs:  # the union is `ThreadItem`
        id_ = value.get("id")
        return UnknownItem(name, value, id_ if isinstance(id_, str) else "")
    return Unknown(name, value)


def _read_struct(value: JsonValue, struct: type[msgspec.Struct]) -> object:
    if not isinstance(value, dict):
        return value
    values: dict[str, object] = {}
    hints = _hints(struct)
    for field in msgspec.structs.fields(struct):
        if field.encode_name in value:
            values[field.name] = read(value[field.encode_name], hints[field.name])
        elif field.required:
            values[field.name] = read(None, hints[field.name])
    try:
        return struct(**values)
    except ValueError:
        return value  # an unknown externally tagged variant


@cache
def _hints(struct: type[msgspec.Struct]) -> dict[str, object]:
    return get_type_hints(struct, include_extras=True)
