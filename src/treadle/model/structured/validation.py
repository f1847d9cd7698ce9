"""A small JSON Schema validator, for the keywords that are common in structured output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeGuard
from urllib.parse import unquote

import msgspec

from treadle.model.structured.effort import MAX_STEPS, SchemaTooComplex, ValidationBudget
from treadle.model.structured.pattern import Patterns, Undecided
from treadle.protocol.base import JsonValue

MAX_PROBLEMS: Final = 20
STEPS_PER_CHECK: Final = 20
"""The cost of checking one value against one schema, besides that of its keywords."""

_MAX_DEPTH: Final = 100
_PER_COMPARISON: Final = 5
# How many characters are copied, encoded or looked up in the time of one step.
_PER_STEP: Final = 64


def validate(text: str, schema: JsonValue) -> list[str]:
    """Return what is wrong with a text that should be JSON of a schema; nothing if it matches.

    An optional property may also be null: the strict dialect has no other way to omit it.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        return [f"$: not JSON: {error}"]
    except RecursionError:
        return ["$: not JSON: nested too deeply"]
    return check(value, schema)


class SchemaRoot:
    """Resolves references, and counts the work of all checks."""

    def __init__(self, schema: JsonValue, steps: int = MAX_STEPS) -> None:
        self.schema = schema
        self._effort = ValidationBudget(steps)
        self._patterns = Patterns(self._effort)

    def spend(self, steps: int = STEPS_PER_CHECK, *, characters: int = 0) -> None:
        """Count work: a short schema can refer to itself practically without end.

        Raises:
            TooComplex: the limit is exceeded.
        """
        self._effort.spend(steps + characters // _PER_STEP)

    def referred(self, reference: JsonValue) -> JsonValue:
        """Return the schema that a reference names.

        Raises:
            TooComplex: the limit is exceeded.
        """
        if not isinstance(reference, str):
            return True
        self.spend(len(reference))
        return resolve(reference, self.schema)

    def matches(self, pattern: str, text: str) -> bool:
        """Return whether a text matches a pattern; an unsupported pattern matches everything.

        Raises:
            TooComplex: the limit is exceeded.
        """
        self.spend(1, characters=len(pattern))
        try:
            return self._patterns.matches(pattern, text)
        except Undecided:
            return True


def check(value: JsonValue, schema: JsonValue, *, root: SchemaRoot | None = None) -> list[str]:
    """Return what is wrong with a value: the first few errors, each with a path and a reason.

    References are resolved in `root`, by default the schema itself. What cannot be checked in a
    bounded number of steps counts as valid.
    """
    found: list[str] = []
    with suppress(SchemaTooComplex):
        for problem in _problems(value, schema, "$", root or SchemaRoot(schema), 0):
            found.append(problem)
            if len(found) == MAX_PROBLEMS:
                break
    return found


def resolve(reference: str, root: JsonValue) -> JsonValue:
    """Return the schema that a local reference names; one that accepts all if it is missing."""
    if not reference.startswith("#"):
        return True
    place = root
    for part in reference[1:].split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and key in place:
            place = place[key]
        elif isinstance(place, list) and _is_index(key, place):
            place = place[int(key)]
        else:
            return True
    return place


def _is_index(key: str, items: list[JsonValue]) -> bool:
    return key.isdecimal() and len(key) < 10 and int(key) < len(items)


def _problems(
    value: JsonValue, schema: JsonValue, path: str, root: SchemaRoot, depth: int
) -> Iterator[str]:
    root.spend(characters=len(path))
    if schema is False:
        yield f"{path}: not allowed"
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    if "$ref" in schema:
        yield from _problems(value, root.referred(schema["$ref"]), path, root, depth + 1)
    if "type" in schema and not _has_type(value, schema["type"], root):
        yield f"{path}: expected {_words(schema['type'], root)}, got {_type_of(value)}"
        return
    yield from _listed(value, schema, path, root)
    yield from _combined(value, schema, path, root, depth)
    if isinstance(value, dict):
        yield from _object(value, schema, path, root, depth)
    elif isinstance(value, list):
        yield from _array(value, schema, path, root, depth)
    elif isinstance(value, str):
        yield from _string(value, schema, path, root)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, schema, path)


def _listed(
    value: JsonValue, schema: dict[str, JsonValue], path: str, root: SchemaRoot
) -> Iterator[str]:
    if "const" in schema and not _same(value, schema["const"], root):
        yield f"{path}: expected {_quote(schema['const'], root)}"
    listed = schema.get("enum")
    if isinstance(listed, list) and not any(_same(value, one, root) for one in listed):
        yield f"{path}: expected one of {_quote(listed, root)}"


def _combined(
    value: JsonValue, schema: dict[str, JsonValue], path: str, root: SchemaRoot, depth: int
) -> Iterator[str]:
    def fits(part: JsonValue) -> bool:
        return next(_problems(value, part, path, root, depth + 1), None) is None

    for part in _parts(schema, "allOf"):
        yield from _problems(value, part, path, root, depth + 1)
    any_of = _parts(schema, "anyOf")
    if any_of and not any(fits(part) for part in any_of):
        yield f"{path}: matches none of the {len(any_of)} alternatives"
    one_of = _parts(schema, "oneOf")
    if one_of:
        count = sum(fits(part) for part in one_of)
        if count != 1:
            yield f"{path}: matches {count} of {len(one_of)} alternatives, exactly one is needed"
    if "not" in schema and fits(schema["not"]):
        yield f"{path}: matches a schema that it must not match"
    if "if" in schema:
        branch = "then" if fits(schema["if"]) else "else"
        yield from _problems(value, schema.get(branch, True), path, root, depth + 1)


