"""Limits on the size of one response of a model."""

from __future__ import annotations

from typing import Final

from treadle.model.base import (
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelItem,
    ModelTextDelta,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    ToolInputDelta,
)
from treadle.protocol.base import JsonValue
from treadle.support.text.json_text import encode_json

MAX_TEXT: Final = 1024 * 1024
"""The maximum characters of text in one response: twice the output of the largest models.

All of it is stored, sent to every client, and repeated in later requests.
"""

MAX_HIDDEN: Final = 16 * MAX_TEXT
"""The maximum characters of arguments, and of encrypted reasoning, in one response."""

MAX_ITEMS: Final = 4_096
"""The maximum number of finished items in one response."""

MAX_ITEMS_SIZE: Final = 3 * MAX_HIDDEN
"""The maximum size of all finished items together as JSON, including unknown fields."""

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
        # Starts are counted apart: most servers repeat all of an item at its end.
        self._started = 0
        self._started_size = 0

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
        elif isinstance(event, ItemStarted):
            self._count_start(event.item)
        else:
            return
        check_hidden_size(max(self._arguments, self._finished_arguments, self._sealed))
        if max(self._streamed, self._finished, self._started) > self._limit:
            raise ModelError(
                f"the response has more than {self._limit} characters of text", phase="stream"
            )

    def _count_item(self, item: ModelItem) -> None:
        self._finished += sum(_text_length(item.get(name)) for name in _PARTS)
        self._finished_arguments += sum(_length(item.get(name)) for name in _INPUTS)
        self._sealed += _length(item.get("encrypted_content"))
        self._items += 1
        # The encoded length, unlike a walk over the values, costs little for any item.
        self._items_size += len(encode_json(item))
        if self._items > MAX_ITEMS:
            raise ModelError(f"the response has more than {MAX_ITEMS} items", phase="stream")
        _check_items_size(self._items_size)

    def _count_start(self, item: ModelItem) -> None:
        self._started += sum(_text_length(item.get(name)) for name in _PARTS)
        self._started_size += len(encode_json(item))
        _check_items_size(self._started_size)


def _check_items_size(size: int) -> None:
    if size > MAX_ITEMS_SIZE:
        raise ModelError(
            f"the items of the response have more than {MAX_ITEMS_SIZE} bytes", phase="stream"
        )


def check_hidden_size(characters: int) -> None:
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
