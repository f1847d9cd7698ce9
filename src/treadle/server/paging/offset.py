"""Pages of a list that is short enough to be built in full for each page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from treadle.jsonrpc.errors import InvalidRequest

T = TypeVar("T")


def page(
    items: Sequence[T], cursor: str | None, limit: int | None, *, of: str
) -> tuple[list[T], str | None]:
    """Return one page and the next cursor; a cursor is the number of items before it.

    Raises:
        InvalidRequest: the cursor is invalid.
    """
    start = _start(cursor)
    if start > len(items):
        raise _beyond(cursor, of, len(items))
    end = len(items) if limit is None else min(start + max(limit, 1), len(items))
    return list(items[start:end]), str(end) if end < len(items) else None


def page_within(
    items: Sequence[T], cursor: str | None, limit: int | None, *, of: str, size: int
) -> tuple[list[T], str | None]:
    """Return a page like `page` that ends before its JSON exceeds a size, after one item at least.

    Raises:
        InvalidRequest: the cursor is invalid.
    """
    data, next_cursor = page(items, cursor, limit, of=of)
    for at, item in enumerate(data):
        size -= len(msgspec.json.encode(item))
        if size < 0 and at:
            return data[:at], str(_start(cursor) + at)
    return data, next_cursor


def page_of_many(
    items: Iterable[T], cursor: str | None, limit: int, *, of: str
) -> tuple[list[T], str | None]:
    """Return a page like `page`, for an iterable that is too long to hold in memory.

    Raises:
        InvalidRequest: the cursor is invalid.
    """
    start, end = _start(cursor), _start(cursor) + max(limit, 1)
    data: list[T] = []
    count = 0
    for item in items:
        if count == end:
            return data, str(end)
        if count >= start:
            data.append(item)
        count += 1
    if start > count:
        raise _beyond(cursor, of, count)
    return data, None


def _start(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit()):
        message = f"invalid cursor: {cursor}"
        raise InvalidRequest(message, kind="invalidCursor", path="cursor")
    # Reading more digits than the length of any list only costs time.
    return int(cursor[:20])


def _beyond(cursor: str | None, of: str, total: int) -> InvalidRequest:
    message = f"cursor {cursor} exceeds total {of} {total}"
    return InvalidRequest(message, kind="invalidCursor", path="cursor")
