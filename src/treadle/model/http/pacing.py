"""Converts the payloads of a stream to events, in steps short enough for the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from treadle.model.base import (
    ModelEvent,
    ModelTextDelta,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
)

# One chunk contains thousands of events, and reading from a full buffer does not suspend: after
# this many events, other tasks of the event loop run.
STEPS_PER_SLICE: Final = 64
MAX_DELTA: Final = 64 * 1024
"""The longest text of one delta; a larger payload is decoded with pauses for other tasks."""


class Pause:
    """Marks a point in a large payload at which other tasks may run."""


_PAUSE: Final = Pause()


class StreamReading(Protocol):
    """Converts the stream of one API to events."""

    def begin(self, headers: Mapping[str, str], /) -> Sequence[ModelEvent]:
        """Handle the response headers; their names are in lower case."""

    def feed(self, payload: bytes) -> Sequence[ModelEvent]:
        """Handle the data of one stream event; `Completed` ends the stream."""

    def finish(self) -> Sequence[ModelEvent]:
        """Handle a stream that ended without `Completed`: return it now, or raise."""


def read_payloads(
    reading: StreamReading, payloads: Sequence[bytes]
) -> Iterator[ModelEvent | Pause | None]:
    """Decode payloads one by one; None means a payload without an event."""
    for payload in payloads:
        if len(payload) <= MAX_DELTA:
            yield from reading.feed(payload) or (None,)
            continue
        for event in reading.feed(payload):
            for part in _parts(event):
                yield _PAUSE
                yield part
        yield _PAUSE


def _parts(event: ModelEvent) -> Iterator[ModelEvent]:
    """Split the text of a long delta: it is published and sent to every client."""
    if not isinstance(event, ModelTextDelta | ReasoningSummaryDelta | ReasoningTextDelta):
        yield event
        return
    text = event.delta
    for start in range(0, len(text), MAX_DELTA) or (0,):
        yield msgspec.structs.replace(event, delta=text[start : start + MAX_DELTA])
