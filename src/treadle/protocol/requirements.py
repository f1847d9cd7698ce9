"""An administrator's requirements."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import (
    JsonValue,
    LegacyAppPathString,
    Params,
    Value,
    experimental,
)
from treadle.protocol.computer_use import BrowserUseRequirements, ComputerUseRequirements
from treadle.protocol.config import ForcedLoginMethod, WebSearchMode
from treadle.protocol.feedback import FeedbackRequirements
from treadle.protocol.hook import ManagedHooksRequirements
from treadle.protocol.model import ReasoningEffort
from treadle.protocol.network import ApplicationNetworkRequirements, NetworkRequirements
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxMode
from treadle.protocol.telemetry import OtelRequirements
from treadle.protocol.windows_sandbox import WindowsSandboxImplementation


class ApplicationStorageRequirements(Value, frozen=True):
    """Where the client application creates new workspaces."""

    default_project_parent: LegacyAppPathString | None = None
    projectless_workspace_root: LegacyAppPathString | None = None


class ApplicationRequirements(Value, frozen=True):
    """An administrator's requirements for the client application rather than the agent."""

    network: ApplicationNetworkRequirements | None = None
    storage: ApplicationStorageRequirements | UnsetType | None = UNSET


class AutoReviewRequirements(Value, frozen=True):
    """An administrator's requirements for automatic review of approvals."""

    ignore_rules: list[str] | None = None
    required_on_models: list[str] | None = None


class BedrockCheckGovCloudRequirementsParams(Params, frozen=True):
    """Read whether the current Bedrock setup needs a GovCloud warning."""


class BedrockCheckGovCloudRequirementsResponse(Value, frozen=True):
    """Whether Bedrock uses GovCloud, and whether the managed rules are insufficient for it."""

    is_gov_cloud: bool
    should_warn: bool


CliAuthCredentialsStoreMode = Literal["file", "keyring", "auto", "ephemeral"]


class InAppBrowserRequirements(Value, frozen=True):
    """An administrator's requirements for the client's own browser."""

    allow_external_browser_settings_import: bool | None = None


class NewThreadModelDefaults(Value, frozen=True):
    """The model, effort and tier that an administrator sets for new threads."""

    model: str | None = None
    model_reasoning_effort: ReasoningEffort | None = None
    service_tier: str | None = None


class ModelsRequirements(Value, frozen=True):
    """An administrator's requirements for models."""

    new_thread: NewThreadModelDefaults | None = None


ResidencyRequirement = Literal["us"]


@experimental("allowed_approvals_reviewers", "application", "hooks", "network")
class ConfigRequirements(Value, frozen=True):
    """All requirements of an administrator; null imposes none."""

    additional_developer_instructions: str | None = None
    allow_appshots: bool | None = None
    allow_browser_and_computer_use: bool | None = None
    allow_login_shell: bool | None = None
    allow_managed_hooks_only: bool | None = None
    allow_remote_control: bool | None = None
    allowed_approval_policies: list[AskForApproval] | None = None
    allowed_approvals_reviewers: list[ApprovalsReviewer] | None = None
    # An empty list allows no sign-in at all.
    allowed_login_methods: list[ForcedLoginMethod] | None = None
    allowed_permission_profiles: dict[str, bool] | None = None
    allowed_sandbox_modes: list[SandboxMode] | None = None
    allowed_web_search_modes: list[WebSearchMode] | None = None
    allowed_windows_sandbox_implementations: list[WindowsSandboxImplementation] | None = None
    application: ApplicationRequirements | None = None
    auto_review: AutoReviewRequirements | None = None
    browser_use: BrowserUseRequirements | None = None
    chatgpt_base_url: str | None = None
    check_for_update_on_startup: bool | None = None
    cli_auth_credentials_store: CliAuthCredentialsStoreMode | None = None
    computer_use: ComputerUseRequirements | None = None
    default_permissions: str | None = None
    enforce_residency: ResidencyRequirement | None = None
    feature_requirements: dict[str, bool] | None = None
    feedback: FeedbackRequirements | None = None
    hooks: ManagedHooksRequirements | None = None
    in_app_browser: InAppBrowserRequirements | None = None
    log_dir: str | None = None
    model_catalog_json: str | None = None
    model_provider: str | None = None
    # Spelled as in config.toml.
    model_providers: dict[str, JsonValue] | None = None
    models: ModelsRequirements | None = None
    network: NetworkRequirements | None = None
    otel: OtelRequirements | UnsetType | None = UNSET
    sqlite_home: str | None = None


class ConfigRequirementsReadResponse(Value, frozen=True):
    """The administrator's requirements, or null if there are none."""

    requirements: ConfigRequirements | None = None
    supports_independent_speed_modes: bool | None = None
