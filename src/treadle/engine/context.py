"""What the model is told of its surroundings, and what is stored of a turn's settings."""

from __future__ import annotations

from datetime import datetime

from treadle.engine import instructions
from treadle.engine.docs import ProjectDocs
from treadle.engine.input import message
from treadle.engine.settings import Settings
from treadle.engine.turn import Turn
from treadle.model.base import ModelItem
from treadle.store.records import TurnContext


def describe(settings: Settings, docs: ProjectDocs, now_ms: int) -> list[ModelItem]:
    """Two messages: what it may do, and where, when and by whose rules it works."""
    mode = settings.collaboration_mode
    own = (settings.developer_instructions, mode and mode.settings.developer_instructions)
    developer = [
        instructions.permissions(settings.sandbox, settings.approval_policy),
        *(text for text in own if text),
    ]
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    date, zone = f"{now:%Y-%m-%d}", now.tzname() or "UTC"
    user = [instructions.project_docs(settings.cwd, docs.text)] if docs.text else []
    user.append(instructions.environment(settings.cwd, "bash", date, zone))
    return [message("developer", *developer), message("user", *user)]


def turn_context(settings: Settings, turn: Turn) -> TurnContext:
    """What a turn runs under, as the store keeps it."""
    return TurnContext(
        turn_id=turn.id,
        cwd=settings.cwd,
        model=settings.model,
        provider=settings.model_provider,
        approval_policy=settings.approval_policy,
        sandbox_policy=settings.sandbox,
        effort=settings.effort,
        summary=settings.summary,
        approvals_reviewer=settings.approvals_reviewer,
        collaboration_mode=settings.collaboration_mode,
        personality=settings.personality,
        service_tier=settings.service_tier,
        base_instructions=settings.base_instructions,
        developer_instructions=settings.developer_instructions,
        disabled_plugin_ids=list(settings.disabled_plugin_ids),
        output_schema=turn.output_schema,
    )
