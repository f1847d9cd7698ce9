"""Pages of a list that is short enough to be made whole each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from treadle.rpc.errors import InvalidRequest

T = TypeVar("T")


def page(
    items: Sequence[T], cursor: str | None, limit: int | None, *, of: str
) -> tuple[list[T], str | None]:
    """Cut one page and give the cursor of the next; a cursor is the number of items before it.

    Raises:
        InvalidRequest: the cursor is not one of ours.
    """
    start = 0
    if cursor is not None:
        if not (cursor.isascii() and cursor.isdigit()):
            message = f"invalid cursor: {cursor}"
            raise InvalidRequest(message, kind="invalidCursor", path="cursor")
        # More digits than any list is long would only cost time to read.
        start = int(cursor[:20])
    if start > len(items):
        message = f"cursor {cursor} exceeds total {of} {len(items)}"
        raise InvalidRequest(message, kind="invalidCursor", path="cursor")
    end = len(items) if limit is None else min(start + max(limit, 1), len(items))
    return list(items[start:end]), str(end) if end < len(items) else None
