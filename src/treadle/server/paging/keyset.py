"""Pages of a list that is at hand as a whole: a cursor names the entry to go on from.

A cursor that leads on begins after its entry. One that leads back is meant for the opposite
direction and begins with its entry, so that a client sees what has changed of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from treadle.store.journal import BadCursor

T = TypeVar("T")

DEFAULT_LIMIT: Final = 100
_INCLUDED: Final = "~"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some entries, the cursor for the next ones, and the one that leads back from the first."""

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
) -> Page[T]:
    """The entries from a cursor on, in the order given.

    Raises:
        BadCursor: no entry has this key.
    """
    start = 0 if cursor is None else _start(entries, key, cursor)
    size = max(1, limit) if limit is not None else default
    data = list(entries[start : start + size])
    is_last = start + size >= len(entries)
    return Page(
        data,
        None if is_last or not data else key(data[-1]),
        cursor_at(key(data[0])) if data else None,
    )


def cursor_at(key: str) -> str:
    """A cursor that begins with this entry."""
    return key + _INCLUDED


def _start(entries: Sequence[T], key: Callable[[T], str], cursor: str) -> int:
    wanted = cursor.removesuffix(_INCLUDED)
    position = next((i for i, each in enumerate(entries) if key(each) == wanted), None)
    if position is None:
        raise BadCursor(cursor)
    return position if cursor.endswith(_INCLUDED) else position + 1
