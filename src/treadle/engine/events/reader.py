"""A position in a log: what comes after it, from memory or from the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from treadle.store.journal import Event

if TYPE_CHECKING:
    from treadle.engine.events.log import EventLog

# Reading a long journal must not keep other threads from running.
BATCH: Final = 256
FAR_BYTES: Final = 256 * 1024
"""More of a journal than this is read beside the event loop."""


class EventsExpired(Exception):
    """What a reader has not read yet is kept nowhere any more."""


class LogReader:
    """Reads a log from a position on, each event once and in order.

    Where deltas are no longer kept, it reads only what is stored, up to the present, and then
    the open items as they stand: so their texts are whole, and go on with the next delta.
    """

    def __init__(self, log: EventLog, after: int | None) -> None:
        self._log = log
        self.position = log.last_seq if after is None else after
        self._missed_deltas = after is None
        self._stored: Iterator[Event] = iter(())
        self._batch: list[Event] = []
        # Whether a long part of the journal is being read, a batch at a time.
        self._is_amid = False
        # Up to where the journal was read: whatever is stored before it was given.
        self._checked = -1
        # A client that comes back was asked these on a connection that is gone.
        self._old_asks = [] if after is None else [a for a in log.open_requests() if a.seq <= after]

    def read(self) -> Sequence[Event]:
        """What comes next, or a part of it; nothing if there is nothing yet.

        Raises:
            LeftBehind: what comes next is kept nowhere.
        """
        if self._old_asks:
            asks, self._old_asks = self._old_asks, []
            return asks
        if not self._missed_deltas:
            recent = self._log.recent(self.position)
            if recent is not None:
                self.position = max(self.position, self._log.visible_seq)
                return recent
            self._missed_deltas = True
        return self._read_stored() or self._rejoin()

    @property
    def is_far_behind(self) -> bool:
        """Whether what comes next has to be read from a part of the journal that is long."""
        if self._is_amid:
            return True
        if self._batch or self._old_asks or self.position >= self._log.visible_seq:
            return False
        if not self._missed_deltas and self._log.recent(self.position) is not None:
            return False
        return self._log.unread_bytes(max(self.position, self._checked)) > FAR_BYTES

    def prefetch(self) -> None:
        """Read ahead what is stored, in any thread, while nobody calls `read`.

        Raises:
            LeftBehind: the journal is closed.
        """
        self._batch = self._next_stored()
        self._is_amid = len(self._batch) == BATCH

    def _read_stored(self) -> Sequence[Event]:
        batch, self._batch = self._batch or self._next_stored(), []
        if batch:
            self.position = batch[-1].seq
        return batch

    def _next_stored(self) -> list[Event]:
        try:
            batch = list(islice(self._stored, BATCH))
            upto = self._log.visible_seq
            if not batch and self._checked < upto:
                self._stored = self._log.stored(max(self.position, self._checked))
                self._checked = upto
                batch = list(islice(self._stored, BATCH))
        except ValueError as error:
            # The journal is closed: nobody writes this thread here any more.
            raise EventsExpired from error
        return batch

    def _rejoin(self) -> Sequence[Event]:
        if self.position < self._log.last_seq != self._log.visible_seq:
            return ()  # what is under way is further than what may be published
        self._missed_deltas = False
        self.position = self._log.last_seq
        return self._log.under_way()
