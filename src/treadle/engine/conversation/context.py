"""What the model is told of its surroundings, and what is stored of a turn's settings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from treadle.engine.conversation import instructions
from treadle.engine.conversation.input import message
from treadle.engine.project.docs import ProjectDocs
from treadle.engine.settings import RunSettings
from treadle.engine.turn import ActiveTurn
from treadle.model.base import ModelItem
from treadle.protocol.environment import ThreadEnvironment
from treadle.protocol.input import AdditionalContextEntry
from treadle.store.records import TurnContext


class LastContext(NamedTuple):
    """What the model was told last; when it changes, the model is told anew."""

    model: str
    surroundings: tuple[object, ...]


def told_by(context: TurnContext) -> LastContext:
    """What a turn with this context tells the model."""
    mode = context.collaboration_mode
    in_mode = (mode.mode, mode.settings.developer_instructions) if mode else ("default", None)
    surroundings = (context.cwd, context.sandbox_policy, context.approval_policy, in_mode)
    return LastContext(context.model, surroundings)


def describe(
    settings: RunSettings, docs: ProjectDocs, skills: str | None, now_ms: int
) -> list[ModelItem]:
    """Two messages: what it may do, and where, when and by whose rules it works."""
    own = (settings.developer_instructions, _about_mode(settings), skills)
    developer = [
        instructions.permissions(settings.sandbox, settings.approval_policy, settings.network),
        *(text for text in own if text),
    ]
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    date, zone = f"{now:%Y-%m-%d}", now.tzname() or "UTC"
    user = [instructions.project_docs(settings.cwd, docs.text)] if docs.text else []
    user.append(instructions.environment(settings.cwd, "bash", date, zone))
    return [message("developer", *developer), message("user", *user)]


def _about_mode(settings: RunSettings) -> str | None:
    """What the model is told of the mode; nothing while nobody has ever spoken of one."""
    mode = settings.collaboration_mode
    if mode is None:
        return None
    builtin = instructions.PLAN_MODE if mode.mode == "plan" else instructions.DEFAULT_MODE
    return mode.settings.developer_instructions or builtin


def added(entries: Mapping[str, AdditionalContextEntry]) -> list[ModelItem]:
    """What a client adds to a message; what it does not vouch for comes in the user's name."""
    items: list[ModelItem] = []
    for name, entry in entries.items():
        if entry.kind == "application":
            items.append(message("developer", f"<{name}>{entry.value}</{name}>"))
        else:
            tag = f"{instructions.EXTERNAL}{name}"
            value = entry.value.replace(f"</{tag}>", "")
            items.append(message("user", f"<{tag}>{value}</{tag}>"))
    return items


def turn_context(settings: RunSettings, turn: ActiveTurn | None = None) -> TurnContext:
    """What a turn runs under, or the next one would, as the store keeps it."""
    return TurnContext(
        turn_id="" if turn is None else turn.id,
        cwd=settings.cwd,
        model=settings.model,
        provider=settings.model_provider,
        approval_policy=settings.approval_policy,
        sandbox_policy=settings.sandbox,
        permissions=settings.permission_profile.id if settings.permission_profile else None,
        effort=settings.effort,
        summary=settings.summary,
        approvals_reviewer=settings.approvals_reviewer,
        collaboration_mode=settings.mode() if settings.collaboration_mode else None,
        personality=settings.personality,
        service_tier=settings.service_tier,
        base_instructions=settings.base_instructions,
        developer_instructions=settings.developer_instructions,
        disabled_plugin_ids=list(settings.disabled_plugin_ids),
        output_schema=None if turn is None else turn.output_schema,
        budget=None if turn is None else turn.budget,
    )


def environments(settings: RunSettings) -> list[ThreadEnvironment]:
    """Where a thread works: here, and nowhere else."""
    return [
        ThreadEnvironment(
            cwd=settings.cwd, environment_id="local", runtime_workspace_roots=[settings.cwd]
        )
    ]
