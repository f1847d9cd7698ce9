"""The words of messages that are not complete: what of them was told, and what is to be told.

A server that does not number its events tells nothing of what was said while the line was broken.
What comes then of a message with such a gap would be told out of its place: it is held back, and
told as one delta when the message is complete.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from treadle.client._compat.lenient import Item
from treadle.client.events import AgentMessageDelta, Event, ItemCompleted, ItemStarted
from treadle.protocol.item import AgentMessageThreadItem, ThreadItem

HELD: Final = object()
"""Said of an event that is not to be told."""


class OpenText:
    """The messages of one turn, as far as their words were told."""

    def __init__(self) -> None:
        self._told: dict[str, list[str]] = {}
        self._has_gap = False
        self._begun_since: set[str] = set()

    def break_off(self) -> None:
        """The line broke: of messages that are open now, or begin unheard, a part is missed."""
        self._has_gap = True
        self._begun_since.clear()

    def take(self, event: Event, done: Container[str]) -> object:
        """What is to be told before an event: nothing, the rest of its words, or `HELD`."""
        if isinstance(event, AgentMessageDelta):
            if self._has_gap and event.item_id not in self._begun_since:
                return HELD
            self._told.setdefault(event.item_id, []).append(event.delta)
        elif isinstance(event, ItemStarted):
            self._begun_since.add(event.item.id)
        elif isinstance(event, ItemCompleted) and event.item.id not in done:
            return self._rest(event)
        return None

    def _rest(self, event: ItemCompleted) -> Event | None:
        item = event.item
        told = "".join(self._told.pop(item.id, ()))
        if not self._has_gap or not isinstance(item, AgentMessageThreadItem):
            return None
        # Words that do not go on where the told ones ended are in the item alone.
        if item.text == told or not item.text.startswith(told):
            return None
        return AgentMessageDelta(
            delta=item.text[len(told) :],
            item_id=item.id,
            thread_id=event.thread_id,
            turn_id=event.turn_id,
        )

    def unheard(
        self, items: Sequence[ThreadItem], told: Mapping[str, Item]
    ) -> Iterator[ThreadItem]:
        """Messages among those at the end of a turn whose completion was missed."""
        if not self._has_gap:
            return
        known = [item.text for item in told.values() if isinstance(item, AgentMessageThreadItem)]
        for item in items:
            is_known = item.id in told or getattr(item, "text", None) in known
            if isinstance(item, AgentMessageThreadItem) and not is_known:
                yield self.named(item)

    def named(self, item: ThreadItem) -> ThreadItem:
        """A stored item under the id that its words were told with, if it was open."""
        if isinstance(item, AgentMessageThreadItem):
            for id_, words in self._told.items():
                if item.text.startswith("".join(words)):
                    return msgspec.structs.replace(item, id=id_)
        return item
