"""Turns: starting, steering, interrupting, and how they end."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import AbsolutePathBuf, Int64, JsonValue, Params, Value, experimental
from treadle.protocol.collaboration import CollaborationMode, MultiAgentMode
from treadle.protocol.environment import TurnEnvironmentParams
from treadle.protocol.error import TurnError
from treadle.protocol.extension import Budget
from treadle.protocol.input import AdditionalContextEntry, UserInput
from treadle.protocol.item import ThreadItem
from treadle.protocol.model import (
    CyberAccessProgram,
    Personality,
    ReasoningEffort,
    ReasoningSummary,
)
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxPolicy
from treadle.protocol.tool import TurnToolOutput

TurnItemsView = Literal["notLoaded", "summary", "full"]
"""How much `items` holds: nothing, enough for a list, or everything stored."""

TurnStatus = Literal["completed", "interrupted", "failed", "inProgress"]


class Turn(Value, frozen=True):
    """One round of work: from the user's input to the agent's last word."""

    id: str
    items: list[ThreadItem]
    status: TurnStatus
    # Unix seconds, like `started_at`.
    completed_at: Int64 | None = None
    duration_ms: Int64 | None = None
    error: TurnError | None = None
    # An empty `items` means that there are none only when the view is `full`.
    items_view: TurnItemsView = "full"
    # The turn that all this work goes back to; its own id if nothing came before.
    root_turn_id: str | None = None
    started_at: Int64 | None = None


class TurnCompletedNotification(Value, frozen=True):
    """A turn is over; its status tells whether it succeeded."""

    thread_id: str
    turn: Turn


class TurnDiffUpdatedNotification(Value, frozen=True):
    """All file edits of a turn so far, as one unified diff; replaces the last one."""

    diff: str
    thread_id: str
    turn_id: str


class TurnInterruptParams(Params, frozen=True):
    """Stop a running turn; commands left in the background live on."""

    thread_id: str
    turn_id: str


class TurnInterruptResponse(Value, frozen=True):
    """The turn was told to stop; `turn/completed` tells when it has."""


class TurnModerationMetadataNotification(Value, frozen=True):
    """What the provider's moderation said about a turn, passed on as it came."""

    metadata: JsonValue
    thread_id: str
    turn_id: str


TurnPlanStepStatus = Literal["pending", "inProgress", "completed"]


class TurnPlanStep(Value, frozen=True):
    """A step that the agent intends to take, and how far it is."""

    status: TurnPlanStepStatus
    step: str


class TurnPlanUpdatedNotification(Value, frozen=True):
    """The agent's list of steps, whole; replaces the last one."""

    plan: list[TurnPlanStep]
    thread_id: str
    turn_id: str
    explanation: str | None = None


class TurnSettingsUpdateParams(Params, forbid_unknown_fields=True, frozen=True):
    """Change how a running turn goes on; later turns are not affected."""

    thread_id: str
    turn_id: str
    approvals_reviewer: ApprovalsReviewer | None = None
    effort: ReasoningEffort | None = None
    model: str | None = None
    # Null clears the tier, absence keeps it; null elsewhere changes nothing.
    service_tier: str | UnsetType | None = UNSET
    summary: ReasoningSummary | None = None


TurnSettingsUpdateStatus = Literal["applied", "targetUnavailable"]


class TurnSettingsUpdateResponse(Value, frozen=True):
    """Whether the turn was still there to take the change."""

    status: TurnSettingsUpdateStatus


@experimental(
    "additional_context",
    "collaboration_mode",
    "cyber_access_program",
    "environments",
    "multi_agent_mode",
    "permissions",
    "responsesapi_client_metadata",
    "runtime_workspace_roots",
)
class TurnStartParams(Params, frozen=True):
    """Add input to a thread and begin a turn; most overrides stay for later turns."""

    input: list[UserInput]
    thread_id: str
    additional_context: dict[str, AdditionalContextEntry] | None = None
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    client_user_message_id: str | None = None
    collaboration_mode: CollaborationMode | None = None
    cwd: str | None = None
    # For this turn only.
    cyber_access_program: CyberAccessProgram | None = None
    # An empty list clears; null leaves the list alone.
    disabled_plugin_ids: list[str] | None = None
    effort: ReasoningEffort | None = None
    # Null keeps the thread's; an empty list gives the turn none.
    environments: list[TurnEnvironmentParams] | None = None
    model: str | None = None
    # Ignored.
    multi_agent_mode: MultiAgentMode | None = None
    # A JSON Schema for the last message, for this turn only.
    output_schema: JsonValue = None
    # Given when another turn, not the user, causes this one.
    parent_turn_id: str | None = None
    # The id of a permission profile; excludes `sandbox_policy`.
    permissions: str | None = None
    personality: Personality | None = None
    responsesapi_client_metadata: dict[str, str] | None = None
    root_turn_id: str | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] | None = None
    sandbox_policy: SandboxPolicy | None = None
    # Null clears the tier, absence keeps it.
    service_tier: str | UnsetType | None = UNSET
    # Leaves the thread's own tier alone; "default" is the standard one.
    service_tier_for_turn: str | None = None
    summary: ReasoningSummary | None = None
    tool_output: TurnToolOutput | None = None
    turn_trigger: str | None = None
    # Ours: limits for this turn.
    budget: Budget | None = None


class TurnStartResponse(Value, frozen=True):
    """The turn that will run; events about it follow."""

    turn: Turn


class TurnStartedNotification(Value, frozen=True):
    """A turn began to run."""

    thread_id: str
    turn: Turn


@experimental("additional_context", "responsesapi_client_metadata")
class TurnSteerParams(Params, frozen=True):
    """Give more input to the turn that is running, provided that it is the expected one."""

    expected_turn_id: str
    input: list[UserInput]
    thread_id: str
    additional_context: dict[str, AdditionalContextEntry] | None = None
    client_user_message_id: str | None = None
    responsesapi_client_metadata: dict[str, str] | None = None


class TurnSteerResponse(Value, frozen=True):
    """The turn that took the input."""

    turn_id: str


class TurnsPage(Value, frozen=True):
    """A page of a thread's turns, with cursors to go on in either direction."""

    data: list[Turn]
    backwards_cursor: str | None = None
    next_cursor: str | None = None
