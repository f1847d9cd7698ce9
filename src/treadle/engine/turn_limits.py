"""Limits what a service can make of one turn: empty responses, and an endless model context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from treadle.engine.conversation.history import size_of
from treadle.engine.conversation.model_context import MAX_HISTORY_BYTES
from treadle.engine.tools.registry import ToolCall, output_item
from treadle.model.base import ModelError, ModelItem

if TYPE_CHECKING:
    from treadle.engine.conversation.model_context import ModelContext
    from treadle.engine.turn import ActiveTurn

MAX_EMPTY_RESPONSES: Final = 16
"""How many responses in a row may ask for another request without finishing an item."""

MAX_CONTEXT_BYTES: Final = 2 * MAX_HISTORY_BYTES
"""The largest model context of a request; a thread's own is compacted before it gets there."""

FULL: Final = (
    "the thread has as much content as can be stored of it: start another one, or fork it before "
    "one of its last turns"
)

LEFT_OUT: Final = f"the output was left out: the model context would exceed {MAX_CONTEXT_BYTES} B"


class TurnLimits:
    """Counts the empty responses of a turn, and the outputs that wait for the end of a response."""

    def __init__(self, context: ModelContext, turn: ActiveTurn) -> None:
        self._context = context
        self._turn = turn
        self._empty = 0
        self._held = 0

    def check_context(self) -> None:
        """Check the size of the model context and of the thread before a request.

        Raises:
            ModelError: it is too large, or what the model answers could not be stored.
        """
        if self._turn.log.is_full:
            raise ModelError(FULL)
        size = self._context.history_of(self._turn).size
        if size > MAX_CONTEXT_BYTES:
            words = f"the model context has {size} bytes, expected at most {MAX_CONTEXT_BYTES}"
            raise ModelError(words, info="contextWindowExceeded")

    def count_response(self, *, has_item: bool, wants_more: bool) -> None:
        """Count a response that asks for another request.

        Raises:
            ModelError: too many of them in a row have no content.
        """
        self._empty = self._empty + 1 if wants_more and not has_item else 0
        if self._empty > MAX_EMPTY_RESPONSES:
            words = f"the model asked to continue after {self._empty} responses without an item"
            raise ModelError(words, phase="stream")

    @contextmanager
    def holding(self, call: ToolCall, output: ModelItem) -> Iterator[ModelItem]:
        """Count an output until it is part of the history; without its content if it is full."""
        size = size_of([output])
        known = self._held + self._context.history_of(self._turn).size
        if known + size > MAX_CONTEXT_BYTES:
            output = output_item(call, LEFT_OUT)
            size = size_of([output])
        self._held += size
        try:
            yield output
        finally:
            self._held -= size
