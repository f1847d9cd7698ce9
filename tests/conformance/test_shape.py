"""The comparison itself: one shape in two notations is equal, two shapes are not."""

from __future__ import annotations

import pytest

from tests.conformance.shape import Describer, Facts, Schema

STRING = {"type": "string"}


def facts(schema: Schema, **others: Schema) -> Facts:
    """Return the facts of a type `T` among other types that both sides know."""
    return Describer({"T": schema, **others}, {"T", "A", "B"}).facts("T")


def field(schema: Schema) -> Schema:
    """Return an object with one optional property."""
    return {"type": "object", "properties": {"x": schema}}


def tagged(tag: str, **properties: Schema) -> Schema:
    """Return one variant of a union."""
    return {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": [tag]}, **properties},
        "required": ["type"],
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (field({"$ref": "#/definitions/A"}), field({"allOf": [{"$ref": "#/definitions/v2/A"}]})),
        (
            {"type": "string", "enum": ["a", "b"]},
            {"oneOf": [{"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["b"]}]},
        ),
        (
            field({"type": ["string", "null"], "default": None, "description": "words"}),
            field({"anyOf": [STRING, {"type": "null"}]}),
        ),
        (
            {"oneOf": [tagged("a", x=STRING), tagged("b", x=STRING)]},
            {"oneOf": [tagged("a"), tagged("b")], "properties": {"x": STRING}},
        ),
        (
            {"oneOf": [tagged("a", x=STRING, y=STRING)]},
            {"oneOf": [tagged("a") | {"anyOf": [field(STRING), {"properties": {"y": STRING}}]}]},
        ),
        (
            field({"type": "integer", "format": "uint"}),
            field({"type": "integer", "format": "uint64"}),
        ),
    ],
)
def test_two_notations_of_one_shape_give_the_same_facts(one: Schema, other: Schema) -> None:
    assert facts(one) == facts(other) != {}


def test_a_type_that_only_one_side_names_is_replaced_by_its_definition() -> None:
    private = field({"$ref": "#/definitions/Private"})

    assert facts(private, Private=field(STRING)) == facts(field(field(STRING)))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (field(STRING), {"T.x": "optional string"}),
        (field(STRING) | {"required": ["x"]}, {"T.x": "required string"}),
        (field({"type": ["string", "null"]}), {"T.x": "optional string or null"}),
        (field({"type": "array", "items": STRING}), {"T.x": "optional array of string"}),
        (field({"$ref": "#/definitions/A"}), {"T.x": "optional A"}),
        (field({"$ref": "#/definitions/B"}), {"T.x": "optional B"}),
        (field(True), {"T.x": "optional anything"}),
        (field({"type": "integer", "format": "int32"}), {"T.x": "optional int32"}),
        ({"type": "string", "enum": ["a"]}, {'T="a"': "word"}),
        ({"oneOf": [tagged("a")]}, {"T<a>": "variant by type"}),
        (
            {"oneOf": [tagged("a") | {"additionalProperties": False}]},
            {"T<a>": "variant by type, closed"},
        ),
        (
            field(STRING) | {"additionalProperties": False},
            {"T": "closed", "T.x": "optional string"},
        ),
    ],
)
def test_different_wire_formats_have_different_facts(schema: Schema, expected: Facts) -> None:
    assert facts(schema) == expected
