"""What a thread needs of the server around it, and what is known of it when it is loaded."""

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
    """Where models come from."""

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """The provider that these settings name, ready to be asked."""
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...


class EngineServices(Protocol):
    """What a thread needs of the server around it."""

    clock: NowMs
    tasks: BackgroundTasks
    home: Path
    # Numbers for questions to clients.
    request_ids: Iterator[int]
    # Threads that read files which clients and models name.
    file_workers: Workers
    # Threads for long looks at texts of models and MCP servers.
    text_workers: Workers
    # What patches share with those of other threads.
    patches: PatchResources
    # The skills that a folder sees.
    skills: Callable[[str], Sequence[SkillMetadata]]

    @property
    def mcp(self) -> McpSource:
        """Where the configuration of MCP servers comes from."""
        ...

    @property
    def boundary(self) -> Boundary:
        """What decides where commands and tools may write."""
        ...

    @property
    def agents(self) -> Agents:
        """The agents that work for other threads."""
        ...

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """The model provider that these settings name, ready to be asked."""
        ...

    def tools(self, thread: LoadedThread) -> ToolRegistry:
        """The tools that a thread has."""
        ...

    def prepare_sandbox(self) -> None:
        """Make ready for commands, while the model still thinks about its first one."""
        ...

    def rules(self, cwd: str) -> Rules:
        """The rules about commands that apply in a folder."""
        ...

    def on_rate_limits(self, snapshot: JsonValue) -> None:
        """Pass on what a provider said of its limits."""
        ...

    def on_turn_ended(self, thread: LoadedThread, turn: ActiveTurn) -> None:
        """Look after a thread whose turn is over."""
        ...

    def waits(self, thread_id: str) -> bool:
        """Whether a thread waits for answers alone, so that its turn outlives its server."""
        ...


def new_meta(
    settings: RunSettings,
    now: int,
    budget: Budget | None,
    metadata: dict[str, JsonValue] | None,
    *,
    ephemeral: bool,
) -> ThreadMeta:
    """What is stored about a thread that begins now, in seconds."""
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
    """What is known of a thread when it is loaded."""

    meta: ThreadMeta
    settings: RunSettings
    history: Sequence[ModelItem] = ()
    ledger: TokenLedger | None = None
    client_messages: dict[str, ClientMessage] | None = None
    meter: Meter | None = None
    goal: ThreadGoal | None = None
    # Questions that its last server left open.
    open_asks: dict[str, RequestOpened] = field(default_factory=dict)
    # What the last turn ran under, as far as it is known.
    last: TurnContext | None = None
    # Agents that worked for it and were closed.
    closed_agents: set[str] = field(default_factory=set)
