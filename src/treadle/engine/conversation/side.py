"""A side conversation with the model, outside the thread's own history."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from treadle.engine.conversation.history import History
from treadle.engine.conversation.items import ItemStream
from treadle.engine.tools.registry import ToolRegistry
from treadle.engine.turn import ActiveTurn
from treadle.model.base import ItemStarted, ModelEvent, ModelItem, ModelTextDelta
from treadle.store.records import AnyRecord, HistoryItem


class UnstoredHistory(History):
    """A history that ends with its turn."""

    def __init__(self) -> None:
        self._items: list[ModelItem] = []
        self._size = self._measured = 0

    def add(self, *items: ModelItem) -> None:
        """Append items."""
        self._items.extend(items)

    def take(self, *items: ModelItem) -> list[HistoryItem]:
        """Append items without records."""
        self._items.extend(items)
        return []


class SideConversation(Struct, frozen=True):
    """A conversation that a turn holds instead of the thread's own."""

    # The kind of sub-agent in requests to the model.
    name: str
    # A short description for people.
    about: str
    instructions: str
    tools: ToolRegistry
    history: History = field(default_factory=UnstoredHistory)

    def stream(self, turn: ActiveTurn) -> ItemStream:
        """Return the stream that publishes the items of its responses."""
        return SilentItemStream(turn)


class SilentItemStream(ItemStream):
    """Publishes all items except messages, which only the owner of the conversation reads."""

    def take(self, event: ModelEvent) -> None:
        """Publish an event, unless it belongs to a message."""
        is_message = isinstance(event, ItemStarted) and event.item.get("type") == "message"
        if not is_message and not isinstance(event, ModelTextDelta):
            super().take(event)

    def finish(self, item: ModelItem, records: Sequence[AnyRecord]) -> bool:
        """Publish a finished item, unless it is a message."""
        return item.get("type") != "message" and super().finish(item, records)
