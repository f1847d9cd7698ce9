"""Pages of a list in memory: a cursor names the entry to continue from.

A forward cursor begins after its entry. A backward cursor is meant for the opposite direction and
begins with its entry, so that a client sees changes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from treadle.store.journal import BadCursor

T = TypeVar("T")

DEFAULT_LIMIT: Final = 100
MAX_PAGE_BYTES: Final = 16 * 1024 * 1024
"""A page ends before the entry that exceeds this size; its first entry may have any size."""
_INCLUDED: Final = "~"


class Page(Struct, Generic[T], frozen=True):
    """A page of entries, the cursor of the next page and the cursor back from the first entry."""

    data: list[T]
    next_cursor: str | None
    backwards_cursor: str | None


def page_of(
    entries: Sequence[T],
    key: Callable[[T], str],
    *,
    cursor: str | None,
    limit: int | None,
    default: int = DEFAULT_LIMIT,
    measure: Callable[[T], int] | None = None,
) -> Page[T]:
    """Return the entries from a cursor on, in the given order.

    A page ends early if `measure` shows that it would become too large.

    Raises:
        BadCursor: no entry has this key.
    """
    start = 0 if cursor is None else _start(entries, key, cursor)
    size = max(1, limit) if limit is not None else default
    data = list(entries[start : start + size])
    if measure is not None:
        data = _fitting(data, measure)
    is_last = start + len(data) >= len(entries)
    return Page(
        data,
        None if is_last or not data else key(data[-1]),
        cursor_at(key(data[0])) if data else None,
    )


def _fitting(data: list[T], measure: Callable[[T], int]) -> list[T]:
    room = MAX_PAGE_BYTES
    for position, entry in enumerate(data):
        room -= measure(entry)
        if room < 0:
            return data[: max(1, position)]
    return data


def cursor_at(key: str) -> str:
    """Return a cursor that begins with this entry."""
    return key + _INCLUDED


def _start(entries: Sequence[T], key: Callable[[T], str], cursor: str) -> int:
    target = cursor.removesuffix(_INCLUDED)
    position = next((i for i, each in enumerate(entries) if key(each) == target), None)
    if position is None:
        raise BadCursor(cursor)
    return position if cursor.endswith(_INCLUDED) else position + 1
