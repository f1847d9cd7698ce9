"""Builds the request that a turn sends to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.engine.conversation.instructions import BASE_INSTRUCTIONS
from treadle.engine.conversation.personality import with_personality
from treadle.engine.conversation.sources import without_sources
from treadle.model.base import ModelItem, ModelRequest
from treadle.model.catalog import traits_of

if TYPE_CHECKING:
    from treadle.engine.state import ThreadState
    from treadle.engine.tools.registry import ToolRegistry
    from treadle.engine.turn import ActiveTurn


def request_of(
    thread: ThreadState, turn: ActiveTurn, history: Sequence[ModelItem], tools: ToolRegistry
) -> ModelRequest:
    """Build the next request from the turn's settings, its history, and the model's traits."""
    settings, side = thread.settings_of(turn), turn.side
    traits = traits_of(settings.model)
    base = settings.base_instructions or with_personality(BASE_INSTRUCTIONS, settings)
    return ModelRequest(
        model=settings.model,
        instructions=base if side is None else side.instructions,
        input=tuple(without_sources(history)),
        tools=tools.specs(),
        parallel_tool_calls=traits.supports_parallel_tool_calls,
        effort=settings.effort or traits.default_effort,
        summary=settings.summary or ("auto" if traits.supports_reasoning else None),
        verbosity=settings.verbosity if traits.supports_verbosity else None,
        output_schema=turn.output_schema,
        service_tier=settings.requested_tier,
        thread_id=thread.id,
        turn_id=turn.id,
        originator=thread.meta.originator or "treadle",
        user_agent=settings.user_agent,
        subagent=side.name if side else thread.subagent,
    )
