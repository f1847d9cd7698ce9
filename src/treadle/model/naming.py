"""Limits the names that a provider gives: ids, kinds and names of tools.

Every delta repeats the id of its item to every client, and a turn keeps all ids that it has seen.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from treadle.model.base import ModelItem

MAX_NAME: Final = 1024
"""The most characters of an id or a name; some providers seal their state in ids of half of it."""

_NAMES: Final = ("id", "type", "call_id", "name", "namespace")


def short_name(name: str) -> str:
    """Return a name, or its digest if it is too long: the same name always becomes the same."""
    if len(name) <= MAX_NAME:
        return name
    return f"long_{sha256(name.encode('utf-8', 'replace')).hexdigest()}"


def with_short_names(item: ModelItem) -> ModelItem:
    """Return an item of a provider with names within the limit."""
    given = {name: value for name in _NAMES if isinstance(value := item.get(name), str)}
    long = {name: short_name(value) for name, value in given.items() if len(value) > MAX_NAME}
    return {**item, **long} if long else item
