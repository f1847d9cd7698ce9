"""Pages of a list that is at hand as a whole: the cursor is the key of the last entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from treadle.store.journal import BadCursor

T = TypeVar("T")

DEFAULT_LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some entries, the cursor for the next ones, and the one that leads back from the first."""

    data: list[T]
    next_cursor: str | None
    backwards_cursor: str | None


def page_of(
    entries: Sequence[T], key: Callable[[T], str], *, after: str | None, limit: int | None
) -> Page[T]:
    """The entries after a cursor.

    Raises:
        BadCursor: no entry has this key.
    """
    start = 0
    if after is not None:
        position = next((i for i, each in enumerate(entries) if key(each) == after), None)
        if position is None:
            raise BadCursor(after)
        start = position + 1
    size = max(1, limit) if limit is not None else DEFAULT_LIMIT
    data = list(entries[start : start + size])
    is_last = start + size >= len(entries)
    return Page(
        data,
        None if is_last or not data else key(data[-1]),
        key(data[0]) if data else None,
    )
