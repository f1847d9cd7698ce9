"""Types for stored threads: their metadata, their replayed state, queries and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import UNSET, Struct, field

from treadle.protocol.base import GitInfo, JsonValue, SortDirection
from treadle.protocol.goal import ThreadGoal
from treadle.protocol.item import ItemStartedNotification
from treadle.protocol.model import ReasoningEffort
from treadle.protocol.queue import QueuedSubmission
from treadle.protocol.read_state import ThreadReadState
from treadle.protocol.source import SessionSource, ThreadSourceKind
from treadle.protocol.status import ThreadStatus
from treadle.protocol.thread import Thread, ThreadHistoryMode
from treadle.protocol.tool import DynamicToolSpec
from treadle.protocol.turn import Turn
from treadle.protocol.usage import ThreadTokenUsage
from treadle.store.organization.placement import NOWHERE, Placement
from treadle.store.records import (
    ClientMessage,
    Granted,
    InputQueued,
    ModelItem,
    RequestOpened,
    TurnAdjusted,
    TurnContext,
)

MAX_PREVIEW_CHARACTERS: Final = 4096
"""The length of a preview: every list of threads repeats it."""


class ThreadCreator(Struct, frozen=True):
    """The login with which a thread was started; without a ChatGPT account, it has no ids."""

    user_id: str | None = None
    account_id: str | None = None


class ThreadMeta(Struct, frozen=True, kw_only=True):
    """A thread without its turns: what lists show, and the options it was started with."""

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
    # The thread beside which this one is shown: ordinary lists leave it out.
    attached_to_id: str | None = None
    parent_thread_id: str | None = None
    thread_source: str | None = None
    name: str | None = None
    # The beginning of the text of the first user message.
    preview: str = ""
    path: str | None = None
    ephemeral: bool = False
    archived: bool = False
    project_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    history_mode: ThreadHistoryMode = "legacy"
    creator_user_id: str | None = None
    creator_account_id: str | None = None
    # Null until a turn ends or a client marks the thread.
    read_state: ThreadReadState | None = None
    # What a resumed thread needs to continue with its original options.
    base_instructions: str | None = None
    developer_instructions: str | None = None
    dynamic_tools: list[DynamicToolSpec] | None = None
    # Anything else the server stores: configuration overrides, the client's own tags.
    extra: dict[str, JsonValue] | None = None


def thread_snapshot(
    meta: ThreadMeta, status: ThreadStatus, turns: list[Turn], placement: Placement = NOWHERE
) -> Thread:
    """Convert stored metadata to the protocol's thread."""
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
        attached_to_thread_id=UNSET if meta.attached_to_id is None else meta.attached_to_id,
        parent_thread_id=meta.parent_thread_id,
        thread_source=meta.thread_source,
        name=meta.name,
        # Indexes and rollouts of earlier versions may have longer ones.
        preview=meta.preview[:MAX_PREVIEW_CHARACTERS],
        path=meta.path,
        ephemeral=meta.ephemeral,
        project_id=placement.project_id or meta.project_id,
        section=placement.section,
        section_entered_at=placement.entered_at,
        agent_nickname=meta.agent_nickname,
        agent_role=meta.agent_role,
        history_mode=meta.history_mode,
        status=status,
        turns=turns,
        metadata=(meta.extra or {}).get("metadata", UNSET),
    )


class StoredThread(Struct):
    """The state of a thread after replaying its journal."""

    meta: ThreadMeta
    # With items, original ids, statuses, errors and times; empty if not requested.
    turns: list[Turn] = field(default_factory=list)
    # The model context, after compactions and rollbacks.
    history: list[ModelItem] = field(default_factory=list)
    # For each turn, the model context at its start: a list, and a length.
    views: list[tuple[list[ModelItem], int]] = field(default_factory=list)
    settings: TurnContext | None = None
    # Settings changed since the last turn began.
    pending_settings: TurnContext | None = None
    # Overrides of the running turn.
    adjusted: TurnAdjusted | None = None
    usage: ThreadTokenUsage | None = None
    # Responses that `usage` already includes.
    response_ids: set[str] = field(default_factory=set)
    last_seq: int = 0
    # Open server requests by id, oldest first.
    open_requests: dict[str, RequestOpened] = field(default_factory=dict)
    # Answers that the running turn received, with the method, by call.
    answers: dict[str, tuple[str, JsonValue]] = field(default_factory=dict)
    client_messages: dict[str, ClientMessage] = field(default_factory=dict)
    # Input that no turn has consumed, by id, oldest first.
    inputs: dict[str, InputQueued] = field(default_factory=dict)
    # Outputs of calls of the running turn that may not be in the model context yet, by call.
    outputs: dict[str, ModelItem] = field(default_factory=dict)
    # Grants that may still apply.
    grants: list[Granted] = field(default_factory=list)
    # Closed sub-agents.
    closed_agents: set[str] = field(default_factory=set)
    goal: ThreadGoal | None = None
    # Input for later turns, in the order of these.
    queue: list[QueuedSubmission] = field(default_factory=list)
    # A turn without a terminal event: its server died, or it is running in another process.
    running_turn: str | None = None
    # Items of any turn that were started and never completed, as first published.
    open_items: list[ItemStartedNotification] = field(default_factory=list)

    @property
    def name(self) -> str | None:
        """The current name of the thread."""
        return self.meta.name

    @property
    def context_window(self) -> int | None:
        """The model's context window in tokens, if recorded."""
        return None if self.usage is None else self.usage.model_context_window


SortKey = Literal["created_at", "updated_at", "recency_at"]

DEFAULT_LIMIT = 25
MAX_LIMIT = 100


class ThreadQuery(Struct, frozen=True, kw_only=True):
    """Filter, order and position of a list of threads."""

    cursor: str | None = None
    limit: int | None = None
    sort_key: SortKey = "created_at"
    sort_direction: SortDirection = "desc"
    archived: bool = False
    # Exact paths; `None` means any.
    cwd: list[str] | None = None
    # `None` and empty mean any provider.
    model_providers: list[str] | None = None
    # `None` and empty mean interactive clients only.
    source_kinds: list[ThreadSourceKind] | None = None
    originators: list[str] | None = None
    # A substring of the preview or the name, ignoring case.
    search_term: str | None = None
    # A substring of a message, ignoring case.
    mentions: str | None = None
    parent_thread_id: str | None = None
    ancestor_thread_id: str | None = None
    excluded_thread_ids: list[str] | None = None
    # Only threads attached to this one; or those that match, attached or not.
    attached_to_id: str | None = None
    includes_attached: bool = False
    # Leaves out threads that other logins started.
    creator: ThreadCreator | None = None
    # Only these threads, or none of those.
    only_ids: Sequence[str] | None = None
    except_ids: Sequence[str] | None = None
    # Use the index as it is, without checking the files.
    use_state_db_only: bool = False


class ThreadPage(Struct, frozen=True):
    """A page of threads, with cursors to the next page and back."""

    data: list[ThreadMeta]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class SearchPage(Struct, frozen=True):
    """A page of threads, with the text around the match in each."""

    page: ThreadPage
    snippets: list[str]
