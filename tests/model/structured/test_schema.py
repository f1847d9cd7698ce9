"""Schemas for structured output: the strict dialect, and validation against the original."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.model.structured.schema import BOUNDS, example, to_strict
from treadle.model.structured.validation import check, validate
from treadle.protocol.base import JsonValue

PERSON: JsonValue = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "kind": {"enum": ["a", "b"], "type": "string"},
        "friend": {"$ref": "#/$defs/Person"},
        "tags": {"type": "array", "items": {"type": "string", "format": "uri"}},
        "maybe": {"type": ["string", "null"]},
    },
    "required": ["name"],
    "$defs": {"Person": {"type": "object", "properties": {"x": {"type": "number"}}}},
}


def test_every_property_is_required_and_null_stands_for_absent() -> None:
    strict = to_strict(PERSON)
    null = {"type": "null"}
    assert strict.schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": ["integer", "null"], "minimum": 0},
            "kind": {"anyOf": [{"enum": ["a", "b"], "type": "string"}, null]},
            "friend": {"anyOf": [{"$ref": "#/$defs/Person"}, null]},
            "tags": {"type": ["array", "null"], "items": {"type": "string"}},
            "maybe": {"type": ["string", "null"]},
        },
        "required": ["name", "age", "kind", "friend", "tags", "maybe"],
        "additionalProperties": False,
        "$defs": {
            "Person": {
                "type": "object",
                "properties": {"x": {"type": ["number", "null"]}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    }
    assert strict.is_faithful
    assert strict.lossy == [
        "$.$defs.Person.x: optional: null means absent",
        "$.age: optional: null means absent",
        "$.kind: optional: null means absent",
        "$.friend: optional: null means absent",
        "$.tags.items: format 'uri' is not enforced",
        "$.tags: optional: null means absent",
    ]


def test_a_strict_schema_stays_unchanged() -> None:
    strict = to_strict(PERSON).schema
    again = to_strict(strict)
    assert (again.schema, again.lossy, again.is_faithful) == (strict, [], True)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "array", "items": {}},
        {"allOf": [{"type": "string"}, {"minLength": 1}]},
    ],
)
def test_a_schema_without_a_strict_form_is_reported(schema: JsonValue) -> None:
    strict = to_strict(schema)
    assert not strict.is_faithful
    assert strict.lossy


def test_other_notations_are_normalized() -> None:
    assert to_strict({"allOf": [{"$ref": "#/$defs/A"}], "description": "d"}).schema == {
        "$ref": "#/$defs/A"
    }
    assert to_strict({"oneOf": [{"type": "string"}, {"type": "null"}]}).schema == {
        "anyOf": [{"type": "string"}, {"type": "null"}]
    }
    bounded = {"type": "string", "minLength": 2, "pattern": "x", "default": "xx"}
    assert to_strict(bounded, without=BOUNDS).schema == {"type": "string"}


@pytest.mark.parametrize(
    ("value", "schema", "problems"),
    [
        ("[1", {}, ["$: not JSON: Input data was truncated"]),
        ("1", {"type": "string"}, ["$: expected string, got integer"]),
        ("1.0", {"type": "integer"}, []),
        ("true", {"type": ["integer", "null"]}, ["$: expected integer or null, got boolean"]),
        ("1", {"const": True}, ["$: expected true"]),
        ('"c"', {"enum": ["a", "b"]}, ['$: expected one of ["a","b"]']),
        ("{}", PERSON, ["$: 'name' is missing"]),
        ('{"name":"a","friend":{"x":"y"}}', PERSON, ["$.friend.x: expected number, got string"]),
        ('{"name":"a","age":null,"friend":null}', PERSON, []),
        ('{"name":null}', PERSON, ["$.name: expected string, got null"]),
        ('{"a":1}', {"additionalProperties": False}, ["$: 'a' is not allowed"]),
        (
            '{"a":1}',
            {"patternProperties": {"^a": {"type": "null"}}},
            ["$.a: expected null, got integer"],
        ),
        ("[1,1]", {"uniqueItems": True}, ["$: items are not unique"]),
        ("[1]", {"minItems": 2}, ["$: expected at least 2 items, got 1"]),
        (
            '["a",1]',
            {"prefixItems": [{}], "items": {"type": "null"}},
            ["$[1]: expected null, got integer"],
        ),
        ("[1]", {"contains": {"type": "null"}}, ["$: no item matches `contains`"]),
        ('"abc"', {"maxLength": 2}, ["$: expected at most 2 characters, got 3"]),
        ('"abc"', {"pattern": "^b"}, ["$: does not match '^b'"]),
        ("5", {"maximum": 4}, ["$: expected at most 4"]),
        ("4", {"exclusiveMaximum": 4}, ["$: expected less than 4"]),
        ("0.3", {"multipleOf": 0.1}, []),
        ("5", {"multipleOf": 2}, ["$: expected a multiple of 2"]),
        (
            "5",
            {"anyOf": [{"type": "null"}, {"maximum": 4}]},
            ["$: matches none of the 2 alternatives"],
        ),
        (
            "5",
            {"oneOf": [{}, {"minimum": 4}]},
            ["$: matches 2 of 2 alternatives, exactly one is needed"],
        ),
        ("5", {"allOf": [{"minimum": 6}]}, ["$: expected at least 6"]),
        ("5", {"not": {"type": "integer"}}, ["$: matches a schema that it must not match"]),
        ("5", {"if": {"minimum": 3}, "then": {"minimum": 6}}, ["$: expected at least 6"]),
        ("5", False, ["$: not allowed"]),
        ("5", {"$ref": "#/nowhere"}, []),
    ],
)
def test_an_invalid_value_is_reported_with_place_and_reason(
    value: str, schema: JsonValue, problems: list[str]
) -> None:
    assert validate(value, schema) == problems


def test_a_recursive_schema_terminates() -> None:
    loop: JsonValue = {"$ref": "#"}
    assert check(1, loop) == []
    tree: JsonValue = {"type": "object", "properties": {"left": {"$ref": "#"}}}
    assert check({"left": {"left": 1}}, tree) == ["$.left.left: expected object, got integer"]
    example(tree)


def test_only_the_first_problems_are_reported() -> None:
    assert len(check([1] * 100, {"items": {"type": "null"}})) == 20


LEAVES = st.sampled_from(
    [
        {"type": "string", "minLength": 1},
        {"type": "integer", "minimum": 2},
        {"type": "number", "maximum": 7},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["x", 3]},
        {"const": 1},
    ]
)


def _nested(inner: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonValue]:
    return st.one_of(
        st.builds(lambda item: {"type": "array", "items": item, "minItems": 1}, inner),
        st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner),
        st.builds(
            lambda table: {"type": "object", "properties": table, "required": list(table)},
            st.dictionaries(st.sampled_from("abc"), inner, min_size=1),
        ),
    )


SCHEMAS = st.recursive(LEAVES, _nested, max_leaves=6)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 3, 2.5, "", "x"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner)
    ),
    max_leaves=4,
)


@given(SCHEMAS, VALUES)
def test_the_verdict_is_that_of_a_full_validator(schema: JsonValue, value: JsonValue) -> None:
    is_valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (validate(json.dumps(value), schema) == []) == is_valid


@given(SCHEMAS)
def test_an_example_fits_its_schema_and_the_strict_form_of_it(schema: JsonValue) -> None:
    value = example(schema)
    assert check(value, schema) == []
    assert check(value, to_strict(schema).schema) == []


def bomb(keyword: str) -> JsonValue:
    """Return a schema that refers to each of its parts twice, recursively: 2**60 paths."""
    parts: JsonValue = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(60)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**parts, "d60": {"type": "string"}}}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_with_too_many_paths_is_not_checked_completely(keyword: str) -> None:
    """The steps are counted, so this ends."""
    assert validate("[1]", bomb(keyword)) == []
    assert to_strict({"type": "object", "properties": {"a": bomb(keyword)}}).schema
    assert example(bomb(keyword)) is None or isinstance(example(bomb(keyword)), str)


def test_an_example_of_an_endless_schema_is_abandoned() -> None:
    pair = {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}

    assert example(pair) is None


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ('"' + "a" * 5000 + '!"', {"pattern": "^(a+)+$"}),
        ('"' + "a" * 5000 + '!"', {"pattern": "^(a|a)*$"}),
    ],
)
def test_a_pattern_that_backtracks_for_ever_is_matched_all_the_same(
    text: str, schema: JsonValue
) -> None:
    assert validate(text, schema) == [f"$: does not match {schema['pattern']!r}"]


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("1e308", {"multipleOf": 1e-308}),
        ("1", {"$ref": f"#/anyOf/{'9' * 5000}", "anyOf": [True]}),
    ],
)
def test_numbers_out_of_range_are_not_invalid(text: str, schema: JsonValue) -> None:
    assert validate(text, schema) == []
