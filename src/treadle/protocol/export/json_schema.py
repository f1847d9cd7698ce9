"""Writes definitions as JSON Schema, draft 7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from treadle.protocol.base import JsonValue
from treadle.protocol.export.model import (
    NOT_GIVEN,
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
    split_null,
)
from treadle.protocol.export.vocabulary import Vocabulary

Schema = dict[str, JsonValue]

DRAFT: Final = "http://json-schema.org/draft-07/schema#"


class SchemaWriter:
    """Writes definitions, with references in the form that `pointer` returns."""

    def __init__(self, vocabulary: Vocabulary, pointer: Callable[[str], str]) -> None:
        self._vocabulary = vocabulary
        self._pointer = pointer

    def definition(self, name: str) -> Schema:
        """Write one definition, with its docstring as description."""
        definition = self._vocabulary.definitions[name]
        schema = self._body(definition)
        if definition.doc:
            schema["description"] = definition.doc
        return schema

    def _body(self, definition: Definition) -> Schema:
        if isinstance(definition, Alias):
            return self._alias(definition)
        if definition.is_choice:
            return {"oneOf": self._choices(definition, definition.name)}
        return self._object(definition)

    def _alias(self, alias: Alias) -> Schema:
        members = alias.type.members if isinstance(alias.type, Union) else (alias.type,)
        if not any(self._variant(member) for member in members):
            return self._type(alias.type)
        schemas: list[Schema] = []
        for member in members:
            record = self._variant(member)
            if record is None:
                schemas.append(self._type(member))
            elif record.is_choice:
                schemas.extend(self._choices(record, alias.name))
            else:
                schemas.append(self._titled(record))
        return {"oneOf": schemas}

    def _variant(self, type_: Type) -> Record | None:
        """Return the record that a union member writes inline, if any."""
        if isinstance(type_, Named) and type_.name in self._vocabulary.inline:
            return self._vocabulary.record(type_.name)
        return None

    def _titled(self, record: Record) -> Schema:
        schema = self._object(record) | {"title": record.name}
        if record.doc:
            schema["description"] = record.doc
        return schema

    def _choices(self, record: Record, union: str) -> list[Schema]:
        return [
            {
                "additionalProperties": False,
                "properties": {field.name: self._field_type(field.type)},
                "required": [field.name],
                "title": pascal(field.name) + union,
                "type": "object",
            }
            for field in record.fields
        ]

    def _object(self, record: Record) -> Schema:
        properties = {field.name: self._property(field) for field in record.fields}
        required = [field.name for field in record.fields if field.required]
        if record.tag is not None:
            name, value = record.tag
            title = record.name + pascal(name)
            properties[name] = {"enum": [value], "title": title, "type": "string"}
            required.append(name)
        schema: Schema = {"type": "object"}
        if properties:
            schema["properties"] = properties
        if required:
            schema["required"] = sorted(required)
        if record.closed:
            schema["additionalProperties"] = False
        elif record.rest is not None:
            schema["additionalProperties"] = self._field_type(record.rest)
        return schema

    def _property(self, field: Field) -> JsonValue:
        schema = self._field_type(field.type)
        if field.default is NOT_GIVEN or schema is True:
            return schema
        if "$ref" in schema:
            # Draft 7 ignores keywords beside a reference.
            schema = {"allOf": [schema]}
        return schema | {"default": field.default}

    def _field_type(self, type_: Type) -> JsonValue:
        if isinstance(type_, Anything):
            return True
        record = self._variant(type_)
        if record is not None:
            return self._object(record)
        return self._type(type_)

    def _type(self, type_: Type) -> Schema:
        match type_:
            case Scalar(kind, length):
                return {"type": kind} | ({} if length is None else {"minLength": length})
            case Integer(width):
                unsigned = {"minimum": 0} if width.startswith("uint") else {}
                return {"type": "integer", "format": width} | unsigned
            case Anything():
                return {}
            case Null():
                return {"type": "null"}
            case Named(name):
                return {"$ref": self._pointer(name)}
            case ListOf(item):
                return {"type": "array", "items": self._field_type(item)}
            case MapOf(value):
                return {"type": "object", "additionalProperties": self._field_type(value)}
            case StringEnum(values):
                return {"type": "string", "enum": list(values)}
            case Union():
                return self._union(type_)

    def _union(self, type_: Union) -> Schema:
        inner, is_nullable = split_null(type_)
        if not is_nullable:
            return {"anyOf": [self._type(member) for member in type_.members]}
        schema = self._type(inner)
        if isinstance(schema.get("type"), str) and "enum" not in schema:
            return schema | {"type": [schema["type"], "null"]}
        members = schema.get("anyOf") or [schema]
        return {"anyOf": [*members, {"type": "null"}]}


def pascal(name: str) -> str:
    """Spell a wire name as the reference spells titles: `turn_id` and `turnId` become `TurnId`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
