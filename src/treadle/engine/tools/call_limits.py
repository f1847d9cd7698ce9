"""Limits the size of a tool call, before the call is stored or run."""

from __future__ import annotations

from typing import Final

from treadle.engine.tools.registry import read_call
from treadle.model.base import ItemDone, ModelEvent

MAX_CALL_CHARACTERS: Final = 1024 * 1024
"""The longest input of one call. It is stored several times and sent with every request."""

_EMPTY: Final = {"function_call": ("arguments", "{}"), "custom_tool_call": ("input", "")}


def limit_call(event: ModelEvent) -> tuple[ModelEvent, str | None]:
    """Remove the input of a call that is too large; return the output for the model."""
    call = read_call(event.item) if isinstance(event, ItemDone) else None
    if not isinstance(event, ItemDone) or call is None or len(call.input) <= MAX_CALL_CHARACTERS:
        return event, None
    name, empty = _EMPTY.get(event.item["type"], ("arguments", {}))
    refusal = (
        f"this call to {call.name} was not run: it has {len(call.input)} characters of {name}, "
        f"expected at most {MAX_CALL_CHARACTERS}; split the work into several calls"
    )
    return ItemDone({**event.item, name: empty}), refusal
