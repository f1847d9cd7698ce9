"""Conversion of output schemas to the strict dialect of providers, and of answers back.

The dialect requires every property and forbids additional ones. An optional property is therefore
nullable, and a map, whose keys are not known in advance, is a list of entries.
"""

from __future__ import annotations

import json
from typing import Final

from treadle.protocol.base import JsonValue

ITEMS: Final = "items"
"""The property that holds a list answer."""
_NULL: Final[JsonValue] = {"type": "null"}
_BRANCHES: Final = ("anyOf", "oneOf", "allOf")


def strict_schema(schema: JsonValue, *, is_array: bool = False) -> JsonValue:
    """Return the schema that the model must follow; a list is wrapped in an object."""
    strict = _strict(schema)
    if not is_array:
        return strict
    return {
        "type": "object",
        "properties": {ITEMS: {"type": "array", "items": strict}},
        "required": [ITEMS],
        "additionalProperties": False,
    }


def restored(text: str, schema: JsonValue, *, is_array: bool = False) -> str:
    """Convert the model's answer to the prompt's own type; text that is not JSON is unchanged."""
    try:
        document = json.loads(text)
    except ValueError:
        return text
    if is_array:
        wrapped = document.get(ITEMS) if isinstance(document, dict) else document
        if not isinstance(wrapped, list):
            return text
        return json.dumps({ITEMS: [_restore(each, schema) for each in wrapped]})
    return json.dumps(_restore(document, schema))


def _strict(schema: JsonValue) -> JsonValue:
    if not isinstance(schema, dict):
        return schema
    branch = next((name for name in _BRANCHES if name in schema), None)
    if branch is not None:
        # Keywords beside the branches only repeat the first branch.
        return {branch: [_strict(each) for each in schema[branch]]}
    if (values := _map_values(schema)) is not None:
        return {"type": "array", "items": _entry(_strict(values))}
    strict = {name: value for name, value in schema.items() if name not in ("default", "title")}
    if "items" in strict:
        strict["items"] = _strict(strict["items"])
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        strict["properties"] = {
            name: _strict(each) if name in required else _nullable(_strict(each))
            for name, each in properties.items()
        }
        strict["required"] = list(properties)
        strict["additionalProperties"] = False
    return strict


def _map_values(schema: JsonValue) -> JsonValue:
    """Return the schema of a map's values; `None` if the schema is not a map."""
    values = schema.get("additionalProperties")
    if schema.get("type") != "object" or schema.get("properties"):
        return None
    return values if isinstance(values, dict) else None


def _entry(values: JsonValue) -> JsonValue:
    return {
        "type": "object",
        "properties": {"key": {"type": "string"}, "value": values},
        "required": ["key", "value"],
        "additionalProperties": False,
    }


def _nullable(schema: JsonValue) -> JsonValue:
    options = schema.get("anyOf", [schema])
    return schema if _NULL in options else {"anyOf": [*options, _NULL]}


def _restore(document: JsonValue, schema: JsonValue) -> JsonValue:
    if not isinstance(schema, dict):
        return document
    branch = next((name for name in _BRANCHES if name in schema), None)
    if branch is not None:
        fitting = (each for each in schema[branch] if _looks_like(document, each))
        return _restore(document, next(fitting, None))
    if (values := _map_values(schema)) is not None:
        return _as_map(document, values)
    if isinstance(document, list):
        return [_restore(each, schema.get("items")) for each in document]
    if isinstance(document, dict) and schema.get("type") == "object":
        return _as_object(document, schema)
    return document


def _as_map(document: JsonValue, values: JsonValue) -> JsonValue:
    if isinstance(document, dict):
        # A provider that does not enforce the schema may return a plain map.
        return {key: _restore(value, values) for key, value in document.items()}
    if not isinstance(document, list) or not all(_is_entry(each) for each in document):
        return document
    return {str(each["key"]): _restore(each["value"], values) for each in document}


def _is_entry(document: JsonValue) -> bool:
    return isinstance(document, dict) and document.keys() == {"key", "value"}


def _as_object(document: dict[str, JsonValue], schema: JsonValue) -> JsonValue:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return {
        name: _restore(value, properties.get(name))
        for name, value in document.items()
        if value is not None or name in required or name not in properties
    }


def _looks_like(document: JsonValue, schema: JsonValue) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(document, list):
        return kind == "array" or (kind == "object" and _map_values(schema) is not None)
    if isinstance(document, dict):
        return kind == "object"
    return kind not in ("array", "object")
