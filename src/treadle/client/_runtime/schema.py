"""JSON Schemas of Python types, and conversion of JSON documents to those types.

msgspec handles dataclasses, TypedDicts, msgspec Structs and plain types. Pydantic classes use their
own methods; this module does not import pydantic.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import PurePath
from typing import TypeVar

import msgspec

from treadle.protocol.base import JsonValue

T = TypeVar("T")

_MAX_DEPTH = 40


def schema_of(kind: object) -> JsonValue:
    """Return the schema of a type, without references unless the type is recursive."""
    own = getattr(kind, "model_json_schema", None)
    schema = own() if callable(own) else msgspec.json.schema(kind, schema_hook=_schema_of_other)
    return inlined(schema)


def read_as(kind: type[T], document: JsonValue) -> T:
    """Convert a document to a value of the type.

    Raises:
        ValueError: the document does not match; the message says where.
    """
    own = getattr(kind, "model_validate", None)
    if callable(own):
        return own(document)  # type: ignore[no-any-return]  # pydantic's contract
    try:
        return msgspec.convert(document, kind, dec_hook=_read_other)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def _schema_of_other(kind: type) -> JsonValue:
    if issubclass(kind, PurePath):
        return {"type": "string"}
    own = getattr(kind, "model_json_schema", None)
    if not callable(own):
        raise TypeError(f"{kind!r} has no JSON Schema")
    return inlined(own())


def _read_other(kind: type, value: JsonValue) -> object:
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    own = getattr(kind, "model_validate", None)
    if not callable(own):
        raise NotImplementedError(f"{kind!r} cannot be read from JSON")
    return own(value)


def to_json(value: object) -> str:
    """Encode a value as JSON; values without a JSON form become strings."""
    own = getattr(value, "model_dump_json", None)
    if callable(own):
        return str(own())
    try:
        return msgspec.json.encode(value, enc_hook=_encode_other).decode()
    except UnicodeEncodeError:
        # A lone surrogate: JSON can express it, but msgspec cannot encode it.
        return json.dumps(msgspec.to_builtins(value, enc_hook=_encode_other))


def _encode_other(value: object) -> JsonValue:
    own = getattr(value, "model_dump", None)
    return own(mode="json") if callable(own) else str(value)


def inlined(schema: JsonValue) -> JsonValue:
    """Replace references with their definitions; return a recursive schema unchanged."""
    definitions = schema.get("$defs", {})
    if any(_refers(name, name, definitions, 0) for name in definitions):
        return schema
    body = {name: value for name, value in schema.items() if name != "$defs"}
    return _inline(body, definitions)


def _inline(node: JsonValue, definitions: dict[str, JsonValue]) -> JsonValue:
    if isinstance(node, list):
        return [_inline(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    name = _target(node)
    if name in definitions:
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _inline({**deepcopy(definitions[name]), **beside}, definitions)
    return {key: _inline(value, definitions) for key, value in node.items()}


def _target(node: dict[str, JsonValue]) -> str:
    reference = node.get("$ref")
    return reference.removeprefix("#/$defs/") if isinstance(reference, str) else ""


def _refers(node: JsonValue, name: str, definitions: dict[str, JsonValue], depth: int) -> bool:
    """Return whether a definition refers to itself."""
    if depth > _MAX_DEPTH:
        return True
    if isinstance(node, str) and depth == 0:
        node = definitions[node]
    if isinstance(node, list):
        return any(_refers(each, name, definitions, depth + 1) for each in node)
    if not isinstance(node, dict):
        return False
    target = _target(node)
    if target == name:
        return True
    if target in definitions and _refers(definitions[target], name, definitions, depth + 1):
        return True
    return any(_refers(each, name, definitions, depth + 1) for each in node.values())


def strict(schema: JsonValue) -> JsonValue:
    """Convert a schema to the strict dialect that providers enforce.

    Every property is required and additional properties are forbidden. An optional property may be
    null instead.
    """
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict_schema = {
        # These keys are names of the user's choice, which may equal schema keywords.
        name: _each_strict(value) if name in ("properties", "$defs") else strict(value)
        for name, value in schema.items()
        if name != "default"
    }
    properties = strict_schema.get("properties")
    if isinstance(properties, dict) and schema.get("type", "object") == "object":
        required = schema.get("required", [])
        strict_schema["properties"] = {
            name: each if name in required else _nullable(each) for name, each in properties.items()
        }
        strict_schema["required"] = list(properties)
        strict_schema["additionalProperties"] = False
    return strict_schema


def _each_strict(schemas: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: strict(schema) for name, schema in schemas.items()}


def _nullable(schema: JsonValue) -> JsonValue:
    options = schema.get("anyOf", [schema]) if isinstance(schema, dict) else [schema]
    if any(isinstance(each, dict) and each.get("type") == "null" for each in options):
        return schema
    return {"anyOf": [*options, {"type": "null"}]}


def without_nulls(document: JsonValue) -> JsonValue:
    """Remove null properties from a document: the inverse of `strict`."""
    if isinstance(document, list):
        return [without_nulls(each) for each in document]
    if not isinstance(document, dict):
        return document
    return {name: without_nulls(each) for name, each in document.items() if each is not None}
