"""Writes definitions as TypeScript, one type per file."""

from __future__ import annotations

import re
from typing import Final

from treadle.protocol.export.model import (
    Alias,
    Anything,
    Definition,
    Field,
    Integer,
    ListOf,
    MapOf,
    Named,
    Null,
    Record,
    Scalar,
    StringEnum,
    Type,
    Union,
)
from treadle.protocol.export.vocabulary import Vocabulary

JSON_VALUE: Final = "JsonValue"
JSON_VALUE_TEXT: Final = (
    "number | string | boolean | Array<JsonValue> | { [key in string]?: JsonValue } | null"
)

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


class TypeWriter:
    """Writes the right-hand side of each type."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def definition(self, name: str) -> str:
        """Write the definition of a name."""
        return self._body(self._vocabulary.definitions[name])

    def _body(self, definition: Definition) -> str:
        if isinstance(definition, Alias):
            return self.type(definition.type)
        if definition.is_choice:
            return self._choices(definition)
        return self._object(definition)

    def type(self, type_: Type) -> str:
        """Write one type expression."""
        match type_:
            case Scalar(kind):
                return kind
            case Integer():
                return "number"
            case Anything():
                return JSON_VALUE
            case Null():
                return "null"
            case Named(name):
                return self._named(name)
            case ListOf(item):
                return f"Array<{self.type(item)}>"
            case MapOf(value):
                return f"{{ [key in string]?: {self.type(value)} }}"
            case StringEnum(values):
                return " | ".join(f'"{value}"' for value in values)
            case Union(members):
                return " | ".join(dict.fromkeys(self.type(member) for member in members))

    def _named(self, name: str) -> str:
        record = self._vocabulary.record(name) if name in self._vocabulary.inline else None
        return self._body(record) if record else name

    def _object(self, record: Record) -> str:
        parts = [self._property(field) for field in record.fields]
        if record.tag is not None:
            parts.insert(0, f'"{record.tag[0]}": "{record.tag[1]}"')
        texts = [f"{{ {', '.join(parts)} }}"] if parts else []
        if record.rest is not None:
            texts.append(self.type(MapOf(record.rest)))
        return " & ".join(texts) or "Record<string, never>"

    def _property(self, field: Field) -> str:
        mark = "?" if field.omittable else ""
        text = self.type(field.type)
        if isinstance(field.type, Anything) and not field.required:
            text = f"{text} | null"
        return f"{_key(field.name)}{mark}: {text}"

    def _choices(self, record: Record) -> str:
        return " | ".join(f"{{ {self._property(field)} }}" for field in record.fields)


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else f'"{name}"'


def doc_comment(text: str) -> str:
    """Write a docstring as the comment above a type."""
    if not text:
        return ""
    lines = "".join(f" * {line}".rstrip() + "\n" for line in text.replace("*/", "*\\/").split("\n"))
    return f"/**\n{lines} */\n"
