"""A plan that the user approved, as a part of the model context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from treadle.engine.conversation.input import message
from treadle.engine.errors import InvalidInput

if TYPE_CHECKING:
    from treadle.engine.conversation.model_context import ModelContext

IMPLEMENT_PLAN: Final = "Implement the plan."
MAX_PLAN_CHARACTERS: Final = 1024 * 1024


def add_approved_plan(context: ModelContext, markdown: str) -> None:
    """Add a plan that the user approved, perhaps in another thread, to the model context.

    Raises:
        InvalidInput: the plan is blank or too long.
        StorageFailed: the plan cannot be stored.
    """
    if not markdown.strip():
        raise InvalidInput("markdown", "the approved plan is empty")
    if len(markdown) > MAX_PLAN_CHARACTERS:
        limit = f"at most {MAX_PLAN_CHARACTERS} characters, not {len(markdown)}"
        raise InvalidInput("markdown", f"markdown must have {limit}")
    text = f"The user approved this plan:\n<approved_plan>\n{markdown}\n</approved_plan>"
    note = message("developer", text)
    context.check_room([note], "markdown")
    context.add_note(note, required=True)
