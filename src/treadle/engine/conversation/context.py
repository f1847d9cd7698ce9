"""Describes a thread's settings and environment to the model, and records them for a turn."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from treadle.engine.conversation import instructions
from treadle.engine.conversation.input import message
from treadle.engine.conversation.personality import style_of
from treadle.engine.project.docs import ProjectDocs
from treadle.engine.settings import RunSettings
from treadle.engine.turn import ActiveTurn
from treadle.model.base import ModelItem
from treadle.protocol.base import JsonValue
from treadle.protocol.environment import ThreadEnvironment
from treadle.protocol.input import AdditionalContextEntry
from treadle.protocol.model import Personality
from treadle.protocol.policy import ExternalSandboxSandboxPolicy
from treadle.store.records import TurnContext


class LastContext(NamedTuple):
    """The context that the model saw last; a change is sent to the model."""

    model: str
    environment: tuple[object, ...]
    style: Personality


def shown_context(context: TurnContext, settings: RunSettings) -> LastContext:
    """Return the part of a turn's context that the model sees, under these settings."""
    mode = context.collaboration_mode
    shown_mode = (mode.mode, mode.settings.developer_instructions) if mode else ("default", None)
    environment = (context.cwd, context.sandbox_policy, context.approval_policy, shown_mode)
    then = replace(settings, model=context.model, personality=context.personality)
    return LastContext(context.model, environment, style_of(then))


def describe(
    settings: RunSettings, docs: ProjectDocs, skills: str | None, now_ms: int
) -> list[ModelItem]:
    """Return a developer message (permissions, mode, skills) and a user message (environment)."""
    optional = (settings.developer_instructions, _mode_instructions(settings), skills)
    developer = [
        instructions.permissions(
            settings.enforced_sandbox, settings.approval_policy, settings.network
        ),
        *(text for text in optional if text),
    ]
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    date, zone = f"{now:%Y-%m-%d}", now.tzname() or "UTC"
    user = [instructions.project_docs(settings.cwd, docs.text)] if docs.text else []
    policy = settings.sandbox
    network = policy.network_access if isinstance(policy, ExternalSandboxSandboxPolicy) else None
    user.append(instructions.environment(settings.cwd, "bash", date, zone, network))
    return [message("developer", *developer), message("user", *user)]


def _mode_instructions(settings: RunSettings) -> str | None:
    """Return the instructions of the collaboration mode, if the client has set one."""
    mode = settings.collaboration_mode
    if mode is None or not settings.is_enabled("collaboration_modes"):
        return None
    builtin = instructions.PLAN_MODE if mode.mode == "plan" else instructions.DEFAULT_MODE
    return mode.settings.developer_instructions or builtin


def to_context_items(entries: Mapping[str, AdditionalContextEntry]) -> list[ModelItem]:
    """Return a client's additional context; untrusted entries have the user's role."""
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
    """Return the record of a turn's settings, or of the next turn's if `turn` is `None`."""
    return TurnContext(
        turn_id="" if turn is None else turn.id,
        cwd=settings.cwd,
        model=settings.model,
        provider=settings.model_provider,
        approval_policy=settings.approval_policy,
        sandbox_policy=settings.sandbox,
        permissions=settings.permission_profile.id if settings.permission_profile else None,
        network=_network_of(settings),
        has_own_permissions=settings.has_own_permissions,
        has_own_folder=settings.has_own_folder,
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


def _network_of(settings: RunSettings) -> JsonValue | UnsetType:
    if settings.network is not None:
        return msgspec.to_builtins(settings.network)
    return UNSET if settings.permission_profile is None else None


def environments(settings: RunSettings) -> list[ThreadEnvironment]:
    """Return the environments of a thread: only the local one."""
    return [
        ThreadEnvironment(
            cwd=settings.cwd, environment_id="local", runtime_workspace_roots=[settings.cwd]
        )
    ]
