"""Key paths of configuration writes: names joined by dots, quoted where a name contains one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from treadle.config.file import MAX_DEPTH

KeyPath: TypeAlias = tuple[str, ...]


class BadKeyPath(ValueError):
    """The text is not a key path; clients rely on the message."""


def parse_key_path(text: str) -> KeyPath:
    r"""Split a path into names; within quotes a backslash escapes the next character.

    Raises:
        BadKeyPath: the path is empty, has too many names, or has a misplaced quote.
    """
    if not text.strip():
        raise BadKeyPath("keyPath must not be empty")
    names = [""]
    letters = iter(text)
    for letter in letters:
        if letter == ".":
            names.append("")
        elif letter != '"':
            names[-1] += letter
        elif names[-1]:
            raise BadKeyPath("invalid quoted keyPath segment")
        else:
            names[-1] = _quoted(letters)
    if len(names) > MAX_DEPTH:
        raise BadKeyPath(f"keyPath has {len(names)} segments: expected at most {MAX_DEPTH}")
    if "" in names:
        raise BadKeyPath("keyPath segments must not be empty")
    return tuple(names)


def _quoted(letters: Iterator[str]) -> str:
    """Read up to the closing quote."""
    name = ""
    for letter in letters:
        if letter == '"':
            return name
        if letter == "\\":
            try:
                name += next(letters)
            except StopIteration:
                raise BadKeyPath("unterminated escape in keyPath") from None
        else:
            name += letter
    raise BadKeyPath("unterminated quoted keyPath segment")
