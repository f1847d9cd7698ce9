"""Paths and queries as they are compared: without case, and mostly without accents."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final

from treadle.server.file_search.scores import (
    LETTER,
    LOWER,
    MARK,
    NUMBER,
    SLASH,
    UPPER,
    WHITE,
)


def _class(character: str) -> str:
    if character == "/":
        return SLASH
    if character.islower():
        return LOWER
    if character.isupper():
        return UPPER
    if character.isnumeric():
        return NUMBER
    if character.isalpha():
        return LETTER
    return WHITE if character.isspace() else MARK


_ASCII: Final = str.maketrans({chr(code): _class(chr(code)) for code in range(128)})


def classes(path: str) -> str:
    """Return the class of each character, after the class of a slash for what is before."""
    if path.isascii():
        return SLASH + path.translate(_ASCII)
    return SLASH + "".join(map(_class, _characters(path)))


def without_case(text: str) -> str:
    """Return a text in lower case, one character for each that a reader sees."""
    if text.isascii():
        return text.lower()
    return "".join(map(_lower, _characters(text)))


def without_accents(text: str) -> str:
    """Replace Latin letters with an accent by plain ones."""
    return text if text.isascii() else "".join(map(_plain, text))


def _plain(character: str) -> str:
    # Latin-1, the extended Latin blocks, and the additional ones.
    if not ("\u00c0" <= character <= "\u02af" or "\u1e00" <= character <= "\u1eff"):
        return character
    letter = unicodedata.normalize("NFKD", character)[0]
    return letter if letter.isascii() else character


def _lower(character: str) -> str:
    lower = character.lower()
    return lower if len(lower) == 1 else character


def _characters(text: str) -> Iterator[str]:
    """Yield the first code point of each character that a reader sees."""
    for character in text:
        if not unicodedata.combining(character):
            yield character
