"""What the store knows about a thread: its metadata, and all that its journal says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct

from treadle.protocol.base import GitInfo, JsonValue, SortDirection
from treadle.protocol.goal import ThreadGoal
from treadle.protocol.item import ItemStartedNotification
from treadle.protocol.model import ReasoningEffort
from treadle.protocol.source import SessionSource, ThreadSourceKind
from treadle.protocol.status import ThreadStatus
from treadle.protocol.thread import Thread, ThreadHistoryMode
from treadle.protocol.tool import DynamicToolSpec
from treadle.protocol.turn import Turn
from treadle.protocol.usage import ThreadTokenUsage
from treadle.store.records import (
    ClientMessage,
    Granted,
    InputGiven,
    ModelItem,
    RequestOpened,
    TurnAdjusted,
    TurnContext,
)


class ThreadMeta(Struct, frozen=True, kw_only=True):
    """A thread without its turns: what a list shows, and what it was started with."""

    id: str
    # Unix seconds, as everywhere in the protocol.
    created_at: int
    updated_at: int
    cwd: str
    model_provider: str
    source: SessionSource = "vscode"
    session_id: str | None = None
    recency_at: int | None = None
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None
    originator: str | None = None
    cli_version: str = ""
    git_info: GitInfo | None = None
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    thread_source: str | None = None
    name: str | None = None
    # The text of the first user message.
    preview: str = ""
    path: str | None = None
    ephemeral: bool = False
    archived: bool = False
    project_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    history_mode: ThreadHistoryMode = "legacy"
    # What a resumed thread needs to go on as it was started.
    base_instructions: str | None = None
    developer_instructions: str | None = None
    dynamic_tools: list[DynamicToolSpec] | None = None
    # Whatever else the server wants to find again: configuration overrides, the client's own tags.
    extra: dict[str, JsonValue] | None = None


def to_thread(meta: ThreadMeta, status: ThreadStatus, turns: list[Turn]) -> Thread:
    """Dress stored metadata as the protocol shows a thread."""
    return Thread(
        id=meta.id,
        session_id=meta.session_id or meta.id,
        created_at=meta.created_at,
        updated_at=meta.updated_at,
        recency_at=meta.recency_at,
        cwd=meta.cwd,
        model=meta.model,
        reasoning_effort=meta.reasoning_effort,
        model_provider=meta.model_provider,
        source=meta.source,
        originator=meta.originator,
        cli_version=meta.cli_version,
        git_info=meta.git_info,
        forked_from_id=meta.forked_from_id,
        parent_thread_id=meta.parent_thread_id,
        thread_source=meta.thread_source,
        name=meta.name,
        preview=meta.preview,
        path=meta.path,
        ephemeral=meta.ephemeral,
        project_id=meta.project_id,
        agent_nickname=meta.agent_nickname,
        agent_role=meta.agent_role,
        history_mode=meta.history_mode,
        status=status,
        turns=turns,
        metadata=(meta.extra or {}).get("metadata", UNSET),
    )


ItemTimes: TypeAlias = dict[str, dict[str, tuple[int | None, int | None]]]
"""When items began and were done, in milliseconds, by turn and item."""


@dataclass(slots=True)
class StoredThread:
    """A thread as its journal tells it."""

    meta: ThreadMeta
    # With items, original ids, statuses, errors and times; empty if they were not asked for.
    turns: list[Turn] = field(default_factory=list)
    # The model's view, after compactions and rollbacks.
    history: list[ModelItem] = field(default_factory=list)
    # For each turn, where the view stood when it began: a list, and how much of it.
    views: list[tuple[list[ModelItem], int]] = field(default_factory=list)
    item_times: ItemTimes = field(default_factory=dict)
    settings: TurnContext | None = None
    # What it was given after its last turn began, if it was.
    given: TurnContext | None = None
    # What a turn was told to do otherwise while it ran.
    adjusted: TurnAdjusted | None = None
    usage: ThreadTokenUsage | None = None
    # Responses that the usage counts already.
    response_ids: set[str] = field(default_factory=set)
    last_seq: int = 0
    # Questions without an answer, by id, oldest first.
    open_asks: dict[str, RequestOpened] = field(default_factory=dict)
    # What the running turn was answered, and to which method, by call.
    answers: dict[str, tuple[str, JsonValue]] = field(default_factory=dict)
    client_messages: dict[str, ClientMessage] = field(default_factory=dict)
    # Input that nobody has taken up, by id, oldest first.
    inputs: dict[str, InputGiven] = field(default_factory=dict)
    # Outputs of calls of the running turn that the model's view may not have yet, by call.
    outputs: dict[str, ModelItem] = field(default_factory=dict)
    # What the user allowed for more than once, as far as it may still hold.
    grants: list[Granted] = field(default_factory=list)
    # Agents that worked for the thread and were closed.
    closed_agents: set[str] = field(default_factory=set)
    goal: ThreadGoal | None = None
    # A turn without a terminal event: its server died, or it is running in another one.
    running_turn: str | None = None
    # Items of any turn which were started and never completed, as they were told then.
    open_items: list[ItemStartedNotification] = field(default_factory=list)

    @property
    def name(self) -> str | None:
        """The title that the thread was given last."""
        return self.meta.name

    @property
    def context_window(self) -> int | None:
        """How many tokens the model takes, as far as it was recorded."""
        return None if self.usage is None else self.usage.model_context_window


SortKey = Literal["created_at", "updated_at", "recency_at"]

DEFAULT_LIMIT = 25
MAX_LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadQuery:
    """Which threads to list, in which order, and from where on."""

    cursor: str | None = None
    limit: int | None = None
    sort_key: SortKey = "created_at"
    sort_direction: SortDirection = "desc"
    archived: bool = False
    # Exact paths; null means anywhere.
    cwd: list[str] | None = None
    # Null and empty mean any provider.
    model_providers: list[str] | None = None
    # Null and empty mean interactive clients only.
    source_kinds: list[ThreadSourceKind] | None = None
    originators: list[str] | None = None
    # A part of the preview or the name, in any case.
    search_term: str | None = None
    # A part of what was said in the thread, in any case.
    mentions: str | None = None
    parent_thread_id: str | None = None
    ancestor_thread_id: str | None = None
    excluded_thread_ids: list[str] | None = None
    # Trust the index as it is, without a look at the files.
    use_state_db_only: bool = False


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """A page of threads; the cursors lead on, and back to before its first thread."""

    data: list[ThreadMeta]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of threads, and for each the words around what was searched for."""

    page: ThreadPage
    snippets: list[str]
