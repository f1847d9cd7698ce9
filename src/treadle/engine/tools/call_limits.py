"""How large a call of the model may be: checked before the call is stored or carried out."""

from __future__ import annotations

from typing import Final

from treadle.engine.tools.registry import read_call
from treadle.model.base import ItemDone, ModelEvent

MAX_CALL_CHARACTERS: Final = 1024 * 1024
"""The longest input of one call. Every request repeats it, and several lines of a file hold it."""

_EMPTY: Final = {"function_call": ("arguments", "{}"), "custom_tool_call": ("input", "")}


def limit_call(event: ModelEvent) -> tuple[ModelEvent, str | None]:
    """Remove the input of a call that is too large; returns what the model gets as its output."""
    call = read_call(event.item) if isinstance(event, ItemDone) else None
    if not isinstance(event, ItemDone) or call is None or len(call.input) <= MAX_CALL_CHARACTERS:
        return event, None
    name, empty = _EMPTY.get(event.item["type"], ("arguments", {}))
    refusal = (
        f"this call to {call.name} was not carried out: it has {len(call.input)} characters of "
        f"{name}, expected at most {MAX_CALL_CHARACTERS}; split the work into several calls"
    )
    return ItemDone({**event.item, name: empty}), refusal
