"""Converts the payloads of a stream to events, in steps short enough for the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from treadle.model.base import (
    ItemDone,
    ModelError,
    ModelEvent,
    ModelItem,
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

MAX_ITEMS: Final = 4_096
"""The maximum number of finished items in one response."""

MAX_ITEMS_SIZE: Final = 3 * MAX_HIDDEN
"""The maximum characters of all finished items together, including unknown fields."""

_PARTS: Final = ("content", "summary")
_INPUTS: Final = ("arguments", "input")


class TextMeter:
    """Counts the text of one response: that of its deltas, and that of its finished items."""

    def __init__(self, *, limit: int = MAX_TEXT) -> None:
        self._limit = limit
        self._streamed = 0
        self._finished = 0
        self._arguments = 0
        self._finished_arguments = 0
        self._sealed = 0
        self._items = 0
        self._items_size = 0

    def count(self, event: ModelEvent) -> None:
        """Count an event.

        Raises:
            ModelError: the response has too much text.
        """
        if isinstance(event, ModelTextDelta | ReasoningSummaryDelta | ReasoningTextDelta):
            self._streamed += len(event.delta)
        elif isinstance(event, ItemDone):
            self._count_item(event.item)
        elif isinstance(event, ToolInputDelta):
            self._arguments += len(event.delta)
        else:
            return
        require_hidden(max(self._arguments, self._finished_arguments, self._sealed))
        if max(self._streamed, self._finished) > self._limit:
            raise ModelError(
                f"the response has more than {self._limit} characters of text", phase="stream"
            )

    def _count_item(self, item: ModelItem) -> None:
        self._finished += sum(_text_length(item.get(name)) for name in _PARTS)
        self._finished_arguments += sum(_length(item.get(name)) for name in _INPUTS)
        self._sealed += _length(item.get("encrypted_content"))
        self._items += 1
        self._items_size += _total_length(item)
        if self._items > MAX_ITEMS:
            raise ModelError(f"the response has more than {MAX_ITEMS} items", phase="stream")
        if self._items_size > MAX_ITEMS_SIZE:
            raise ModelError(
                f"the items of the response have more than {MAX_ITEMS_SIZE} characters",
                phase="stream",
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
    return _length(parts) + sum(map(_length, texts))


def _length(value: JsonValue) -> int:
    return len(value) if isinstance(value, str) else 0


def _total_length(value: JsonValue) -> int:
    """Return the characters of all names and values; a value without text counts as one."""
    total = 0
    waiting = [value]
    while waiting:
        each = waiting.pop()
        total += _length(each) or 1
        if isinstance(each, dict):
            waiting += each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return total


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
