"""A reader of an event log: follows it from a position, from memory or from the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from treadle.store.journal import Event

if TYPE_CHECKING:
    from treadle.engine.events.log import EventLog

# Reading a long journal must not block other threads.
BATCH: Final = 256
FAR_BYTES: Final = 256 * 1024
"""A longer part of a journal is read in a worker thread."""


class EventsExpired(Exception):
    """The next events of a reader are no longer available."""


class LogReader:
    """Reads a log from a position on, each event once and in order.

    Where deltas are no longer in memory, it reads the stored events up to the present, and then
    the current open items: their texts are complete, and continue with the next delta.
    """

    def __init__(self, log: EventLog, after: int | None) -> None:
        self._log = log
        self.position = log.last_seq if after is None else after
        self._missed_deltas = after is None
        self._stored: Iterator[Event] = iter(())
        self._batch: list[Event] = []
        # Whether a long part of the journal is being read, a batch at a time.
        self._is_prefetching = False
        # The position up to which the journal was read.
        self._checked = -1
        # A reconnected client received these requests on an earlier connection.
        self._old_requests = (
            [] if after is None else [each for each in log.open_requests() if each.seq <= after]
        )

    def read(self) -> Sequence[Event]:
        """Return the next events or some of them; empty if there are none yet.

        Raises:
            EventsExpired: the next events are no longer available.
        """
        if self._old_requests:
            requests, self._old_requests = self._old_requests, []
            return requests
        if not self._missed_deltas:
            recent = self._log.recent(self.position)
            if recent is not None:
                self.position = max(self.position, self._log.visible_seq)
                return recent
            self._missed_deltas = True
        return self._read_stored() or self._rejoin()

    @property
    def is_far_behind(self) -> bool:
        """Whether the next events must be read from a long part of the journal."""
        if self._is_prefetching:
            return True
        if self._batch or self._old_requests or self.position >= self._log.visible_seq:
            return False
        if not self._missed_deltas and self._log.recent(self.position) is not None:
            return False
        return self._log.unread_bytes(max(self.position, self._checked)) > FAR_BYTES

    def prefetch(self) -> None:
        """Read the next batch of stored events; in any thread, but not during `read`.

        Raises:
            EventsExpired: the journal is closed.
        """
        self._batch = self._next_stored()
        self._is_prefetching = len(self._batch) == BATCH

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
            # The journal is closed: this server no longer writes the thread.
            raise EventsExpired from error
        return batch

    def _rejoin(self) -> Sequence[Event]:
        if self.position < self._log.last_seq != self._log.visible_seq:
            return ()  # the open items include events that may not be published yet
        self._missed_deltas = False
        self.position = self._log.last_seq
        return self._log.open_state()
