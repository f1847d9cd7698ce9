"""Threads: their type, and how to start, resume and fork them."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import (
    AbsolutePathBuf,
    GitInfo,
    Int64,
    JsonValue,
    LegacyAppPathString,
    Params,
    RequestId,
    SortDirection,
    UInt32,
    UInt64,
    Value,
    experimental,
)
from treadle.protocol.collaboration import CollaborationMode, MultiAgentMode
from treadle.protocol.environment import ThreadEnvironment, TurnEnvironmentParams
from treadle.protocol.extension import Budget
from treadle.protocol.model import Personality, ReasoningEffort
from treadle.protocol.permission import ActivePermissionProfile
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxMode, SandboxPolicy
from treadle.protocol.response_item import ResponseItem
from treadle.protocol.section import ThreadSection
from treadle.protocol.source import SessionSource, ThreadSource
from treadle.protocol.status import ThreadStatus
from treadle.protocol.tool import DynamicToolSpec
from treadle.protocol.turn import Turn, TurnItemsView, TurnsPage


class EnvironmentCapabilityRootLocation(Value, tag="environment", frozen=True):
    """A folder inside an execution environment, by its absolute path there."""

    environment_id: str
    path: str


CapabilityRootLocation = EnvironmentCapabilityRootLocation


class ContextCompactedNotification(Value, frozen=True):
    """A turn compacted the history; superseded by the `contextCompaction` item."""

    thread_id: str
    turn_id: str


class SelectedCapabilityRoot(Value, frozen=True):
    """A folder that the host selected as a source of tools and skills for a thread."""

    id: str
    location: CapabilityRootLocation


class ServerRequestResolvedNotification(Value, frozen=True):
    """A server request is closed: answered, or obsolete because its turn moved on."""

    request_id: RequestId
    thread_id: str


class ThreadExtra(Value, frozen=True):
    """Data that a particular server adds to its threads; no field is standard."""


ThreadHistoryMode = Literal["legacy", "paginated"]
"""Whether the history is one log (`legacy`) or can be read in pages."""


@experimental(
    "attached_to_thread_id",
    "can_accept_direct_input",
    "daybreak_enabled",
    "environments",
    "extra",
)
class Thread(Value, frozen=True):
    """A conversation with the agent: a series of turns, stored unless it is ephemeral."""

    cli_version: str
    # Times are Unix seconds.
    created_at: Int64
    cwd: AbsolutePathBuf
    ephemeral: bool
    id: str
    model_provider: str
    # Usually the user's first message.
    preview: str
    project_id: str | None
    # Shared by a thread and its sub-agents.
    session_id: str
    source: SessionSource
    status: ThreadStatus
    # Filled by resume, fork and a read that requests turns; otherwise empty.
    turns: list[Turn]
    updated_at: Int64
    agent_nickname: str | None = None
    agent_role: str | None = None
    # The thread that owns this one, which lists hide.
    attached_to_thread_id: str | UnsetType | None = UNSET
    can_accept_direct_input: bool | None = None
    daybreak_enabled: bool | None = None
    # Null while not loaded; an empty list means that none was selected.
    environments: list[ThreadEnvironment] | None = None
    extra: ThreadExtra | None = None
    forked_from_id: str | None = None
    git_info: GitInfo | None = None
    history_mode: ThreadHistoryMode = "legacy"
    # The current configuration or the last stored one, not what each turn ran on.
    model: str | None = None
    name: str | None = None
    originator: str | None = None
    parent_thread_id: str | None = None
    # Null for an ephemeral thread.
    path: str | None = None
    reasoning_effort: ReasoningEffort | None = None
    recency_at: Int64 | None = None
    section: ThreadSection | None = None
    section_entered_at: Int64 | None = None
    thread_source: ThreadSource | None = None
    # Ours: what the client passed at the start; omitted from lists.
    metadata: dict[str, JsonValue] | UnsetType = UNSET


@experimental(
    "attach_to_source",
    "before_turn_id",
    "defer_goal_continuation",
    "experimental_disable_prediction_mcp",
    "experimental_prediction_mode",
    "path",
    "permissions",
    "runtime_workspace_roots",
    "persist_extended_history",
)
class ThreadForkParams(Params, frozen=True):
    """Copy a thread's history into a new thread, whole or up to a turn."""

    thread_id: str
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    # Hide the fork from lists, and keep its source while it exists.
    attach_to_source: bool = False
    base_instructions: str | None = None
    # Excludes the turn it names, while last_turn_id includes it; give one of the two.
    before_turn_id: str | None = None
    config: dict[str, JsonValue] | None = None
    cwd: str | None = None
    defer_goal_continuation: bool = False
    developer_instructions: str | None = None
    ephemeral: bool = False
    exclude_turns: bool = False
    experimental_disable_prediction_mcp: bool = False
    experimental_prediction_mode: bool = False
    last_turn_id: str | None = None
    model: str | None = None
    model_provider: str | None = None
    # If not empty, it takes precedence over thread_id.
    path: str | None = None
    # Id of a profile; mutually exclusive with sandbox.
    permissions: str | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] | None = None
    sandbox: SandboxMode | None = None
    # Absent keeps the configured tier, null requests the default one.
    service_tier: str | UnsetType | None = UNSET
    thread_source: ThreadSource | None = None
    persist_extended_history: bool = False


