"""The origin of a thread: a client, or another agent."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import AgentPath, Int32, OneOf, SnakeOneOf, SnakeValue, ThreadId


class ThreadSpawn(SnakeValue, frozen=True):
    """The thread was spawned by another thread's agent; `depth` counts the levels."""

    depth: Int32
    parent_thread_id: ThreadId
    agent_nickname: str | None = None
    agent_path: AgentPath | None = None
    agent_role: str | None = None


class SubAgentSourceDetail(SnakeOneOf, frozen=True):
    """A sub-agent with data: spawned by a thread, or of an unlisted kind."""

    thread_spawn: ThreadSpawn | None = None
    other: str | None = None


SubAgentSource = Literal["review", "compact", "memory_consolidation"] | SubAgentSourceDetail


class SessionSourceDetail(OneOf, frozen=True):
    """An origin with data: a named program, or a sub-agent."""

    custom: str | None = None
    sub_agent: SubAgentSource | None = None


SessionSource = Literal["cli", "vscode", "exec", "appServer", "unknown"] | SessionSourceDetail
"""The kind of client, or of agent, that started a thread."""

ThreadSource = str
"""A free-form label for the origin of a thread, for statistics."""

ThreadSourceKind = Literal[
    "cli",
    "vscode",
    "exec",
    "appServer",
    "subAgent",
    "subAgentReview",
    "subAgentCompact",
    "subAgentThreadSpawn",
    "subAgentOther",
    "unknown",
]
