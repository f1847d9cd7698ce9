"""The content of a table after edits."""

from __future__ import annotations

import pytest

from treadle.config.edit.edits import BadEdit, TableEdit, apply
from treadle.protocol.base import JsonValue

BEFORE: JsonValue = {"model": "a", "tui": {"theme": "x", "deep": {"a": 1}}}


def after(*edits: TableEdit) -> JsonValue:
    return apply(BEFORE, edits)


def test_a_value_is_set_where_its_key_leads() -> None:
    assert after(TableEdit(("tui", "theme"), "y"), TableEdit(("new", "a", "b"), [1])) == {
        "model": "a",
        "tui": {"theme": "y", "deep": {"a": 1}},
        "new": {"a": {"b": [1]}},
    }


def test_a_table_replaces_the_table() -> None:
    assert after(TableEdit(("tui",), {"deep": {"b": 2}}))["tui"] == {"deep": {"b": 2}}


def test_a_table_is_merged_with_the_table_on_request() -> None:
    joined = after(TableEdit(("tui",), {"deep": {"b": 2}}, is_upsert=True))

    assert joined["tui"] == {"theme": "x", "deep": {"a": 1, "b": 2}}


@pytest.mark.parametrize("is_upsert", [True, False])
def test_null_removes_a_key(is_upsert: bool) -> None:
    assert after(TableEdit(("tui",), None, is_upsert=is_upsert)) == {"model": "a"}


@pytest.mark.parametrize("path", [("nope",), ("nope", "x", "y"), ("model", "x"), ("tui", "nope")])
def test_null_for_a_missing_key_changes_nothing(path: tuple[str, ...]) -> None:
    assert after(TableEdit(path, None)) == BEFORE


def test_later_edits_see_earlier_ones() -> None:
    edits = [TableEdit(("a",), {"b": 1}), TableEdit(("a", "c"), 2), TableEdit(("a", "b"), None)]

    assert after(*edits) == {**BEFORE, "a": {"c": 2}}


def test_the_original_table_stays_unchanged() -> None:
    before = {"tui": {"deep": {"a": 1}}}
    apply(before, [TableEdit(("tui", "deep", "a"), 2)])

    assert before == {"tui": {"deep": {"a": 1}}}


def test_a_value_that_is_not_a_table_is_not_treated_as_one() -> None:
    with pytest.raises(BadEdit, match="cannot set value on non-table parent") as caught:
        after(TableEdit(("model", "x"), 1))

    assert caught.value.path == ("model", "x")


@pytest.mark.parametrize(
    ("value", "reason"),
    [({"a": None}, "null"), ([None], "null"), (2**63, "64 bits"), ({"a": -(2**63) - 1}, "64")],
)
def test_values_that_toml_cannot_express_are_refused(value: JsonValue, reason: str) -> None:
    with pytest.raises(BadEdit, match=reason):
        after(TableEdit(("desktop",), value))