@experimental("active_permission_profile", "multi_agent_mode", "runtime_workspace_roots")
class ThreadForkResponse(Value, frozen=True):
    """The new thread and the settings of its turns."""

    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    cwd: AbsolutePathBuf
    model: str
    model_provider: str
    sandbox: SandboxPolicy
    thread: Thread
    active_permission_profile: ActivePermissionProfile | None = None
    disabled_plugin_ids: list[str] = []
    instruction_sources: list[LegacyAppPathString] = []
    multi_agent_mode: MultiAgentMode = "explicitRequestOnly"
    reasoning_effort: ReasoningEffort | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] = []
    service_tier: str | None = None


class ThreadResumeInitialTurnsPageParams(Params, frozen=True):
    """Which page of turns to include, which saves the client a `thread/turns/list`."""

    items_view: TurnItemsView | None = None
    limit: UInt32 | None = None
    sort_direction: SortDirection | None = None


@experimental(
    "dynamic_tools",
    "history",
    "initial_turns_page",
    "path",
    "permissions",
    "runtime_workspace_roots",
    "persist_extended_history",
)
class ThreadResumeParams(Params, frozen=True):
    """Load a stored thread, or join a loaded one, and subscribe to its events."""

    thread_id: str
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    base_instructions: str | None = None
    config: dict[str, JsonValue] | None = None
    cwd: str | None = None
    developer_instructions: str | None = None
    exclude_turns: bool = False
    # Takes precedence over path, and path over thread_id; a loaded thread with that id wins.
    history: list[ResponseItem] | None = None
    initial_turns_page: ThreadResumeInitialTurnsPageParams | None = None
    # A given model or provider replaces the ones stored with the thread.
    model: str | None = None
    model_provider: str | None = None
    path: str | None = None
    permissions: str | None = None
    personality: Personality | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] | None = None
    sandbox: SandboxMode | None = None
    service_tier: str | UnsetType | None = UNSET
    persist_extended_history: bool = False
    # Ours: the last event that the client received; it gets the later events instead of turns.
    after_seq: UInt64 | None = None
    # Ours: the client tools of the thread from now on.
    dynamic_tools: list[DynamicToolSpec] | None = None


@experimental(
    "active_permission_profile", "initial_turns_page", "multi_agent_mode", "runtime_workspace_roots"
)
class ThreadResumeResponse(Value, frozen=True):
    """The loaded thread, its settings, and cursors to read its history backwards."""

    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    cwd: AbsolutePathBuf
    model: str
    model_provider: str
    sandbox: SandboxPolicy
    thread: Thread
    active_permission_profile: ActivePermissionProfile | None = None
    collaboration_mode: CollaborationMode | None = None
    disabled_plugin_ids: list[str] = []
    initial_turns_page: TurnsPage | None = None
    instruction_sources: list[LegacyAppPathString] = []
    items_backwards_cursor: str | None = None
    multi_agent_mode: MultiAgentMode = "explicitRequestOnly"
    reasoning_effort: ReasoningEffort | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] = []
    service_tier: str | None = None
    turns_backwards_cursor: str | None = None


