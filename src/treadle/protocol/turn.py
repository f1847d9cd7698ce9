"""Turns: starting, steering, interrupting, and their end."""

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
"""How much `items` contains: nothing, enough for a list, or everything stored."""

TurnStatus = Literal["completed", "interrupted", "failed", "inProgress"]


class Turn(Value, frozen=True):
    """One unit of work: from the user's input to the agent's final message."""

    id: str
    items: list[ThreadItem]
    status: TurnStatus
    # Unix seconds, like `started_at`.
    completed_at: Int64 | None = None
    duration_ms: Int64 | None = None
    error: TurnError | None = None
    # An empty `items` means that there are none only when the view is `full`.
    items_view: TurnItemsView = "full"
    # The turn that caused this work; its own id if there is none.
    root_turn_id: str | None = None
    started_at: Int64 | None = None


class TurnCompletedNotification(Value, frozen=True):
    """A turn has ended; its status shows whether it succeeded."""

    thread_id: str
    turn: Turn


class TurnDiffUpdatedNotification(Value, frozen=True):
    """All file edits of a turn so far, as one unified diff; replaces the last one."""

    diff: str
    thread_id: str
    turn_id: str


class TurnInterruptParams(Params, frozen=True):
    """Stop the active turn; background commands keep running."""

    thread_id: str
    turn_id: str


class TurnInterruptResponse(Value, frozen=True):
    """The turn is being stopped; `turn/completed` reports its end."""


class TurnModerationMetadataNotification(Value, frozen=True):
    """The provider's moderation result for a turn, unchanged."""

    metadata: JsonValue
    thread_id: str
    turn_id: str


TurnPlanStepStatus = Literal["pending", "inProgress", "completed"]


class TurnPlanStep(Value, frozen=True):
    """A planned step of the agent, and its progress."""

    status: TurnPlanStepStatus
    step: str


class TurnPlanUpdatedNotification(Value, frozen=True):
    """The agent's complete list of steps; replaces the last one."""

    plan: list[TurnPlanStep]
    thread_id: str
    turn_id: str
    explanation: str | None = None


class TurnSettingsUpdateParams(Params, forbid_unknown_fields=True, frozen=True):
    """Change the settings of the active turn; later turns are not affected."""

    thread_id: str
    turn_id: str
    approvals_reviewer: ApprovalsReviewer | None = None
    effort: ReasoningEffort | None = None
    # Null keeps them, an empty list clears them.
    environments: list[TurnEnvironmentParams] | None = None
    model: str | None = None
    # Null clears the tier, absence keeps it; null in other fields changes nothing.
    service_tier: str | UnsetType | None = UNSET
    summary: ReasoningSummary | None = None


TurnSettingsUpdateStatus = Literal["applied", "targetUnavailable"]


class TurnSettingsUpdateResponse(Value, frozen=True):
    """Whether the turn was still active and took the change."""

    status: TurnSettingsUpdateStatus


@experimental(
    "additional_context",
    "collaboration_mode",
    "cyber_access_program",
    "environments",
    "multi_agent_mode",
    "permissions",
    "responsesapi_client_metadata",
    "responsesapi_client_metadata_patch",
    "runtime_workspace_roots",
)
class TurnStartParams(Params, frozen=True):
    """Add input to a thread and start a turn; most overrides also apply to later turns."""

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
    # An empty list clears; null keeps the list.
    disabled_plugin_ids: list[str] | None = None
    effort: ReasoningEffort | None = None
    # Null keeps the thread's; an empty list leaves the turn none.
    environments: list[TurnEnvironmentParams] | None = None
    model: str | None = None
    # Ignored.
    multi_agent_mode: MultiAgentMode | None = None
    # A JSON Schema for the last message, for this turn only.
    output_schema: JsonValue = None
    # Set when another turn, not the user, causes this one.
    parent_turn_id: str | None = None
    # The id of a permission profile; mutually exclusive with `sandbox_policy`.
    permissions: str | None = None
    personality: Personality | None = None
    responsesapi_client_metadata: dict[str, str] | None = None
    # Added to the metadata after `responsesapi_client_metadata` replaced it.
    responsesapi_client_metadata_patch: dict[str, str] | None = None
    root_turn_id: str | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] | None = None
    sandbox_policy: SandboxPolicy | None = None
    # Null clears the tier, absence keeps it.
    service_tier: str | UnsetType | None = UNSET
    # Does not change the thread's tier; "default" is the standard one.
    service_tier_for_turn: str | None = None
    summary: ReasoningSummary | None = None
    tool_output: TurnToolOutput | None = None
    turn_trigger: str | None = None
    # Ours: limits for this turn.
    budget: Budget | None = None


class TurnStartResponse(Value, frozen=True):
    """The turn that will run; its events follow."""

    turn: Turn


class TurnStartedNotification(Value, frozen=True):
    """A turn started."""

    thread_id: str
    turn: Turn


@experimental(
    "additional_context", "responsesapi_client_metadata", "responsesapi_client_metadata_patch"
)
class TurnSteerParams(Params, frozen=True):
    """Add input to the active turn, provided that it is the expected one."""

    expected_turn_id: str
    input: list[UserInput]
    thread_id: str
    additional_context: dict[str, AdditionalContextEntry] | None = None
    client_user_message_id: str | None = None
    responsesapi_client_metadata: dict[str, str] | None = None
    responsesapi_client_metadata_patch: dict[str, str] | None = None


class TurnSteerResponse(Value, frozen=True):
    """The turn that accepted the input."""

    turn_id: str


class TurnsPage(Value, frozen=True):
    """A page of a thread's turns, with cursors in both directions."""

    data: list[Turn]
    backwards_cursor: str | None = None
    next_cursor: str | None = None
