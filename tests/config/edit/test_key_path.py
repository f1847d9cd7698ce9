"""Key paths, parsed as by the reference."""

from __future__ import annotations

import pytest

from treadle.config.edit.key_path import BadKeyPath, KeyPath, parse_key_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("model", ("model",)),
        ("tui.theme", ("tui", "theme")),
        ('projects."/a/b.c".trust_level', ("projects", "/a/b.c", "trust_level")),
        ('"a\\"b"."c\\\\d"', ('a"b', "c\\d")),
        ("projects.'/a b'", ("projects", "'/a b'")),
        (" a . b ", (" a ", " b ")),
        ("a\\.b", ("a\\", "b")),
        ('"a"b', ("ab",)),
    ],
)
def test_names_are_separated_by_dots_outside_of_quotes(text: str, path: KeyPath) -> None:
    assert parse_key_path(text) == path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "keyPath must not be empty"),
        (" ", "keyPath must not be empty"),
        ("a..b", "keyPath segments must not be empty"),
        (".a", "keyPath segments must not be empty"),
        ("a.", "keyPath segments must not be empty"),
        ('"".a', "keyPath segments must not be empty"),
        ('a."b', "unterminated quoted keyPath segment"),
        ('"a\\', "unterminated escape in keyPath"),
        ('a"b"', "invalid quoted keyPath segment"),
    ],
)
def test_invalid_paths_are_refused_with_the_texts_of_the_reference(text: str, message: str) -> None:
    with pytest.raises(BadKeyPath) as caught:
        parse_key_path(text)

    assert str(caught.value) == message
