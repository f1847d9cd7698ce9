"""Settings of a thread or of one active turn."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from treadle.protocol.base import AbsolutePathBuf, Params, Value, experimental
from treadle.protocol.collaboration import CollaborationMode, MultiAgentMode
from treadle.protocol.environment import ThreadEnvironment, TurnEnvironmentParams
from treadle.protocol.model import Personality, ReasoningEffort, ReasoningSummary
from treadle.protocol.permission import ActivePermissionProfile
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxPolicy


@experimental("environments", "multi_agent_mode")
class ThreadSettings(Value, frozen=True):
    """The settings of the next turn of a thread, unless the turn overrides them."""

    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    collaboration_mode: CollaborationMode
    cwd: AbsolutePathBuf
    model: str
    model_provider: str
    sandbox_policy: SandboxPolicy
    active_permission_profile: ActivePermissionProfile | None = None
    disabled_plugin_ids: list[str] = []
    effort: ReasoningEffort | None = None
    environments: list[ThreadEnvironment] | UnsetType | None = UNSET
    # Always this value: the effort now decides about it.
    multi_agent_mode: MultiAgentMode = "explicitRequestOnly"
    personality: Personality | None = None
    service_tier: str | None = None
    summary: ReasoningSummary | None = None


class ThreadSettingsUpdateParams(Params, frozen=True):
    """Change the settings of later turns of a thread, without starting one."""

    thread_id: str
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    collaboration_mode: CollaborationMode | None = None
    cwd: str | None = None
    # An empty list clears; null keeps the list.
    disabled_plugin_ids: list[str] | None = None
    effort: ReasoningEffort | None = None
    # Null keeps them, an empty list clears them.
    environments: list[TurnEnvironmentParams] | None = None
    model: str | None = None
    # Ignored.
    multi_agent_mode: MultiAgentMode | None = None
    # The id of a permission profile; mutually exclusive with `sandbox_policy`.
    permissions: str | None = None
    personality: Personality | None = None
    sandbox_policy: SandboxPolicy | None = None
    # Null clears the tier, absence keeps it.
    service_tier: str | UnsetType | None = UNSET
    summary: ReasoningSummary | None = None


class ThreadSettingsUpdateResponse(Value, frozen=True):
    """The change was accepted; `thread/settings/updated` carries the result."""


class ThreadSettingsUpdatedNotification(Value, frozen=True):
    """A thread's settings changed, by request or by the overrides of a turn."""

    thread_id: str
    thread_settings: ThreadSettings
