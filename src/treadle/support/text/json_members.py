"""The members that identify a JSON-RPC message, read from text that may be broken or cut off."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec
from msgspec import UNSET, Raw, UnsetType

HEAD_BYTES: Final = 4096
"""How much of the beginning of a message is searched for the members that identify it."""

UNREADABLE: Final = object()
"""A member that is cut off, or text that cannot be encoded."""

Id: TypeAlias = str | int


class _Members(msgspec.Struct):
    """The members that show the intended kind of a frame, of any shape."""

    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decoder: Final = msgspec.json.Decoder(_Members)


def naming_members(frame: bytes) -> dict[str, Any]:
    """Read the members that identify a message: in the whole frame, else in its first bytes."""
    try:
        members = msgspec.structs.asdict(_decoder.decode(frame))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError):
        return leading_members(frame[:HEAD_BYTES])
    return {name: _scalar(raw) for name, raw in members.items() if raw is not UNSET}


def leading_members(head: bytes) -> dict[str, Any]:
    """Read the members of a JSON object up to where the text was cut off."""
    text = head.decode("utf-8", "surrogateescape").lstrip()
    members: dict[str, Any] = {}
    read = json.JSONDecoder().raw_decode
    position = 1
    try:
        while text[position - 1] in "{,":
            key, position = read(text, _skip_space(text, position))
            position = _skip_space(text, position) + 1  # the colon
            members[key] = UNREADABLE  # unless the text contains all of it
            value, position = read(text, _skip_space(text, position))
            members[key] = value
            position = _skip_space(text, position) + 1
    except (ValueError, IndexError, TypeError, RecursionError):
        pass  # cut off: the members read so far are valid
    return members


def is_id(value: object) -> TypeGuard[Id]:
    """Return whether a value can be the id of a request, and be encoded again."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number or is_text(value)


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is a string that can be encoded again: a lone surrogate cannot."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _scalar(raw: Raw) -> object:
    """Decode a string or a number; other values are never ids and may be large."""
    text = bytes(raw)
    if text[:1] not in b'"-0123456789':
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return UNREADABLE if text[:1] == b'"' else None


def _skip_space(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position
