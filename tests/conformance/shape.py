"""Reduces a JSON Schema to plain facts, so that two notations of one shape have the same facts.

A fact is a place and a statement about it: `Turn.error` is `optional TurnError or null`,
`ThreadItem<plan>` is `variant by type`, `TurnStatus="failed"` is `word`.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from treadle.protocol.base import JsonValue

Schema: TypeAlias = JsonValue
Facts = dict[str, str]

_SAME_WIDTH = {"uint": "uint64", "int": "int64"}


def definitions_of(bundle: Schema) -> dict[str, Schema]:
    """Return all definitions of a bundle by name, those of `v2` included."""
    definitions: dict[str, Schema] = dict(bundle["definitions"])
    definitions |= definitions.pop("v2", {})
    return definitions


_FACTUAL = frozenset(
    """$ref additionalProperties allOf anyOf enum format items minLength oneOf properties required
    type""".split()
)


def reduced(definitions: dict[str, Schema]) -> dict[str, Schema]:
    """Return definitions with only the parts that state facts, no descriptions or titles."""
    return {name: _reduced(schema) for name, schema in definitions.items()}


def _reduced(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [_reduced(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: reduced(value) if key == "properties" else _reduced(value)
        for key, value in schema.items()
        if key in _FACTUAL
    }


def message_facts(definitions: dict[str, Schema]) -> Facts:
    """Return for each method what its params are and whether they may be missing."""
    facts: Facts = {}
    for union in ("ClientRequest", "ServerRequest", "ServerNotification"):
        for message in definitions[union]["oneOf"]:
            properties = message["properties"]
            (method,) = properties["method"]["enum"]
            need = "required" if "params" in message["required"] else "optional"
            params = Describer(definitions, definitions.keys()).describe(
                properties.get("params", {"type": "null"})
            )
            facts[f"{union} {method}"] = f"{need} {params}"
    return facts


class Describer:
    """States facts about types; names outside `known` are replaced by their definitions."""

    def __init__(self, definitions: dict[str, Schema], known: AbstractSet[str]) -> None:
        self._definitions = definitions
        self._known = known

    def facts(self, name: str) -> Facts:
        """Return all facts about one type."""
        return dict(self._facts(name, self._definitions[name]))

    def describe(self, schema: Schema) -> str:
        """Describe a type in one line."""
        inner, is_nullable = self._resolve(schema)
        text = self._describe(inner)
        return f"{text} or null" if is_nullable and text not in ("anything", "null") else text

    def _describe(self, schema: Schema) -> str:
        match schema:
            case {"$ref": pointer}:
                return str(pointer).rsplit("/", 1)[-1]
            case {"enum": words}:
                return "words" if len(words) > 1 else f'"{words[0]}"'
            case {"oneOf": members} | {"anyOf": members}:
                return " | ".join(sorted({self.describe(member) for member in members}))
            case {"type": "array"}:
                return f"array of {self.describe(schema.get('items', True))}"
            case {"type": "object"} if not schema.get("properties"):
                return f"map of {self.describe(schema.get('additionalProperties', True))}"
            case {"type": "integer"}:
                width = str(schema.get("format", "int64"))
                return _SAME_WIDTH.get(width, width)
            case {"type": "string", "minLength": length}:
                return f"string of {length} or more"
            case {"type": [*kinds]}:
                return " | ".join(sorted(kinds))
            case {"type": kind}:
                return str(kind)
            case _:
                return "anything"

    def _facts(self, where: str, schema: Schema) -> Iterator[tuple[str, str]]:
        inner, _ = self._resolve(schema)
        if inner is True or not isinstance(inner, dict):
            return
        if _alternatives(inner):
            yield from self._union_facts(where, inner)
        elif inner.get("type") == "object" and inner.get("properties"):
            yield from self._object_facts(where, inner)
        elif "enum" in inner:
            yield from ((f'{where}="{word}"', "word") for word in inner["enum"])
        elif where in self._definitions:
            yield where, self.describe(schema)

    def _object_facts(self, where: str, schema: Schema) -> Iterator[tuple[str, str]]:
        required = schema.get("required", [])
        if schema.get("additionalProperties") is False:
            yield where, "closed"
        for name, value in schema["properties"].items():
            place = f"{where}.{name}"
            need = "required" if name in required else "optional"
            yield place, f"{need} {self.describe(value)}"
            yield from self._part_facts(place, value)

    def _part_facts(self, place: str, schema: Schema) -> Iterator[tuple[str, str]]:
        inner, _ = self._resolve(schema)
        match inner:
            case {"type": "array", "items": part}:
                yield from self._part_facts(f"{place}[]", part)
            case {"type": "object", "additionalProperties": part} if not inner.get("properties"):
                yield from self._part_facts(f"{place}[]", part)
            case _:
                yield from self._facts(place, inner)

    def _union_facts(self, where: str, schema: Schema) -> Iterator[tuple[str, str]]:
        common = {key: schema[key] for key in ("properties", "required") if key in schema}
        for member in _alternatives(schema):
            variant, _ = self._resolve(_merged(common, member))
            if "enum" in variant:
                yield from ((f'{where}="{word}"', "word") for word in variant["enum"])
            elif variant.get("properties"):
                yield from self._variant_facts(where, variant)
            else:
                yield f"{where}|{self.describe(variant)}", "alternative"

    def _variant_facts(self, where: str, variant: Schema) -> Iterator[tuple[str, str]]:
        properties = _all_properties(variant)
        tag = _tag(variant)
        if tag is not None:
            name, value = tag
            del properties[name]
            place, fact = f"{where}<{value}>", f"variant by {name}"
        else:
            place, fact = f"{where}<{','.join(sorted(variant.get('required', [])))}>", "variant"
        is_closed = variant.get("additionalProperties") is False
        yield place, f"{fact}, closed" if is_closed else fact
        open_ = {"properties": properties, "required": variant.get("required", [])}
        yield from self._object_facts(place, open_)

    def _resolve(self, schema: Schema) -> tuple[Schema, bool]:
        """Remove wrappers and null, and replace unknown names by their definitions."""
        if schema is True or not isinstance(schema, dict):
            return schema, False
        is_nullable = False
        match schema:
            case {"allOf": [only]}:
                return self._resolve(only)
            case {"anyOf": [*members]} if {"type": "null"} in members:
                rest = [member for member in members if member != {"type": "null"}]
                inner, _ = self._resolve(rest[0] if len(rest) == 1 else {"anyOf": rest})
                return inner, True
            case {"type": [*kinds]} if "null" in kinds:
                rest = [kind for kind in kinds if kind != "null"]
                schema = schema | {"type": rest[0] if len(rest) == 1 else rest}
                is_nullable = True
            case {"$ref": pointer}:
                name = str(pointer).rsplit("/", 1)[-1]
                if name not in self._known:
                    return self._resolve(self._definitions[name])
            case _:
                pass
        plain = {
            key: value
            for key, value in schema.items()
            if key not in ("description", "default", "title", "$schema", "definitions")
        }
        return plain, is_nullable


def _alternatives(schema: Schema) -> list[Schema]:
    members: list[Schema] = schema.get("oneOf") or schema.get("anyOf") or []
    is_object = schema.get("properties") and "oneOf" not in schema
    return [] if is_object else members


def _merged(common: Schema, member: Schema) -> Schema:
    """Move the properties beside a union into its alternatives."""
    if not common:
        return member
    return member | {
        "properties": common.get("properties", {}) | member.get("properties", {}),
        "required": [*common.get("required", []), *member.get("required", [])],
    }


def _all_properties(variant: Schema) -> dict[str, Schema]:
    """Read "this property or that one" as two optional properties."""
    properties = dict(variant["properties"])
    for alternative in variant.get("anyOf", []):
        properties |= alternative["properties"]
    return properties


def _tag(variant: Schema) -> tuple[str, str] | None:
    for name, value in variant["properties"].items():
        words = value.get("enum", []) if isinstance(value, dict) else []
        if len(words) == 1 and name in variant.get("required", []):
            return name, str(words[0])
    return None