def _object(
    value: dict[str, JsonValue],
    schema: dict[str, JsonValue],
    path: str,
    root: SchemaRoot,
    depth: int,
) -> Iterator[str]:
    root.spend(len(_parts(schema, "required")))
    required = dict.fromkeys(name for name in _parts(schema, "required") if isinstance(name, str))
    for name in required:
        if name not in value:
            yield f"{path}: {name!r} is missing"
    yield from _bounds(len(value), schema, path, "Properties", "properties")
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    patterns = schema.get("patternProperties")
    patterns = patterns if isinstance(patterns, dict) else {}
    extra = schema.get("additionalProperties", True)
    for name, part in value.items():
        root.spend(1, characters=len(name))
        if part is None and name in properties and name not in required:
            continue
        schemas = [properties[name]] if name in properties else []
        schemas += [sub for pattern, sub in patterns.items() if root.matches(pattern, name)]
        if not schemas and extra is False:
            yield f"{path}: {name!r} is not allowed"
            continue
        for sub in schemas or [extra]:
            yield from _problems(part, sub, f"{path}.{name}", root, depth + 1)


def _array(
    value: list[JsonValue], schema: dict[str, JsonValue], path: str, root: SchemaRoot, depth: int
) -> Iterator[str]:
    yield from _bounds(len(value), schema, path, "Items", "items")
    first = _parts(schema, "prefixItems")
    rest = schema.get("items", True)
    for index, part in enumerate(value):
        sub = first[index] if index < len(first) else rest
        yield from _problems(part, sub, f"{path}[{index}]", root, depth + 1)
    if schema.get("uniqueItems") is True:
        seen = [msgspec.json.encode(part, order="sorted") for part in value]
        root.spend(len(seen), characters=4 * sum(map(len, seen)))
        if len(set(seen)) != len(seen):
            yield f"{path}: items are not unique"
    if "contains" in schema and not any(
        next(_problems(part, schema["contains"], path, root, depth + 1), None) is None
        for part in value
    ):
        yield f"{path}: no item matches `contains`"


def _string(value: str, schema: dict[str, JsonValue], path: str, root: SchemaRoot) -> Iterator[str]:
    yield from _bounds(len(value), schema, path, "Length", "characters")
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not root.matches(pattern, value):
        yield f"{path}: does not match {pattern!r}"


_LIMITS: Final[dict[str, tuple[str, Callable[[float, float], bool]]]] = {
    "minimum": ("at least", lambda value, limit: value >= limit),
    "maximum": ("at most", lambda value, limit: value <= limit),
    "exclusiveMinimum": ("more than", lambda value, limit: value > limit),
    "exclusiveMaximum": ("less than", lambda value, limit: value < limit),
}


def _number(value: float, schema: dict[str, JsonValue], path: str) -> Iterator[str]:
    for name, (words, is_fine) in _LIMITS.items():
        limit = schema.get(name)
        if _is_number(limit) and not is_fine(value, limit):
            yield f"{path}: expected {words} {limit}"
    step = schema.get("multipleOf")
    if _is_number(step) and step > 0 and not _is_multiple(value, step):
        yield f"{path}: expected a multiple of {step}"


def _is_multiple(value: float, step: float) -> bool:
    try:
        return math.isclose(value / step, round(value / step))
    except (OverflowError, ValueError):
        return True  # too large for float arithmetic


def _bounds(
    size: int, schema: dict[str, JsonValue], path: str, what: str, words: str
) -> Iterator[str]:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if isinstance(least, int) and size < least:
        yield f"{path}: expected at least {least} {words}, got {size}"
    if isinstance(most, int) and size > most:
        yield f"{path}: expected at most {most} {words}, got {size}"


def _has_type(value: JsonValue, kind: JsonValue, root: SchemaRoot) -> bool:
    root.spend(_PER_COMPARISON)
    if isinstance(kind, list):
        return any(_has_type(value, one, root) for one in kind)
    actual = _type_of(value)
    if kind == "number":
        return actual in ("integer", "number")
    # 1.0 is an integer to JSON Schema.
    return actual == kind or (kind == "integer" and actual == "number" and value == int(value))


def _type_of(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _same(one: JsonValue, other: JsonValue, root: SchemaRoot) -> bool:
    """Return whether two values are equal as JSON, where true is not 1."""
    root.spend(_PER_COMPARISON)
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_same(*pair, root) for pair in pairs)
    if isinstance(one, dict) and isinstance(other, dict):
        root.spend(len(one))
        return one.keys() == other.keys() and all(_same(one[key], other[key], root) for key in one)
    if isinstance(one, str):
        root.spend(0, characters=len(one))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _is_number(value: JsonValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parts(schema: dict[str, JsonValue], name: str) -> Sequence[JsonValue]:
    parts = schema.get(name)
    return parts if isinstance(parts, list) else ()


def _words(kind: JsonValue, root: SchemaRoot) -> str:
    text = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)
    root.spend(0, characters=4 * len(text))
    return text


def _quote(value: JsonValue, root: SchemaRoot) -> str:
    text = msgspec.json.encode(value).decode()
    root.spend(0, characters=len(text))
    return text if len(text) <= 200 else f"{text[:200]}..."
