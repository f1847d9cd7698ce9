"""JSON Schema for structured output: the strict dialect of providers, and an example value.

`treadle.model.structured.validation` checks a text against a schema.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treadle.model.structured.effort import SchemaTooComplex
from treadle.model.structured.validation import STEPS_PER_CHECK, SchemaRoot, check, validate
from treadle.protocol.base import JsonValue

__all__ = ["BOUNDS", "Strict", "example", "to_strict", "validate"]

# Keywords whose values are lists, or tables, of schemas.
_MANY: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_TABLES: Final = ("$defs", "definitions")
# Not in the strict dialect; values are still checked against the original schema.
_UNKNOWN: Final = frozenset(
    "minProperties maxProperties patternProperties unevaluatedProperties propertyNames uniqueItems "
    "contains minContains maxContains unevaluatedItems default examples $schema $id $comment "
    "dependentRequired dependentSchemas if then else not".split()
)
_HARMLESS: Final = frozenset({"default", "examples", "$schema", "$id", "$comment"})
BOUNDS: Final = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern "
    "minItems maxItems".split()
)
"""Limits on values, which some providers reject."""

_FORMATS: Final = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())
_SHAPES: Final = frozenset({"type", "anyOf", "enum", "const"})
_MAX_DEPTH: Final = 64
# For all properties together, in every request.
_MAX_STEPS: Final = 5000 * STEPS_PER_CHECK


class Strict(Struct, frozen=True):
    """A schema in the strict dialect, and the losses against the original."""

    schema: JsonValue
    lossy: list[str] = []
    # False if the strict schema forbids values that the original allows.
    is_faithful: bool = True


def to_strict(schema: JsonValue, *, without: frozenset[str] = frozenset()) -> Strict:
    """Close every object, require every property (null means absent), report the rest.

    `without` names further keywords that a provider does not accept.
    """
    work = _Strictness(schema, without)
    strict = work.convert(schema, "$", 0)
    return Strict(strict, work.lossy, work.is_faithful)


class _Strictness:
    def __init__(self, root: JsonValue, without: frozenset[str]) -> None:
        self._root = SchemaRoot(root, _MAX_STEPS)
        self._unknown = _UNKNOWN | without
        self.lossy: list[str] = []
        self.is_faithful = True

    def convert(self, schema: JsonValue, path: str, depth: int) -> JsonValue:
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            # `true`, or infinite recursion: nothing can be closed.
            self._lose(path, "any value is allowed", is_faithful=False)
            return schema
        result = self._without_unknown(schema, path)
        self._convert_parts(result, path, depth)
        if "$ref" in result:
            return {name: result[name] for name in ("$ref", *_TABLES) if name in result}
        all_of = result.get("allOf")
        if isinstance(all_of, list):
            if len(all_of) == 1 and not _is_object(result):
                return all_of[0]
            self._lose(path, "allOf", is_faithful=False)
        if _is_object(result):
            self._close(result, path, depth)
        elif not result.keys() & _SHAPES:
            self._lose(path, "any value is allowed", is_faithful=False)
        return result

    def _without_unknown(self, schema: dict[str, JsonValue], path: str) -> dict[str, JsonValue]:
        result = {name: value for name, value in schema.items() if name not in self._unknown}
        for name in sorted((schema.keys() & self._unknown) - _HARMLESS):
            self._lose(path, f"{name} is not enforced")
        if "format" in result and result["format"] not in _FORMATS:
            self._lose(path, f"format {result.pop('format')!r} is not enforced")
        if isinstance(result.get("oneOf"), list) and "anyOf" not in result:
            result["anyOf"] = result.pop("oneOf")
        return result

    def _convert_parts(self, result: dict[str, JsonValue], path: str, depth: int) -> None:
        if "items" in result:
            result["items"] = self.convert(result["items"], f"{path}.items", depth + 1)
        for name in _MANY:
            if isinstance(result.get(name), list):
                result[name] = [
                    self.convert(part, f"{path}.{name}[{index}]", depth + 1)
                    for index, part in enumerate(result[name])
                ]
        for name in _TABLES:
            if isinstance(result.get(name), dict):
                result[name] = {
                    key: self.convert(part, f"{path}.{name}.{key}", depth + 1)
                    for key, part in result[name].items()
                }

    def _close(self, result: dict[str, JsonValue], path: str, depth: int) -> None:
        open_ended = result.get("additionalProperties")
        properties = result.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        if isinstance(open_ended, dict) or (open_ended is not False and not properties):
            # A map with free keys has no closed form: the request must be less strict.
            self._lose(path, "an object with free keys", is_faithful=False)
            return
        required = result.get("required")
        required = required if isinstance(required, list) else []
        result["properties"] = {
            name: self._property(part, f"{path}.{name}", depth, is_required=name in required)
            for name, part in properties.items()
        }
        result["required"] = list(properties)
        result["additionalProperties"] = False

    def _property(
        self, schema: JsonValue, path: str, depth: int, *, is_required: bool
    ) -> JsonValue:
        strict = self.convert(schema, path, depth + 1)
        if is_required or not check(None, schema, root=self._root):
            return strict
        self._lose(path, "optional: null means absent")
        is_plain = isinstance(strict, dict) and isinstance(strict.get("type"), str)
        if is_plain and not strict.keys() & {"enum", "const"}:
            return {**strict, "type": [strict["type"], "null"]}
        return {"anyOf": [strict, {"type": "null"}]}

    def _lose(self, path: str, what: str, *, is_faithful: bool = True) -> None:
        self.lossy.append(f"{path}: {what}")
        self.is_faithful = self.is_faithful and is_faithful


def _is_object(schema: dict[str, JsonValue]) -> bool:
    kind = schema.get("type")
    return (
        kind == "object"
        or (isinstance(kind, list) and "object" in kind)
        or (kind is None and isinstance(schema.get("properties"), dict))
    )


def example(schema: JsonValue) -> JsonValue:
    """Return a small value that matches, as far as the common keywords determine it."""
    try:
        return _example(schema, SchemaRoot(schema, _MAX_STEPS), 0)
    except SchemaTooComplex:
        return None


def _example(schema: JsonValue, root: SchemaRoot, depth: int) -> JsonValue:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    root.spend()
    if "$ref" in schema:
        return _example(root.referred(schema["$ref"]), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    for name in ("enum", "examples"):
        if isinstance(schema.get(name), list) and schema[name]:
            return schema[name][0]
    if "default" in schema:
        return schema["default"]
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return _example(schema[name][0], root, depth + 1)
    if isinstance(schema.get("allOf"), list):
        return _merged_example(schema, root, depth)
    return _typed_example(schema, root, depth)


def _merged_example(schema: dict[str, JsonValue], root: SchemaRoot, depth: int) -> JsonValue:
    parts = [_example(part, root, depth + 1) for part in schema["allOf"]]
    tables = [part for part in parts if isinstance(part, dict)]
    own = _typed_example(schema, root, depth) if "properties" in schema else {}
    merged = {name: value for table in [*tables, own] for name, value in table.items()}
    return merged if tables or own else next(iter(parts), None)


def _typed_example(schema: dict[str, JsonValue], root: SchemaRoot, depth: int) -> JsonValue:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next(iter(kind), "null")
    properties = schema.get("properties")
    match kind:
        case "string":
            text = "demonstration"
            least, most = schema.get("minLength", 0), schema.get("maxLength", len(text))
            return (text * (1 + least // len(text)))[: max(least, min(most, len(text)))]
        case "integer" | "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            return (
                max(0, least) if "maximum" not in schema else min(schema["maximum"], max(0, least))
            )
        case "boolean":
            return False
        case "array":
            count = schema.get("minItems", 0)
            return [_example(schema.get("items"), root, depth + 1) for _ in range(min(count, 100))]
        case "object" | None if isinstance(properties, dict):
            required = schema.get("required") or list(properties)
            return {
                name: _example(properties.get(name, {"type": "string"}), root, depth + 1)
                for name in required
            }
        case "object":
            return {}
        case _:
            return None
