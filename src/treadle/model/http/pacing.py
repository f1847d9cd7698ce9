"""Converts the payloads of a stream to events, in steps short enough for the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from treadle.model.base import (
    ItemDone,
    ModelError,
    ModelEvent,
    ModelTextDelta,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    ToolInputDelta,
)
from treadle.protocol.base import JsonValue

# One chunk contains thousands of events, and reading from a full buffer does not suspend: after
# this many events, other tasks of the event loop run.
STEPS_PER_TURN: Final = 64
MAX_DELTA: Final = 64 * 1024
"""The longest text of one delta, and the longest payload without such a pause."""

MAX_TEXT: Final = 1024 * 1024
"""The maximum characters of text in one response: twice the output of the largest models.

All of it is stored, sent to every client, and repeated in later requests.
"""

MAX_HIDDEN: Final = 16 * MAX_TEXT
"""The maximum characters of arguments, and of encrypted reasoning, in one response."""

_PARTS: Final = ("content", "summary")


class TextMeter:
    """Counts the text of one response: that of its deltas, and that of its finished items."""

    def __init__(self, *, limit: int = MAX_TEXT) -> None:
        self._limit = limit
        self._streamed = 0
        self._finished = 0
        self._arguments = 0
        self._sealed = 0

    def count(self, event: ModelEvent) -> None:
        """Count an event.

        Raises:
            ModelError: the response has too much text.
        """
        if isinstance(event, ModelTextDelta | ReasoningSummaryDelta | ReasoningTextDelta):
            self._streamed += len(event.delta)
        elif isinstance(event, ItemDone):
            self._finished += sum(_text_length(event.item.get(name)) for name in _PARTS)
            seal = event.item.get("encrypted_content")
            self._sealed += len(seal) if isinstance(seal, str) else 0
        elif isinstance(event, ToolInputDelta):
            self._arguments += len(event.delta)
        else:
            return
        require_hidden(max(self._arguments, self._sealed))
        if max(self._streamed, self._finished) > self._limit:
            raise ModelError(
                f"the response has more than {self._limit} characters of text", phase="stream"
            )


def require_hidden(characters: int) -> None:
    """Check the size of the parts of a response that are not text.

    Raises:
        ModelError: they are too large.
    """
    if characters > MAX_HIDDEN:
        raise ModelError(
            f"the response has more than {MAX_HIDDEN} characters of arguments "
            "or encrypted reasoning",
            phase="stream",
        )


def _text_length(parts: JsonValue) -> int:
    # An item is the provider's data: its parts may have any shape.
    found = parts if isinstance(parts, list) else []
    texts = [part.get("text") for part in found if isinstance(part, dict)]
    return sum(len(text) for text in texts if isinstance(text, str))


class Pause:
    """Pause between the parts of a large payload, so that other tasks run."""


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
