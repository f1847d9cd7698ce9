"""What a thread's turns run under. Replaced as a whole, never changed in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

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
    ReadOnlySandboxPolicy,
    SandboxPolicy,
)
from treadle.protocol.settings import ThreadSettings
from treadle.protocol.tool import DynamicToolSpec
from treadle.protocol.turn import TurnStartParams

if TYPE_CHECKING:
    from treadle.sandbox.network.policy import NetworkPolicy


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """How many agents may work for a thread, and how many generations of them."""

    max_threads: int = 6
    max_depth: int = 1


class Profile(NamedTuple):
    """A permission profile by its name, and the policy that it stands for."""

    active: ActivePermissionProfile
    sandbox: SandboxPolicy
    network: NetworkPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """A thread's settings; a turn may override them, and most overrides stay."""

    model: str
    model_provider: str
    cwd: str
    approval_policy: AskForApproval = "on-request"
    approvals_reviewer: ApprovalsReviewer = "user"
    sandbox: SandboxPolicy = field(default_factory=ReadOnlySandboxPolicy)
    # Where the sandbox policy comes from, if it has a name.
    permission_profile: ActivePermissionProfile | None = None
    # Which hosts commands reach where they have the network; null is all of them.
    network: NetworkPolicy | None = None
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
    asks: AskPolicy | None = None
    agents: AgentLimits = AgentLimits()
    # Features that are plainly on or off.
    features: Mapping[str, bool] = field(default_factory=dict)
    shell: ShellSettings = field(default_factory=ShellSettings)
    # Null leaves it to the sandbox policy.
    web_search: WebSearchMode | None = None
    web_search_options: WebSearchToolConfig | None = None
    config: JsonValue = None
    # How requests to the model introduce the client that they are made for.
    user_agent: str = ""

    def overridden_by(self, params: TurnStartParams, profile: Profile | None = None) -> RunSettings:
        """These settings under what a turn asks for; what it leaves out stays.

        A collaboration mode decides about model and effort, also by giving no effort. The profile
        is the one that the turn names.
        """
        mode = params.collaboration_mode
        given = {
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
            name: value for name, value in given.items() if value is not None
        }
        if params.service_tier is not UNSET:
            changed["service_tier"] = params.service_tier
        if "sandbox" in changed:
            changed["permission_profile"] = profile.active if profile else None
        if profile is not None:
            changed["network"] = profile.network
        if mode is not None:
            changed["effort"] = mode.settings.reasoning_effort
        return replace(self, **changed)

    def mode(self) -> CollaborationMode:
        """The collaboration mode, the default one if none was chosen, as it stands now."""
        chosen = self.collaboration_mode
        settings = ModeSettings(
            model=self.model,
            developer_instructions=chosen.settings.developer_instructions if chosen else None,
            reasoning_effort=self.effort,
        )
        return CollaborationMode(mode=chosen.mode if chosen else "default", settings=settings)

    def to_protocol(self) -> ThreadSettings:
        """The settings as clients are told them."""
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