class ThreadSetNameParams(Params, frozen=True):
    """Set the title of a thread, loaded or not; titles need not be unique."""

    name: str
    thread_id: str


class ThreadSetNameResponse(Value, frozen=True):
    """The title is stored; `thread/name/updated` notifies the other clients."""


ThreadStartSource = Literal["startup", "clear"]
"""Whether the client just started or the user cleared the conversation."""


@experimental(
    "allow_provider_model_fallback",
    "daybreak_enabled",
    "dynamic_tools",
    "environments",
    "experimental_raw_events",
    "history_mode",
    "mock_experimental_field",
    "multi_agent_mode",
    "permissions",
    "project_id",
    "runtime_workspace_roots",
    "selected_capability_roots",
    "persist_extended_history",
)
class ThreadStartParams(Params, frozen=True):
    """Start a thread and subscribe to it; given fields override the configuration."""

    allow_provider_model_fallback: bool = False
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    base_instructions: str | None = None
    config: dict[str, JsonValue] | None = None
    cwd: str | None = None
    daybreak_enabled: bool | None = None
    developer_instructions: str | None = None
    dynamic_tools: list[DynamicToolSpec] | None = None
    # Absent selects the default, an empty list selects none; the first is the primary one.
    environments: list[TurnEnvironmentParams] | None = None
    ephemeral: bool | None = None
    experimental_raw_events: bool = False
    history_mode: ThreadHistoryMode | None = None
    mock_experimental_field: str | None = None
    model: str | None = None
    model_provider: str | None = None
    multi_agent_mode: MultiAgentMode | None = None
    # Id of a profile; mutually exclusive with sandbox.
    permissions: str | None = None
    personality: Personality | None = None
    project_id: str | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] | None = None
    sandbox: SandboxMode | None = None
    selected_capability_roots: list[SelectedCapabilityRoot] | None = None
    # A tag for metrics.
    service_name: str | None = None
    # Absent keeps the configured tier, null requests the default one.
    service_tier: str | UnsetType | None = UNSET
    session_start_source: ThreadStartSource | None = None
    thread_source: ThreadSource | None = None
    persist_extended_history: bool = False
    # Ours: limits for the thread as a whole.
    budget: Budget | None = None
    # Ours: data that the client stores with the thread.
    metadata: dict[str, JsonValue] | None = None


@experimental("active_permission_profile", "multi_agent_mode", "runtime_workspace_roots")
class ThreadStartResponse(Value, frozen=True):
    """The new thread and the settings of its turns."""

    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    cwd: AbsolutePathBuf
    model: str
    model_provider: str
    sandbox: SandboxPolicy
    thread: Thread
    active_permission_profile: ActivePermissionProfile | None = None
    disabled_plugin_ids: list[str] = []
    instruction_sources: list[LegacyAppPathString] = []
    multi_agent_mode: MultiAgentMode = "explicitRequestOnly"
    reasoning_effort: ReasoningEffort | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] = []
    service_tier: str | None = None


class ThreadStartedNotification(Value, frozen=True):
    """A thread was created by a start, a fork or a review; it contains its status."""

    thread: Thread


class ThreadUsageBreakdownGroup(Value, frozen=True):
    """The usage of a thread for one combination of model, effort and speed."""

    estimated_usage_credits_micros: Int64
    cached_input_tokens: Int64 | None = None
    input_tokens: Int64 | None = None
    model: str | None = None
    net_new_input_tokens: Int64 | None = None
    output_tokens: Int64 | None = None
    reasoning_effort: str | None = None
    speed: str | None = None
    total_tokens: Int64 | None = None


class ThreadUsage(Value, frozen=True):
    """The estimated cost of a thread so far, in millionths of a credit and of a dollar."""

    estimated_usage_credits_micros: Int64
    groups: list[ThreadUsageBreakdownGroup]
    thread_id: str
    estimated_usage_usd_micros: Int64 | None = None
    # Unknown, not zero, if absent.
    native_usage_usd_micros: Int64 | UnsetType | None = UNSET
