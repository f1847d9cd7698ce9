"""The text of incomplete messages across a reconnection.

A server that does not number its events does not repeat the deltas that a client missed. Later
deltas of a message with such a gap would be out of place, so they are held back; the missing text
is delivered as one delta when the message is complete.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from treadle.client._compat.lenient import Item
from treadle.client.events import AgentMessageDelta, Event, ItemCompleted, ItemStarted
from treadle.protocol.item import AgentMessageThreadItem, ThreadItem

HELD: Final = object()
"""Marks an event that is held back."""


class OpenText:
    """The delivered text of one turn's incomplete messages."""

    def __init__(self) -> None:
        self._delivered: dict[str, list[str]] = {}
        self._has_gap = False
        self._started_since: set[str] = set()

    def break_off(self) -> None:
        """Note a lost connection: incomplete messages, and those that start unseen, have a gap."""
        self._has_gap = True
        self._started_since.clear()

    def take(self, event: Event, done: Container[str]) -> object:
        """Return what precedes an event: nothing, the rest of its text, or `HELD`."""
        if isinstance(event, AgentMessageDelta):
            if self._has_gap and event.item_id not in self._started_since:
                return HELD
            self._delivered.setdefault(event.item_id, []).append(event.delta)
        elif isinstance(event, ItemStarted):
            self._started_since.add(event.item.id)
        elif isinstance(event, ItemCompleted) and event.item.id not in done:
            return self._rest(event)
        return None

    def _rest(self, event: ItemCompleted) -> Event | None:
        item = event.item
        delivered = "".join(self._delivered.pop(item.id, ()))
        if not self._has_gap or not isinstance(item, AgentMessageThreadItem):
            return None
        # Text that does not continue the delivered text is only in the item.
        if item.text == delivered or not item.text.startswith(delivered):
            return None
        return AgentMessageDelta(
            delta=item.text[len(delivered) :],
            item_id=item.id,
            thread_id=event.thread_id,
            turn_id=event.turn_id,
        )

    def missed(
        self, items: Sequence[ThreadItem], completed: Mapping[str, Item]
    ) -> Iterator[ThreadItem]:
        """Iterate over the messages of a finished turn whose completion was missed."""
        if not self._has_gap:
            return
        texts = [
            item.text for item in completed.values() if isinstance(item, AgentMessageThreadItem)
        ]
        for item in items:
            is_known = item.id in completed or getattr(item, "text", None) in texts
            if isinstance(item, AgentMessageThreadItem) and not is_known:
                yield self.with_streamed_id(item)

    def with_streamed_id(self, item: ThreadItem) -> ThreadItem:
        """Return a stored message under the id of its deltas, if it has delivered deltas."""
        if isinstance(item, AgentMessageThreadItem):
            for id_, deltas in self._delivered.items():
                if item.text.startswith("".join(deltas)):
                    return msgspec.structs.replace(item, id=id_)
        return item
