"""Notifications as bytes, encoded once for all clients that receive the same event."""

from __future__ import annotations

from typing import Final

from treadle.jsonrpc.envelope import encode_notification
from treadle.store.journal import Event

MAX_EVENTS: Final = 128
MAX_BYTES: Final = 8 * 1024 * 1024


class EncodedEvents:
    """The most recent events that several clients receive, in encoded form.

    Clients that are up to date read an event at nearly the same time, so a short memory is enough;
    for a slow client, an event is encoded again.
    """

    def __init__(self) -> None:
        # By identity: events have no hash. Each entry holds its event, so that no other can have
        # the same id.
        self._frames: dict[int, tuple[Event, bytes]] = {}
        self._bytes = 0

    def encode(self, event: Event, seq: int | None) -> bytes:
        """Return the notification of an event; `seq` is the number that its clients see."""
        entry = self._frames.get(id(event))
        if entry is not None:
            return entry[1]
        frame = encode_notification(event.method, event.params, event.at_ms, seq)
        self._frames[id(event)] = (event, frame)
        self._bytes += len(frame)
        while len(self._frames) > MAX_EVENTS or self._bytes > MAX_BYTES:
            self._bytes -= len(self._frames.pop(next(iter(self._frames)))[1])
        return frame
