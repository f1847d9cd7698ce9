"""An in-memory journal for ephemeral threads; it ends with its process."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from treadle.store.journal import Entry, Event, StorageFailed


class MemoryJournal:
    """Stores the events of a thread while the thread is loaded; records are discarded."""

    path: str | None = None
    # Events are never forgotten here, so a log that forgets its own copy would save nothing.
    size = 0
    is_full = False

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.last_seq = 0
        self._events: list[Event] = []

    def append(self, entries: Sequence[Entry], *, may_fill: bool = False) -> None:  # noqa: ARG002
        """Store the events; discard the records."""
        events = [entry for entry in entries if isinstance(entry, Event)]
        if events:
            self._events += events
            self.last_seq = events[-1].seq

    def keep(self, entries: Sequence[Entry]) -> StorageFailed | None:
        """Append entries; memory never refuses them."""
        self.append(entries)
        return None

    def flush(self) -> None:
        """Do nothing: all entries are in memory."""

    def sync(self) -> asyncio.Future[None]:
        """Return a completed future: there is no disk to sync."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def read(self, after: int, until: int | None = None) -> Iterator[Event]:
        """Yield the events in the range that are still in memory."""
        start = bisect_right(self._events, after, key=lambda event: event.seq)
        for event in self._events[start:]:
            if until is not None and event.seq > until:
                return
            yield event

    def unread_bytes(self, after: int) -> int:  # noqa: ARG002  nothing is scanned
        """Return 0: nothing is read from disk."""
        return 0

    def close(self) -> None:
        """Do nothing: the events end with the object."""
