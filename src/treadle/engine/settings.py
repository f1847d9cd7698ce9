"""The settings of a thread. They are replaced as a whole, never changed in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from treadle.engine.features import DEFAULTS
from treadle.engine.terminals.shell import ShellSettings
from treadle.protocol.base import JsonValue
from treadle.protocol.collaboration import CollaborationMode
from treadle.protocol.collaboration import Settings as ModeSettings
from treadle.protocol.config import WebSearchMode, WebSearchToolConfig
from treadle.protocol.extension import AskPolicy
from treadle.protocol.model import Personality, ReasoningEffort, ReasoningSummary
from treadle.protocol.permission import ActivePermissionProfile
from treadle.protocol.policy import (
    ApprovalsReviewer,
    AskForApproval,
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.protocol.settings import ThreadSettings
from treadle.protocol.tool import DynamicToolSpec
from treadle.protocol.turn import TurnStartParams

if TYPE_CHECKING:
    from treadle.sandbox.network.policy import NetworkPolicy


_PERMISSIONS: Final = (
    *("approval_policy", "approvals_reviewer", "request_deadline"),
    *("sandbox", "permission_profile", "network"),
)


_FAST_TIERS: Final = ("fast", "priority")


class AgentLimits(Struct, frozen=True):
    """The maximum number of sub-agents of a thread, and the depth of their nesting."""

    max_threads: int = 6
    max_depth: int = 1


class Profile(NamedTuple):
    """A named permission profile and its policies."""

    active: ActivePermissionProfile
    sandbox: SandboxPolicy
    network: NetworkPolicy | None = None


class RunSettings(Struct, frozen=True, kw_only=True):
    """A thread's settings. A turn can override them; most overrides persist."""

    model: str
    model_provider: str
    cwd: str
    approval_policy: AskForApproval = "on-request"
    approvals_reviewer: ApprovalsReviewer = "user"
    sandbox: SandboxPolicy = field(default_factory=ReadOnlySandboxPolicy)
    # The profile that the sandbox policy comes from, if any.
    permission_profile: ActivePermissionProfile | None = None
    # The hosts that commands with network access can reach; `None` means all.
    network: NetworkPolicy | None = None
    # Whether a client chose the permissions, or the folder, of a sub-agent: if not, they follow
    # its parent's.
    has_own_permissions: bool = False
    has_own_folder: bool = False
    # Whether a sub-agent follows a parent that plans.
    follows_plan: bool = False
    # The settings that a client chose, which a changed configuration leaves alone.
    client_choices: frozenset[str] = frozenset()
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    verbosity: str | None = None
    personality: Personality | None = None
    service_tier: str | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None
    collaboration_mode: CollaborationMode | None = None
    context_window: int | None = None
    auto_compact_limit: int | None = None
    dynamic_tools: tuple[DynamicToolSpec, ...] = ()
    disabled_plugin_ids: tuple[str, ...] = ()
    publishes_raw_events: bool = False
    # The deadline of server requests and the answer on expiry; `None` means none.
    request_deadline: AskPolicy | None = None
    agents: AgentLimits = AgentLimits()
    # The feature flags that the configuration sets.
    features: Mapping[str, bool] = field(default_factory=dict)
    shell: ShellSettings = field(default_factory=ShellSettings)
    # `None`: the sandbox policy decides.
    web_search: WebSearchMode | None = None
    web_search_options: WebSearchToolConfig | None = None
    config: JsonValue = None
    # The client's name for its service, for logs.
    service_name: str | None = None
    # The user agent of requests to the model.
    user_agent: str = ""

    def overridden_by(self, params: TurnStartParams, profile: Profile | None = None) -> RunSettings:
        """Return these settings with the overrides of a turn.

        A collaboration mode determines model and effort, even if its effort is `None`. `profile` is
        the permission profile that the turn names.
        """
        mode = params.collaboration_mode
        overrides = {
            "model": (mode.settings.model if mode else None) or params.model,
            "cwd": params.cwd,
            "approval_policy": params.approval_policy,
            "approvals_reviewer": params.approvals_reviewer,
            "sandbox": profile.sandbox if profile else params.sandbox_policy,
            "effort": params.effort,
            "summary": params.summary,
            "personality": params.personality,
            "collaboration_mode": mode,
            "disabled_plugin_ids": _as_tuple(params.disabled_plugin_ids),
        }
        changed: dict[str, JsonValue] = {
            name: value for name, value in overrides.items() if value is not None
        }
        if params.service_tier is not UNSET:
            changed["service_tier"] = params.service_tier
        if "sandbox" in changed:
            changed["permission_profile"] = profile.active if profile else None
        if profile is not None:
            changed["network"] = profile.network
        if mode is not None:
            changed["effort"] = mode.settings.reasoning_effort
        return self.chosen(**changed)

    def is_enabled(self, feature: str) -> bool:
        """Return whether a feature of the table is on."""
        return self.features.get(feature, DEFAULTS[feature])

    @property
    def is_planning(self) -> bool:
        """Whether the thread plans, and changes nothing."""
        return self.mode().mode == "plan"

    @property
    def changes_nothing(self) -> bool:
        """Whether the thread plans, or works for one that does."""
        return self.is_planning or self.follows_plan

    @property
    def enforced_sandbox(self) -> SandboxPolicy:
        """The sandbox of commands and edits: in plan mode, they write nothing."""
        policy = self.sandbox
        if not self.changes_nothing:
            return policy
        if isinstance(policy, WorkspaceWriteSandboxPolicy):
            return ReadOnlySandboxPolicy(
                network_access=policy.network_access, access=policy.read_only_access
            )
        if isinstance(policy, DangerFullAccessSandboxPolicy):
            return ReadOnlySandboxPolicy(network_access=True)
        if isinstance(policy, ExternalSandboxSandboxPolicy):
            # What is around the server does not know that the thread plans.
            return ReadOnlySandboxPolicy(network_access=policy.network_access == "enabled")
        return policy

    @property
    def reviewer(self) -> ApprovalsReviewer:
        """Who decides about approvals: the user, unless the guardian may."""
        return self.approvals_reviewer if self.is_enabled("guardian_approval") else "user"

    @property
    def requested_tier(self) -> str | None:
        """The service tier of requests to the model."""
        is_fast = self.service_tier in _FAST_TIERS
        return None if is_fast and not self.is_enabled("fast_mode") else self.service_tier

    def chosen(self, **changed: JsonValue) -> RunSettings:
        """Return these settings with the changes that a client chose."""
        settings = replace(self, **changed)
        has_own = self.has_own_permissions or settings.permissions() != self.permissions()
        return replace(
            settings,
            has_own_permissions=has_own,
            follows_plan=self.follows_plan and not has_own,
            has_own_folder=self.has_own_folder or settings.cwd != self.cwd,
            client_choices=self.client_choices | changed.keys(),
        )

    def differs_from(self, other: RunSettings) -> bool:
        """Return whether a thread would behave differently with these settings."""
        return replace(self, client_choices=other.client_choices) != other

    def permissions(self) -> dict[str, JsonValue]:
        """Return what the thread may do, apart from its folder, and who is asked for more."""
        return {name: getattr(self, name) for name in _PERMISSIONS}

    def following(self, parent: RunSettings) -> RunSettings:
        """Return these settings of a sub-agent with what its parent may do now.

        What a client chose for the sub-agent stays.
        """
        changed: dict[str, JsonValue] = {}
        if not self.has_own_permissions:
            changed = {
                **parent.permissions(),
                "sandbox": parent.enforced_sandbox,
                "follows_plan": parent.changes_nothing,
            }
        if not self.has_own_folder:
            changed["cwd"] = parent.cwd
        return replace(self, **changed)

    def mode(self) -> CollaborationMode:
        """Return the collaboration mode in force, or the default mode."""
        chosen = self.collaboration_mode if self.is_enabled("collaboration_modes") else None
        settings = ModeSettings(
            model=self.model,
            developer_instructions=chosen.settings.developer_instructions if chosen else None,
            reasoning_effort=self.effort,
        )
        return CollaborationMode(mode=chosen.mode if chosen else "default", settings=settings)

    def to_protocol(self) -> ThreadSettings:
        """Return the settings as clients see them."""
        return ThreadSettings(
            approval_policy=self.approval_policy,
            approvals_reviewer=self.approvals_reviewer,
            collaboration_mode=self.mode(),
            cwd=self.cwd,
            model=self.model,
            model_provider=self.model_provider,
            sandbox_policy=self.sandbox,
            active_permission_profile=self.permission_profile,
            effort=self.effort,
            personality=self.personality,
            service_tier=self.service_tier,
            summary=self.summary,
        )


def _as_tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
