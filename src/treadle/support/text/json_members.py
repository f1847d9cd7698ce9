"""The members of a JSON-RPC message that name it, read from text that may be broken or cut off."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec
from msgspec import UNSET, Raw, UnsetType

HEAD_BYTES: Final = 4096
"""How much of the beginning of a message is searched for the members that name it."""

UNREADABLE: Final = object()
"""Stands for a member that is cut off, or for a text that cannot be written."""

Id: TypeAlias = str | int


class _Members(msgspec.Struct):
    """The members that show what a frame was meant to be, of any shape."""

    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decoder: Final = msgspec.json.Decoder(_Members)


def naming_members(frame: bytes) -> dict[str, Any]:
    """Read what names a message: in the whole frame, else in its first bytes."""
    try:
        found = msgspec.structs.asdict(_decoder.decode(frame))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError):
        return leading_members(frame[:HEAD_BYTES])
    return {name: _scalar(raw) for name, raw in found.items() if raw is not UNSET}


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
            members[key] = UNREADABLE  # unless the text goes on to its end
            value, position = read(text, _skip_space(text, position))
            members[key] = value
            position = _skip_space(text, position) + 1
    except (ValueError, IndexError, TypeError, RecursionError):
        pass  # the cut: what was read before it stands
    return members


def is_id(value: object) -> TypeGuard[Id]:
    """Tell whether this can name a request, and be written back."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number or is_text(value)


def is_text(value: object) -> TypeGuard[str]:
    """Tell whether this is a string that can be written back: half a surrogate pair cannot."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _scalar(raw: Raw) -> object:
    """Decode a string or a number; anything else can name nothing and may be large."""
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
