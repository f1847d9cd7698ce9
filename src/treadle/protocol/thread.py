"""Threads: what one is, and how to start, resume and fork it."""

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
    """A turn shortened the history; the `contextCompaction` item has replaced it."""

    thread_id: str
    turn_id: str


class SelectedCapabilityRoot(Value, frozen=True):
    """A folder the host picked for a thread to draw tools and skills from."""

    id: str
    location: CapabilityRootLocation


class ServerRequestResolvedNotification(Value, frozen=True):
    """A question to the client is settled: answered, or void since its turn moved on."""

    request_id: RequestId
    thread_id: str


class ThreadExtra(Value, frozen=True):
    """Room for data that one server adds to its threads; no field is agreed on."""


ThreadHistoryMode = Literal["legacy", "paginated"]
"""Whether the history is one log (`legacy`) or can be read in pages."""


@experimental("can_accept_direct_input", "daybreak_enabled", "environments", "extra")
class Thread(Value, frozen=True):
    """A conversation with the agent: a series of turns, stored unless it is ephemeral."""

    cli_version: str
    # Times are Unix seconds.
    created_at: Int64
    cwd: AbsolutePathBuf
    ephemeral: bool
    id: str
    model_provider: str
    # As a rule the first message of the user.
    preview: str
    project_id: str | None
    # Shared by a thread and the agents it started.
    session_id: str
    source: SessionSource
    status: ThreadStatus
    # Filled by resume, fork and a read that asks for turns; empty everywhere else.
    turns: list[Turn]
    updated_at: Int64
    agent_nickname: str | None = None
    agent_role: str | None = None
    can_accept_direct_input: bool | None = None
    daybreak_enabled: bool | None = None
    # Null while not loaded; an empty list means that none was chosen.
    environments: list[ThreadEnvironment] | None = None
    extra: ThreadExtra | None = None
    forked_from_id: str | None = None
    git_info: GitInfo | None = None
    history_mode: ThreadHistoryMode = "legacy"
    # What is configured now or was stored last, not what each turn ran on.
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
    # Ours: what the client gave at the start; lists leave it out.
    metadata: dict[str, JsonValue] | UnsetType = UNSET


@experimental(
    "before_turn_id",
    "defer_goal_continuation",
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
    base_instructions: str | None = None
    # Leaves out the turn it names, while last_turn_id keeps it; give one of the two.
    before_turn_id: str | None = None
    config: dict[str, JsonValue] | None = None
    cwd: str | None = None
    defer_goal_continuation: bool = False
    developer_instructions: str | None = None
    ephemeral: bool = False
    exclude_turns: bool = False
    experimental_prediction_mode: bool = False
    last_turn_id: str | None = None
    model: str | None = None
    model_provider: str | None = None
    # If not empty it outweighs thread_id.
    path: str | None = None
    # Id of a profile; excludes sandbox.
    permissions: str | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] | None = None
    sandbox: SandboxMode | None = None
    # Absent keeps the configured tier, null asks for the default one.
    service_tier: str | UnsetType | None = UNSET
    thread_source: ThreadSource | None = None
    persist_extended_history: bool = False


@experimental("active_permission_profile", "multi_agent_mode", "runtime_workspace_roots")
class ThreadForkResponse(Value, frozen=True):
    """The new thread and the settings that its turns will run under."""

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
    """Which page of turns to send along, sparing the client a `thread/turns/list`."""

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
    """Load a stored thread, or join a running one, and subscribe to its events."""

    thread_id: str
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    base_instructions: str | None = None
    config: dict[str, JsonValue] | None = None
    cwd: str | None = None
    developer_instructions: str | None = None
    exclude_turns: bool = False
    # Outweighs path, which outweighs thread_id, unless the thread is running.
    history: list[ResponseItem] | None = None
    initial_turns_page: ThreadResumeInitialTurnsPageParams | None = None
    # Giving a model or provider gives up the ones stored with the thread.
    model: str | None = None
    model_provider: str | None = None
    path: str | None = None
    permissions: str | None = None
    personality: Personality | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] | None = None
    sandbox: SandboxMode | None = None
    service_tier: str | UnsetType | None = UNSET
    persist_extended_history: bool = False
    # Ours: the last event the client has seen; it is told what came later instead of turns.
    after_seq: UInt64 | None = None
    # Ours: the tools that the clients of the thread have from now on.
    dynamic_tools: list[DynamicToolSpec] | None = None


@experimental(
    "active_permission_profile", "initial_turns_page", "multi_agent_mode", "runtime_workspace_roots"
)
class ThreadResumeResponse(Value, frozen=True):
    """The loaded thread, its settings, and cursors to read its history backwards from."""

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
    """Give a thread a title, loaded or not; two threads may bear the same."""

    name: str
    thread_id: str


class ThreadSetNameResponse(Value, frozen=True):
    """The title is stored; `thread/name/updated` tells the other clients."""


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
    """Begin a thread and subscribe to it; what is given overrides the configuration."""

    allow_provider_model_fallback: bool = False
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    base_instructions: str | None = None
    config: dict[str, JsonValue] | None = None
    cwd: str | None = None
    daybreak_enabled: bool | None = None
    developer_instructions: str | None = None
    dynamic_tools: list[DynamicToolSpec] | None = None
    # Absent picks the default, an empty list picks none; the first is the primary one.
    environments: list[TurnEnvironmentParams] | None = None
    ephemeral: bool | None = None
    experimental_raw_events: bool = False
    history_mode: ThreadHistoryMode | None = None
    mock_experimental_field: str | None = None
    model: str | None = None
    model_provider: str | None = None
    multi_agent_mode: MultiAgentMode | None = None
    # Id of a profile; excludes sandbox.
    permissions: str | None = None
    personality: Personality | None = None
    project_id: str | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] | None = None
    sandbox: SandboxMode | None = None
    selected_capability_roots: list[SelectedCapabilityRoot] | None = None
    # A tag for metrics.
    service_name: str | None = None
    # Absent keeps the configured tier, null asks for the default one.
    service_tier: str | UnsetType | None = UNSET
    session_start_source: ThreadStartSource | None = None
    thread_source: ThreadSource | None = None
    persist_extended_history: bool = False
    # Ours: limits for the thread as a whole.
    budget: Budget | None = None
    # Ours: whatever the client wants to find again with the thread.
    metadata: dict[str, JsonValue] | None = None


@experimental("active_permission_profile", "multi_agent_mode", "runtime_workspace_roots")
class ThreadStartResponse(Value, frozen=True):
    """The new thread and the settings that its turns will run under."""

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
    """A thread came into being, by a start, a fork or a review; it carries its status."""

    thread: Thread


class ThreadUsageBreakdownGroup(Value, frozen=True):
    """What a thread spent on one mix of model, effort and speed."""

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
    """What a thread has cost so far by estimate, in millionths of a credit and of a dollar."""

    estimated_usage_credits_micros: Int64
    groups: list[ThreadUsageBreakdownGroup]
    thread_id: str
    estimated_usage_usd_micros: Int64 | None = None
