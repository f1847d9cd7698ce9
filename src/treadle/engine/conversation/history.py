"""The model's history of a thread: its items in order, each stored before it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treadle.engine.events.log import EventLog
from treadle.model.base import ModelItem
from treadle.store.records import Compacted, HistoryItem
from treadle.support.text.json_text import encode_json


class History:
    """The items that the model sees; append-only, except for compaction."""

    def __init__(self, log: EventLog, items: Iterable[ModelItem] = ()) -> None:
        self._log = log
        self._items = list(items)
        # The bytes of the first items, measured when they are asked for.
        self._size = 0
        self._measured = 0

    @property
    def size(self) -> int:
        """The bytes of all items as JSON."""
        self._size += size_of(self._items[self._measured :])
        self._measured = len(self._items)
        return self._size

    @property
    def items(self) -> Sequence[ModelItem]:
        """All items, oldest first."""
        return self._items

    def add(self, *items: ModelItem) -> None:
        """Append items."""
        if items:
            self._log.record(*self.take(*items))

    def store(self, *items: ModelItem) -> None:
        """Do the same, but raise on failure.

        Raises:
            StorageFailed: none of the items is appended.
        """
        self._log.store(*map(HistoryItem, items))
        self._items.extend(items)

    def take(self, *items: ModelItem) -> list[HistoryItem]:
        """Append items; the caller stores the returned records."""
        self._items.extend(items)
        return [HistoryItem(item) for item in items]

    def replace(self, items: list[ModelItem], summary: str) -> None:
        """Replace all items after a compaction."""
        self._log.record(Compacted(summary, items))
        self._items = list(items)
        self._size = self._measured = 0


def size_of(items: Iterable[ModelItem]) -> int:
    """Return the bytes of items as JSON."""
    return sum(len(encode_json(item)) for item in items)


def open_calls(items: Sequence[ModelItem]) -> list[ModelItem]:
    """Return the tool calls without output; providers reject a history with such calls."""
    answered = {
        str(item.get("call_id")) for item in items if str(item.get("type", "")).endswith("_output")
    }
    return [
        item
        for item in items
        if item.get("type") in ("function_call", "custom_tool_call", "tool_search_call")
        and str(item.get("call_id")) not in answered
    ]
