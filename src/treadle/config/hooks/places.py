"""Finds the line of a value in a JSON document, for messages about it."""

from __future__ import annotations

import json
import re
from typing import Final

from treadle.config.hooks.parse import Path

# The text is valid JSON, so the rest of it is punctuation that has no effect on the place.
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{},:]|[^\s\[\]{},:"]++')


def line_of(text: str, path: Path) -> int:
    """Return the number of the line on which a value begins; 1 if the document has none there."""
    at: list[str | int] = []
    # Whether each open bracket is an object.
    kinds: list[bool] = []
    key: str | None = None
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in ("]", "}"):
            kinds.pop()
            if at:
                at.pop()
        elif mark == ",":
            _advance(at, is_object=kinds[-1])
            key = None
        elif mark == ":":
            at[-1] = key or ""
        elif kinds and kinds[-1] and at[-1] == "" and key is None:
            key = json.loads(mark)
        else:
            if tuple(at) == path:
                return text.count("\n", 0, token.start()) + 1
            if mark in ("[", "{"):
                kinds.append(mark == "{")
                at.append("" if mark == "{" else 0)
                key = None
    return 1


def _advance(at: list[str | int], *, is_object: bool) -> None:
    last = at[-1]
    at[-1] = "" if is_object or isinstance(last, str) else last + 1
