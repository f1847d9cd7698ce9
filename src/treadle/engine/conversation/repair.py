"""Asks for a corrected message if the last one of a turn violates its output schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.engine.conversation.input import message
from treadle.engine.conversation.sources import written_by
from treadle.model.structured.schema import validate

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn


async def ask_for_repair(thread: LoadedThread, turn: ActiveTurn) -> bool:
    """Add a request for a corrected message to the history if one is needed."""
    schema, last = turn.output_schema, turn.last_message
    if schema is None or last is None:
        return False
    # In a worker: client and model decide how much work this is, up to a limit.
    errors = await thread.services.text_workers.run(validate, last.text, schema)
    if not errors:
        return False
    prompt = (
        "The last message does not match the required JSON Schema. Send only a corrected "
        "version of it:"
    )
    asked = message("user", "\n".join([prompt, *errors]))
    # The errors quote what the model wrote.
    thread.context.remember(turn, written_by("server", asked))
    return True
