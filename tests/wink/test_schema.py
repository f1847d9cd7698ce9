"""Output schemas as providers enforce them, and answers converted back for the prompt."""

from __future__ import annotations

import json
from typing import Final

import pytest
from jsonschema import Draft202012Validator

from treadle.protocol.base import JsonValue

pytest.importorskip("weakincentives", reason="weakincentives needs Python 3.12.3 or newer")

from treadle.wink.schema import restored, strict_schema

# As `weakincentives.serde.schema` writes a dataclass with one field of each kind.
SCHEMA: Final[JsonValue] = {
    "title": "Report",
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "type": "string"},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "parts": {
            "type": "array",
            "items": {
                "title": "Part",
                "type": "object",
                "properties": {"id": {"type": "integer"}, "kind": {"type": "string"}},
                "additionalProperties": True,
                "required": ["id"],
            },
        },
    },
    "additionalProperties": True,
    "required": ["name"],
}
NULL: Final[JsonValue] = {"type": "null"}


def test_everything_is_required_and_optional_fields_are_nullable() -> None:
    part = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "kind": {"anyOf": [{"type": "string"}, NULL]},
        },
        "required": ["id", "kind"],
        "additionalProperties": False,
    }
    entry = {
        "type": "object",
        "properties": {"key": {"type": "string"}, "value": {"type": "integer"}},
        "required": ["key", "value"],
        "additionalProperties": False,
    }
    assert strict_schema(SCHEMA) == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "note": {"anyOf": [{"type": "string"}, NULL]},
            "counts": {"anyOf": [{"type": "array", "items": entry}, NULL]},
            "parts": {"anyOf": [{"type": "array", "items": part}, NULL]},
        },
        "required": ["name", "note", "counts", "parts"],
        "additionalProperties": False,
    }


ANSWERS: Final[list[tuple[JsonValue, JsonValue]]] = [
    ({"name": "n", "note": None, "counts": None, "parts": None}, {"name": "n"}),
    (
        {"name": "n", "note": "x", "counts": [{"key": "a", "value": 1}], "parts": []},
        {"name": "n", "note": "x", "counts": {"a": 1}, "parts": []},
    ),
    (
        {"name": "n", "note": None, "counts": [], "parts": [{"id": 1, "kind": None}]},
        {"name": "n", "counts": {}, "parts": [{"id": 1}]},
    ),
]


@pytest.mark.parametrize(("answer", "document"), ANSWERS)
def test_a_valid_answer_is_converted_back_to_the_prompts_own_form(
    answer: JsonValue, document: JsonValue
) -> None:
    Draft202012Validator(strict_schema(SCHEMA)).validate(answer)

    assert json.loads(restored(json.dumps(answer), SCHEMA)) == document


def test_a_list_of_answers_is_wrapped_in_an_object() -> None:
    answer = {"items": [answer for answer, _ in ANSWERS]}
    Draft202012Validator(strict_schema(SCHEMA, is_array=True)).validate(answer)

    text = restored(json.dumps(answer), SCHEMA, is_array=True)

    assert json.loads(text) == {"items": [document for _, document in ANSWERS]}


def test_invalid_json_and_plain_maps_are_left_unchanged() -> None:
    plain = {"name": "n", "counts": {"a": 1}}

    assert restored("hello", SCHEMA) == "hello"
    assert json.loads(restored(json.dumps(plain), SCHEMA)) == plain
