"""The settings, metadata and history that a sub-agent starts with."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from treadle.engine.agents.roles import ROLES
from treadle.engine.conversation.items import text_of
from treadle.engine.settings import RunSettings
from treadle.model.base import ModelItem
from treadle.protocol.source import SessionSourceDetail, SubAgentSourceDetail, ThreadSpawn
from treadle.store.stored_thread import ThreadMeta


def depth_of(meta: ThreadMeta) -> int:
    """Return the nesting depth of a sub-agent; 0 for a thread that a client started."""
    source = meta.source
    about = source.sub_agent if isinstance(source, SessionSourceDetail) else None
    spawn = about.thread_spawn if isinstance(about, SubAgentSourceDetail) else None
    return spawn.depth if spawn is not None else 0


def settings_for(
    inherited: RunSettings, role: str | None, model: str | None, effort: str | None
) -> RunSettings:
    """Return a child's settings: its parent's, with the instructions of its role."""
    texts = (inherited.developer_instructions, ROLES[role].instructions if role else None)
    return replace(
        inherited,
        model=model or inherited.model,
        effort=effort or inherited.effort,
        developer_instructions="\n\n".join(text for text in texts if text) or None,
        sandbox=inherited.enforced_sandbox,
        follows_plan=inherited.changes_nothing,
        # Plan mode needs the user, and client tools belong to the parent.
        collaboration_mode=None,
        dynamic_tools=(),
        has_own_permissions=False,
        has_own_folder=False,
    )


def describe_child(meta: ThreadMeta, parent: ThreadMeta, name: str, role: str | None) -> ThreadMeta:
    """Return a child's metadata: its parent, depth, nickname and role."""
    depth = depth_of(parent) + 1
    spawn = ThreadSpawn(depth, parent.id, agent_nickname=name, agent_role=role)
    return msgspec.structs.replace(
        meta,
        source=SessionSourceDetail(sub_agent=SubAgentSourceDetail(thread_spawn=spawn)),
        parent_thread_id=parent.id,
        agent_nickname=name,
        agent_role=role,
        originator=parent.originator,
        cli_version=parent.cli_version,
        git_info=parent.git_info,
    )


def messages_of(history: Sequence[ModelItem]) -> list[ModelItem]:
    """Return the messages of a history, without calls: the spawning call has no output yet."""
    return [
        {key: value for key, value in item.items() if key != "id"}
        for item in history
        if item.get("type") == "message" and text_of(item)
    ]
