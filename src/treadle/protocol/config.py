"""The effective configuration, its layers, and writes to it."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.app import AppsConfig
from treadle.protocol.base import (
    AbsolutePathBuf,
    Int64,
    JsonValue,
    Params,
    SnakeValue,
    Value,
    experimental,
)
from treadle.protocol.computer_use import BrowserUseConfig, ComputerUseConfig
from treadle.protocol.model import ReasoningEffort, ReasoningSummary
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxMode


class AnalyticsConfig(Value, frozen=True):
    """The `[analytics]` table: whether usage may be measured."""

    enabled: bool | None = None


AutoCompactTokenLimitScope = Literal["total", "body_after_prefix"]
"""What counts against the limit: the whole context, or its growth since the prefix."""

ForcedChatgptWorkspaceIds = str | list[str]

ForcedLoginMethod = Literal["chatgpt", "api"]
"""The only sign-in method that the configuration permits."""

WebSearchContextSize = Literal["low", "medium", "high"]


class WebSearchLocation(Value, frozen=True):
    """The user's approximate location, so that a search can favour nearby results."""

    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class WebSearchToolConfig(SnakeValue, frozen=True):
    """Which sites a web search may use, how much it returns, and the assumed location."""

    allowed_domains: list[str] | None = None
    context_size: WebSearchContextSize | None = None
    location: WebSearchLocation | None = None


class ToolsV2(SnakeValue, frozen=True):
    """The `[tools]` table: settings of the built-in tools."""

    web_search: WebSearchToolConfig | None = None
    view_image: bool | None = None


Verbosity = Literal["low", "medium", "high"]

WebSearchMode = Literal["disabled", "cached", "indexed", "live"]


class ProfileV2(SnakeValue, frozen=True):
    """A named set of settings that may be merged over the rest of the file."""

    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    chatgpt_base_url: str | None = None
    model: str | None = None
    model_provider: str | None = None
    model_reasoning_effort: ReasoningEffort | None = None
    model_reasoning_summary: ReasoningSummary | None = None
    model_verbosity: Verbosity | None = None
    service_tier: str | None = None
    tools: ToolsV2 | None = None
    web_search: WebSearchMode | None = None


class SandboxWorkspaceWrite(SnakeValue, frozen=True):
    """Access that the `workspace-write` sandbox allows besides the workspace."""

    exclude_slash_tmp: bool = False
    exclude_tmpdir_env_var: bool = False
    network_access: bool = False
    writable_roots: list[str] = []


WebSearchProvider = Literal["standalone", "search_mcp"]


@experimental("apps")
class Config(SnakeValue, frozen=True):
    """The settings in force after all layers are merged, spelled as in `config.toml`."""

    analytics: AnalyticsConfig | None = None
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    apps: AppsConfig | None = None
    browser_use: BrowserUseConfig | None = None
    client_search_provider: WebSearchProvider | UnsetType | None = UNSET
    compact_prompt: str | None = None
    computer_use: ComputerUseConfig | None = None
    desktop: dict[str, JsonValue] | None = None
    developer_instructions: str | None = None
    forced_chatgpt_workspace_id: ForcedChatgptWorkspaceIds | None = None
    forced_login_method: ForcedLoginMethod | None = None
    instructions: str | None = None
    model: str | None = None
    model_auto_compact_token_limit: Int64 | None = None
    model_auto_compact_token_limit_scope: AutoCompactTokenLimitScope | None = None
    model_context_window: Int64 | None = None
    model_provider: str | None = None
    model_reasoning_effort: ReasoningEffort | None = None
    model_reasoning_summary: ReasoningSummary | None = None
    model_verbosity: Verbosity | None = None
    review_model: str | None = None
    sandbox_mode: SandboxMode | None = None
    sandbox_workspace_write: SandboxWorkspaceWrite | None = None
    service_tier: str | None = None
    tools: ToolsV2 | None = None
    web_search: WebSearchMode | None = None
    profile: str | None = None
    profiles: dict[str, ProfileV2] = {}


MergeStrategy = Literal["replace", "upsert"]
"""Whether a table is replaced or merged into."""


