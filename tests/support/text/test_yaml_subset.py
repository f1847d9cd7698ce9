"""The YAML of small metadata files: what is read, and what is refused with its line."""

from __future__ import annotations

import pytest

from treadle.support.text.yaml_subset import MAX_DEPTH, BadYaml, YamlValue, read_yaml

DOCUMENTS: dict[str, YamlValue] = {
    "": None,
    "# only a comment\n": None,
    "---\na: b": {"a": "b"},
    "a: b # comment\n'k k': v#no comment": {"a": "b", "k k": "v#no comment"},
    "a: \"x: y # z\"\nb: 'it''s'": {"a": "x: y # z", "b": "it's"},
    "a:\nb: ~\nc: null": {"a": None, "b": None, "c": None},
    "a: one\n  two\nb: 'one\n  two'": {"a": "one two", "b": "one two"},
    "a: |\n  one\n    two\n\n  three\nb: c": {"a": "one\n  two\n\nthree\n", "b": "c"},
    "a: >-\n  one\n  two\n\n  three": {"a": "one two\n\nthree"},
    "- a\n- b: c\n  d: e\n-\n  f: g\n- - h": ["a", {"b": "c", "d": "e"}, {"f": "g"}, ["h"]],
    "a:\n- b\n- c\nd: e": {"a": ["b", "c"], "d": "e"},
    "a: [b, 'c, d', {e: f, g: [h]}, ]": {"a": ["b", "c, d", {"e": "f", "g": ["h"]}]},
    "a: []\nb: {}": {"a": [], "b": {}},
    "a: [b,\n  c]": {"a": ["b", "c"]},
    "url: https://e.com/x?y\r\nn: 5\r\n": {"url": "https://e.com/x?y", "n": "5"},
}


@pytest.mark.parametrize("text", DOCUMENTS)
def test_documents_are_read(text: str) -> None:
    assert read_yaml(text) == DOCUMENTS[text]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [b", "expected `,` or `]` at line 1"),
        ("a: {b}", "expected `key: value` at line 1"),
        ("a: [] b", "unexpected text after a collection at line 1"),
        ("a: 'b", "unterminated or invalid quoted text at line 1"),
        ('a: ["b]', "unterminated or invalid quoted text at line 1"),
        ("a: b\n\tc: d", "tab in the indentation at line 2"),
        ("a:\n  b: c\n d: e", "unexpected indentation at line 3"),
        ("a: b\n- c", "expected `key: value` at line 2"),
        ("a: b\na: c", "repeated or invalid key 'a' at line 2"),
        ("a: *b", "anchors, aliases and tags are not supported at line 1"),
        ("x: y\na: !!int 5", "anchors, aliases and tags are not supported at line 2"),
    ],
)
def test_an_error_names_the_line(text: str, problem: str) -> None:
    with pytest.raises(BadYaml) as error:
        read_yaml(text)

    assert str(error.value) == problem


@pytest.mark.parametrize("text", ["- " * 500, "a: " + "[" * 500, "a:\n" + " - " * 300])
def test_nesting_is_limited(text: str) -> None:
    with pytest.raises(BadYaml, match=f"more than {MAX_DEPTH} levels"):
        read_yaml(text)
