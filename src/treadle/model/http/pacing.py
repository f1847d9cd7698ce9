"""From the payloads of a stream to events, in steps that are short enough for the event loop."""

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

# One chunk holds thousands of events, and reading from a full buffer does not suspend: after this
# many events, the other tasks of the event loop get a turn.
STEPS_PER_TURN: Final = 64
MAX_DELTA: Final = 64 * 1024
"""The longest text of one delta, and the longest payload that is not followed by such a turn."""

MAX_TEXT: Final = 1024 * 1024
"""The most characters of text in one answer: twice what the largest models can produce.

All of it is stored, sent to every client, and repeated in later requests.
"""

MAX_HIDDEN: Final = 16 * MAX_TEXT
"""The most characters of arguments in one answer, and of encrypted reasoning."""

_PARTS: Final = ("content", "summary")


class TextMeter:
    """Counts the text of one answer: that of its deltas, and that of its finished items."""

    def __init__(self, *, limit: int = MAX_TEXT) -> None:
        self._limit = limit
        self._streamed = 0
        self._finished = 0
        self._arguments = 0
        self._sealed = 0

    def count(self, event: ModelEvent) -> None:
        """Take an event into account.

        Raises:
            ModelError: the answer has too much text.
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
                f"the answer has more than {self._limit} characters of text", phase="stream"
            )


def require_hidden(characters: int) -> None:
    """Check how much of an answer is there that is not text.

    Raises:
        ModelError: it is too much to be kept.
    """
    if characters > MAX_HIDDEN:
        raise ModelError(
            f"the answer has more than {MAX_HIDDEN} characters of arguments or encrypted reasoning",
            phase="stream",
        )


def _text_length(parts: JsonValue) -> int:
    # An item is what the provider sent: its parts may have any shape.
    found = parts if isinstance(parts, list) else []
    texts = [part.get("text") for part in found if isinstance(part, dict)]
    return sum(len(text) for text in texts if isinstance(text, str))


class Pause:
    """Stands between the parts of a large payload: the other tasks get a turn."""


_PAUSE: Final = Pause()


class StreamReading(Protocol):
    """How one API's stream becomes events."""

    def begin(self, headers: Mapping[str, str], /) -> Sequence[ModelEvent]:
        """The provider answers; the names of the headers are in lower case."""

    def feed(self, payload: bytes) -> Sequence[ModelEvent]:
        """Take the data of one event of the stream; `Completed` ends it."""

    def finish(self) -> Sequence[ModelEvent]:
        """The stream has ended without `Completed`: give it now, or raise."""


def read_payloads(
    reading: StreamReading, payloads: Sequence[bytes]
) -> Iterator[ModelEvent | Pause | None]:
    """Read payloads one by one; None stands for a payload that has no event."""
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
