"""JSON from other programs: how deep it is nested."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocol.base import JsonValue
from treadle.support.text.json_text import (
    MAX_CONTAINERS,
    MAX_REPAIRED,
    MAX_STRINGS,
    MAX_VALUES,
    is_crowded,
    is_nested_deeper,
    repair_json,
)

TEXT = st.text(alphabet='[]{}"\\\\,:a\u00e9', max_size=6)
VALUES = st.recursive(
    TEXT | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


def depth(value: JsonValue) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(VALUES, st.integers(0, 6), st.booleans())
def test_the_nesting_is_that_of_the_decoded_value(
    value: JsonValue, limit: int, is_ascii: bool
) -> None:
    # Padded: a document of fewer bytes than twice the limit cannot be nested deeper.
    document = json.dumps([value, "x" * 20], ensure_ascii=is_ascii).encode()
    assert is_nested_deeper(document, limit) == (1 + depth(value) > limit)


@pytest.mark.parametrize(
    "inside", ["[" * 1000, '"[' * 1000, "\\\\" * 999 + "[" * 1000, '\\"{' * 1000]
)
def test_brackets_inside_of_strings_do_not_count(inside: str) -> None:
    assert not is_nested_deeper(json.dumps({inside: [inside, json.dumps(inside)]}).encode())


@pytest.mark.parametrize("document", [b"[" * 1000, b'{"a":' * 1000, b'["' + b"[" * 1000])
def test_a_truncated_document_counts_what_is_open(document: bytes) -> None:
    assert is_nested_deeper(document) == (b'["' not in document)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"[%b]" % b",".join([b"[]"] * MAX_CONTAINERS), True),
        (b"[%b]" % b",".join([b"{}"] * (MAX_CONTAINERS - 1)), False),
        (b"[%b]" % b",".join([b'"a"'] * (MAX_STRINGS + 1)), True),
        (b"[%b]" % b",".join([b"0"] * (MAX_VALUES + 1)), True),
        (b"[%b]" % b",".join([b"null"] * (MAX_VALUES - 1)), False),
        (b'["%b"]' % (b"," * 2 * MAX_VALUES), False),
        (b'["%b"]' % (b"[" * 2 * MAX_CONTAINERS), False),
        (b'["%b"]' % (b'\\"' * 3 * MAX_STRINGS), False),
    ],
    ids=[
        "arrays",
        "as many as may be",
        "strings",
        "numbers",
        "as many numbers as may be",
        "commas in a text",
        "brackets in a text",
        "quotes in a text",
    ],
)
def test_a_message_of_too_many_parts_is_detected_before_it_is_decoded(
    document: bytes, expected: bool
) -> None:
    assert is_crowded(document) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (rb"\ud800", rb"\ufffd"),
        (rb"\uDC00\ud800", rb"\ufffd\ufffd"),
        (rb"\ud83d\ude00", rb"\ud83d\ude00"),
        (rb"\ud83d\ude00\ude00", rb"\ud83d\ude00\ufffd"),
        (rb"\ud83d\ud83d\ude00", rb"\ufffd\ud83d\ude00"),
        (rb"\\ud800", rb"\\ud800"),
        (rb"\\\ud800", rb"\\\ufffd"),
        (b"\xff", "\N{REPLACEMENT CHARACTER}".encode()),
        (rb"\ud800" * MAX_REPAIRED, rb"\ud800" * MAX_REPAIRED),
    ],
    ids=lambda value: str(value[:24]),
)
def test_a_lone_surrogate_is_replaced(document: bytes, expected: bytes) -> None:
    assert repair_json(document) == expected
