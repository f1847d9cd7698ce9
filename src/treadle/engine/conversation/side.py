"""A conversation with the model beside the thread's own: the thread's model does not hear it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.engine.conversation.history import History
from treadle.engine.conversation.items import ItemStream
from treadle.engine.tools.registry import ToolRegistry
from treadle.engine.turn import ActiveTurn
from treadle.model.base import ItemStarted, ModelEvent, ModelItem, ModelTextDelta
from treadle.store.records import AnyRecord, HistoryItem


class UnstoredHistory(History):
    """A history that lives no longer than its turn."""

    def __init__(self) -> None:
        self._items: list[ModelItem] = []

    def add(self, *items: ModelItem) -> None:
        """Append items."""
        self._items.extend(items)

    def take(self, *items: ModelItem) -> list[HistoryItem]:
        """Append items; there is nothing to store of them."""
        self._items.extend(items)
        return []


@dataclass(frozen=True, slots=True)
class SideConversation:
    """Whom a turn talks to instead of the thread's agent, and with what."""

    # How requests to the model name it.
    name: str
    # What it is about, in a few words for people.
    about: str
    instructions: str
    tools: ToolRegistry
    history: History = field(default_factory=UnstoredHistory)

    def stream(self, turn: ActiveTurn) -> ItemStream:
        """What tells clients of its answers."""
        return SilentItemStream(turn)


class SilentItemStream(ItemStream):
    """Tells all that happens but the messages: those are for whoever began the conversation."""

    def take(self, event: ModelEvent) -> None:
        """Tell what the event means to a client, if anything."""
        is_message = isinstance(event, ItemStarted) and event.item.get("type") == "message"
        if not is_message and not isinstance(event, ModelTextDelta):
            super().take(event)

    def finish(self, item: ModelItem, records: Sequence[AnyRecord]) -> bool:
        """Tell a finished item, unless it is a message."""
        return item.get("type") != "message" and super().finish(item, records)
