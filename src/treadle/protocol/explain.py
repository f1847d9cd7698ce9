"""Explains why a document does not fit a type: the path, the expected and the actual value."""

from __future__ import annotations

import re
import types
from typing import Annotated, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from treadle.protocol.base import JsonValue

_AT: Final = " - at `"
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([^\[\]]*)\]")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_VALUE: Final = re.compile(r"Invalid (?:enum )?value (?P<value>.*)")


class Fault(Struct, frozen=True):
    """An error in a document, and its location."""

    message: str
    path: str


def explain(error: Exception, expected: object) -> Fault:
    """Turn a decoding error into a message that names the field and the expected value."""
    text, path = _split_path(str(error))
    if missing := _MISSING.fullmatch(text):
        message = f"missing field `{missing['name']}`{_where(path)}"
        return Fault(message, f"{path}.{missing['name']}" if path else missing["name"])
    if value := _VALUE.fullmatch(text):
        value_text = value["value"].strip("'\"")
        choices = choices_at(expected, path)
        names = ", ".join(f"`{choice}`" for choice in choices)
        expectation = f", expected one of {names}" if choices else ""
        return Fault(f"unknown variant `{value_text}`{_where(path)}{expectation}", path)
    if not isinstance(error, msgspec.ValidationError):
        # The frame was complete, so a text that ends early ends in half a surrogate pair.
        reason = "a lone surrogate" if "truncated" in text else text
        return Fault(f"not readable as JSON: {reason}", path)
    return Fault(f"invalid type{_where(path)}: {text[:1].lower()}{text[1:]}", path)


def _split_path(text: str) -> tuple[str, str]:
    """Split an error from its path: the last one, since the quoted value may contain others."""
    message, separator, suffix = text.rpartition(_AT)
    location = suffix.removeprefix("key in ")
    if not separator or not location.startswith("$") or not location.endswith("`"):
        return text, ""
    return message, location[1:-1].removeprefix(".")


def _where(path: str) -> str:
    return f" at `{path}`" if path else ""


def choices_at(expected: object, path: str) -> list[str]:
    """List the values that the type allows at a path, if they are enumerable."""
    candidates = [expected]
    for match in _STEP.finditer(path if path.startswith("[") else f".{path}" if path else ""):
        name = match[1]
        candidates = [step for kind in candidates for step in _descend(kind, name)]
    choices = [choice for kind in candidates for choice in _choices(kind)]
    return list(dict.fromkeys(choices))


def _members(kind: object) -> list[object]:
    """Return the alternatives of a type, with annotations and unions unwrapped."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _members(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return [member for part in get_args(kind) for member in _members(part)]
    return [kind]


def _descend(kind: object, name: str | None) -> list[object]:
    types_: list[object] = []
    for member in _members(kind):
        if name is None or get_origin(member) in (list, dict):
            types_ += get_args(member)[-1:]
        elif isinstance(member, type) and issubclass(member, msgspec.Struct):
            config = member.__struct_config__
            if config.tag_field == name:
                types_.append(Literal[config.tag])
            elif name in member.__struct_encode_fields__:
                attribute = member.__struct_fields__[member.__struct_encode_fields__.index(name)]
                types_.append(get_type_hints(member, include_extras=True)[attribute])
    return types_


def _choices(kind: object) -> list[str]:
    choices: list[str] = []
    for member in _members(kind):
        if get_origin(member) is Literal:
            choices += [str(value) for value in get_args(member)]
        elif isinstance(member, type) and issubclass(member, msgspec.Struct):
            choices += _struct_choices(member)
    return choices


def _struct_choices(struct: type[msgspec.Struct]) -> list[str]:
    tag: JsonValue = struct.__struct_config__.tag
    return [tag] if isinstance(tag, str) else []
