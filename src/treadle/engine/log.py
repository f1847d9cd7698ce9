"""Everything clients are told about one thread, numbered, in order.

What is told was first appended to the thread's journal. Deltas are the exception: they are
numbered too, but kept only in memory and only for a while, because the completed item repeats
them. A reader is a position in this log, so joining late, coming back and lagging are one case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from treadle.protocol import notifications as n
from treadle.protocol.item import ItemStartedNotification
from treadle.protocol.method import Notification
from treadle.store.journal import Event, Journal
from treadle.support.clock import NowMs

P = TypeVar("P", bound=msgspec.Struct)

MAX_RECENT: Final = 8192

DELTAS: Final = frozenset(
    method.method
    for method in (
        n.ITEM_AGENT_MESSAGE_DELTA,
        n.ITEM_PLAN_DELTA,
        n.ITEM_REASONING_SUMMARY_PART_ADDED,
        n.ITEM_REASONING_SUMMARY_TEXT_DELTA,
        n.ITEM_REASONING_TEXT_DELTA,
        n.ITEM_COMMAND_EXECUTION_OUTPUT_DELTA,
        n.ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION,
        n.ITEM_FILE_CHANGE_OUTPUT_DELTA,
        n.ITEM_FILE_CHANGE_PATCH_UPDATED,
        n.ITEM_MCP_TOOL_CALL_PROGRESS,
        n.RAW_RESPONSE_ITEM_COMPLETED,
        n.RAW_RESPONSE_COMPLETED,
    )
)
"""What is told but not stored: the completed item holds it all."""


class EventLog:
    """The numbered events of one thread, or of the server as a whole when there is no journal."""

    def __init__(
        self,
        journal: Journal | None,
        clock: NowMs,
        *,
        open_items: Callable[[], Sequence[ItemStartedNotification]] = tuple,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._open_items = open_items
        self._recent: list[Event] = []
        self.last_seq = journal.last_seq if journal is not None else 0
        self._watchers: set[Callable[[], None]] = set()
        self.on_event: Callable[[Event], None] | None = None

    def tell(self, method: Notification[P], params: P, *, sync: bool = False) -> Event:
        """Append one event; it is stored, if it is to be stored, before anybody sees it."""
        self.last_seq += 1
        event = Event(self.last_seq, self._clock(), method.method, params)
        if self._journal is not None and method.method not in DELTAS:
            self._journal.append((event,), sync=sync)
        self._recent.append(event)
        if len(self._recent) > 2 * MAX_RECENT:
            del self._recent[:MAX_RECENT]
        for wake in self._watchers:
            wake()
        if self.on_event is not None:
            self.on_event(event)
        return event

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call this whenever something was appended; the result ends it."""
        self._watchers.add(wake)
        return lambda: self._watchers.discard(wake)

    def after(self, seq: int) -> Sequence[Event]:
        """Everything that came later than a position.

        Where deltas are no longer kept, items that are still open are told again as they are now.
        """
        first = self._recent[0].seq if self._recent else self.last_seq + 1
        if seq + 1 >= first:
            return self._recent[max(0, seq + 1 - first) :]
        stored = self._journal.read(seq, first - 1) if self._journal is not None else ()
        now = self._clock()
        resumed = [
            Event(first - 1, now, n.ITEM_STARTED.method, item) for item in self._open_items()
        ]
        return [*stored, *resumed, *self._recent]