class ConfigEdit(Value, frozen=True):
    """One change to a configuration file: a dotted key and its new value."""

    key_path: str
    merge_strategy: MergeStrategy
    value: JsonValue


class ConfigBatchWriteParams(Params, frozen=True):
    """Make several changes to a configuration file atomically."""

    edits: list[ConfigEdit]
    # The write is rejected if the file no longer has this version.
    expected_version: str | None = None
    # The user's config.toml by default.
    file_path: str | None = None
    # Applies the change to loaded threads, except for model, effort and service tier.
    reload_user_config: bool = False


class EnterpriseManagedConfigLayerSource(Value, tag="enterpriseManaged", frozen=True):
    """Settings that the organisation's administrator sends from the cloud."""

    id: str
    name: str


class LegacyManagedConfigTomlFromFileConfigLayerSource(
    Value, tag="legacyManagedConfigTomlFromFile", frozen=True
):
    """An old `managed_config.toml`, which overrides every other layer."""

    file: AbsolutePathBuf


class LegacyManagedConfigTomlFromMdmConfigLayerSource(
    Value, tag="legacyManagedConfigTomlFromMdm", frozen=True
):
    """An old managed configuration that device management delivered."""


class MdmConfigLayerSource(Value, tag="mdm", frozen=True):
    """Preferences that device management set on a Mac."""

    domain: str
    key: str


class PackagedDefaultsConfigLayerSource(Value, tag="packagedDefaults", frozen=True):
    """Defaults shipped with the installation."""

    file: AbsolutePathBuf


class ProjectConfigLayerSource(Value, tag="project", frozen=True):
    """The `.codex` folder of a project; there may be several between its root and the cwd."""

    dot_codex_folder: AbsolutePathBuf


class SessionFlagsConfigLayerSource(Value, tag="sessionFlags", frozen=True):
    """Settings from the command line of this run."""


class SystemConfigLayerSource(Value, tag="system", frozen=True):
    """The configuration of the whole machine; the file need not exist."""

    file: AbsolutePathBuf


class UserConfigLayerSource(Value, tag="user", frozen=True):
    """The user's own `config.toml`, the target of writes; it need not exist."""

    file: AbsolutePathBuf
    profile: str | None = None


ConfigLayerSource = (
    PackagedDefaultsConfigLayerSource
    | MdmConfigLayerSource
    | SystemConfigLayerSource
    | EnterpriseManagedConfigLayerSource
    | UserConfigLayerSource
    | ProjectConfigLayerSource
    | SessionFlagsConfigLayerSource
    | LegacyManagedConfigTomlFromFileConfigLayerSource
    | LegacyManagedConfigTomlFromMdmConfigLayerSource
)


class ConfigLayer(Value, frozen=True):
    """One source of settings with its content, and why it is disabled if it is."""

    config: JsonValue
    name: ConfigLayerSource
    version: str
    disabled_reason: str | None = None


class ConfigLayerMetadata(Value, frozen=True):
    """The source of a setting, and the version of that source."""

    name: ConfigLayerSource
    version: str


class ConfigReadParams(Params, frozen=True):
    """Read the settings in force for a folder."""

    cwd: str | None = None
    include_layers: bool = False


class ConfigReadResponse(Value, frozen=True):
    """The settings in force, and the layer that each dotted key comes from."""

    config: Config
    origins: dict[str, ConfigLayerMetadata]
    layers: list[ConfigLayer] | None = None


class ConfigValueWriteParams(Params, frozen=True):
    """Change one key of a configuration file."""

    key_path: str
    merge_strategy: MergeStrategy
    value: JsonValue
    expected_version: str | None = None
    file_path: str | None = None


class OverriddenMetadata(Value, frozen=True):
    """Why a written value has no effect: the higher layer that overrides it."""

    effective_value: JsonValue
    message: str
    overriding_layer: ConfigLayerMetadata


WriteStatus = Literal["ok", "okOverridden"]
"""`okOverridden`: written, but a higher layer overrides the value."""


class ConfigWriteResponse(Value, frozen=True):
    """The file that was written, its new version, and whether the change takes effect."""

    file_path: AbsolutePathBuf
    status: WriteStatus
    version: str
    overridden_metadata: OverriddenMetadata | None = None
