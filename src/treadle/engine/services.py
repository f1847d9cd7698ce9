"""The services that a thread needs from the server, and its state when it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from treadle.engine.accounting.budget import Meter
from treadle.engine.accounting.usage import TokenLedger
from treadle.engine.patch.resources import PatchResources
from treadle.engine.settings import RunSettings
from treadle.model.base import Model, ModelItem
from treadle.model.retry import RetryPolicy
from treadle.protocol.base import JsonValue
from treadle.protocol.extension import Budget
from treadle.protocol.goal import ThreadGoal
from treadle.store.records import ClientMessage, RequestOpened, TurnContext
from treadle.store.stored_thread import ThreadMeta
from treadle.support.clock import NowMs
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.support.concurrency.workers import Workers
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.agents.agents import Agents
    from treadle.engine.commands.rules import Rules
    from treadle.engine.mcp.config import McpSource
    from treadle.engine.thread import LoadedThread
    from treadle.engine.tools.registry import ToolRegistry
    from treadle.engine.turn import ActiveTurn
    from treadle.protocol.skill import SkillMetadata
    from treadle.sandbox.boundary import Boundary


class Models(Protocol):
    """Creates models."""

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """Return the model that these settings name, and its retry policy."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class EngineServices(Protocol):
    """The services that a thread needs from the server."""

    clock: NowMs
    tasks: BackgroundTasks
    home: Path
    # Numbers for server requests.
    request_ids: Iterator[int]
    # Worker threads that read files named by clients and models.
    file_workers: Workers
    # Worker threads that process long texts of models and MCP servers.
    text_workers: Workers
    # Resources that patches of all threads share.
    patches: PatchResources
    # Returns the skills that apply in a folder.
    skills: Callable[[str], Sequence[SkillMetadata]]

    @property
    def mcp(self) -> McpSource:
        """The source of MCP configuration."""
        ...

    @property
    def boundary(self) -> Boundary:
        """Decides what commands and tools may write."""
        ...

    @property
    def agents(self) -> Agents:
        """The sub-agents of all threads."""
        ...

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """Return the model that these settings name, and its retry policy."""
        ...

    def tools(self, thread: LoadedThread) -> ToolRegistry:
        """Return the tools of a thread."""
        ...

    def prepare_sandbox(self) -> None:
        """Prepare the sandbox while the model produces its first command."""
        ...

    def rules(self, cwd: str) -> Rules:
        """Return the command rules that apply in a folder."""
        ...

    def on_rate_limits(self, snapshot: JsonValue) -> None:
        """Broadcast the rate limits that a provider reported."""
        ...

    def on_turn_ended(self, thread: LoadedThread, turn: ActiveTurn) -> None:
        """Update the thread's metadata, and notify the agents that wait for the thread."""
        ...

    def is_waiting(self, thread_id: str) -> bool:
        """Whether a thread only waits for answers, so that it can be suspended."""
        ...


def new_meta(
    settings: RunSettings,
    now: int,
    budget: Budget | None,
    metadata: dict[str, JsonValue] | None,
    *,
    ephemeral: bool,
) -> ThreadMeta:
    """Return the metadata of a new thread; `now` is in seconds."""
    extra = {"budget": msgspec.to_builtins(budget), "metadata": metadata}
    return ThreadMeta(
        id=uuid7(),
        created_at=now,
        updated_at=now,
        recency_at=now,
        cwd=settings.cwd,
        model=settings.model,
        model_provider=settings.model_provider,
        reasoning_effort=settings.effort,
        ephemeral=ephemeral,
        base_instructions=settings.base_instructions,
        developer_instructions=settings.developer_instructions,
        dynamic_tools=list(settings.dynamic_tools) or None,
        extra={name: value for name, value in extra.items() if value} or None,
    )


@dataclass(slots=True)
class LoadedState:
    """The state of a thread when it is loaded."""

    meta: ThreadMeta
    settings: RunSettings
    history: Sequence[ModelItem] = ()
    ledger: TokenLedger | None = None
    client_messages: dict[str, ClientMessage] | None = None
    meter: Meter | None = None
    goal: ThreadGoal | None = None
    # Server requests that an earlier server left open.
    open_requests: dict[str, RequestOpened] = field(default_factory=dict)
    # The settings of the last turn, if known.
    last_context: TurnContext | None = None
    # Ids of its closed sub-agents.
    closed_agents: set[str] = field(default_factory=set)
