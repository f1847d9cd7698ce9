"""A journal in memory, for ephemeral threads: it is gone with its process."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from treadle.store.journal import Entry, Event, StorageFailed


class MemoryJournal:
    """Keeps the events of a thread for as long as somebody holds it; records need no keeping."""

    path: str | None = None

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.last_seq = 0
        self._events: list[Event] = []

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep the events."""
        events = [entry for entry in entries if isinstance(entry, Event)]
        if events:
            self._events += events
            self.last_seq = events[-1].seq

    def keep(self, entries: Sequence[Entry]) -> StorageFailed | None:
        """Append entries: memory does not refuse them."""
        self.append(entries)
        return None

    def sync(self) -> asyncio.Future[None]:
        """Return a future that is done: there is no disk to sync with."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def read(self, after: int, until: int | None = None) -> Iterator[Event]:
        """Give the events in between, as far as they are kept now."""
        start = bisect_right(self._events, after, key=lambda event: event.seq)
        for event in self._events[start:]:
            if until is not None and event.seq > until:
                return
            yield event

    def unread_bytes(self, after: int) -> int:  # noqa: ARG002  nothing is looked through
        """Say that events are at hand."""
        return 0

    def close(self) -> None:
        """Do nothing: what was kept goes with the object."""
