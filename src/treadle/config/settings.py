"""Every key of `config.toml`, with its type and its default.

Keys that this server ignores are listed too: a file shared with Codex must not cause warnings
about valid settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from msgspec import field

from treadle.config.file import ConfigError
from treadle.engine.features import DEFAULTS, KNOWN, canonical, is_on
from treadle.model.provider import ProviderConfig
from treadle.protocol.base import Int64, JsonValue, UInt16, UInt64
from treadle.protocol.config import (
    AutoCompactTokenLimitScope,
    ForcedChatgptWorkspaceIds,
    ForcedLoginMethod,
    SandboxWorkspaceWrite,
    Verbosity,
    WebSearchMode,
)
from treadle.protocol.explain import explain
from treadle.protocol.extension import AskPolicy
from treadle.protocol.model import Personality, ReasoningEffort, ReasoningSummary
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxMode
from treadle.protocol.requirements import CliAuthCredentialsStoreMode

if TYPE_CHECKING:
    from treadle.sandbox.limits import CommandLimits

Table: TypeAlias = dict[str, JsonValue]


class ProjectTable(msgspec.Struct, frozen=True):
    """The user's trust in a folder."""

    trust_level: Literal["trusted", "untrusted"] | None = None


class LimitsTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resource limits of one command; see docs/sandbox.md. `None` means not set."""

    processes: int | str | None = None
    memory: int | str | None = None
    cpu_seconds: int | str | None = None
    open_files: int | str | None = None
    file_size: int | str | None = None
    disk_reserve: int | str | None = None
    nice: int | str | None = None
    output_file: int | str | None = None

    def read(self) -> CommandLimits:
        """Return the limits, with defaults for unset keys.

        Raises:
            ConfigError: a value is invalid for its key.
        """
        # Imported on use: most servers do not need it at startup.
        from treadle.sandbox.limits import BadLimit, read_limits

        try:
            return read_limits(msgspec.to_builtins(self))
        except BadLimit as error:
            raise ConfigError(str(error), key=f"sandbox.limits.{error.key}") from error


class SandboxTable(msgspec.Struct, frozen=True):
    """Options of the sandbox; Treadle's own, read when a client connects."""

    # Protects .git and similar folders under Landlock; no entry can then be created beside them.
    landlock_protects: bool = False
    limits: LimitsTable | None = None


class ConfigValues(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the merged layers; `None` means not set."""

    model: str | None = None
    review_model: str | None = None
    model_context_window: Int64 | None = None
    asks: AskPolicy | None = None
    model_auto_compact_token_limit: Int64 | None = None
    model_auto_compact_token_limit_scope: AutoCompactTokenLimitScope | None = None
    model_provider: str | None = None
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox: SandboxTable | None = None
    sandbox_mode: SandboxMode | None = None
    sandbox_workspace_write: SandboxWorkspaceWrite | None = None
    forced_chatgpt_workspace_id: ForcedChatgptWorkspaceIds | None = None
    forced_login_method: ForcedLoginMethod | None = None
    web_search: WebSearchMode | None = None
    tools: Table | None = None
    instructions: str | None = None
    developer_instructions: str | None = None
    compact_prompt: str | None = None
    model_reasoning_effort: ReasoningEffort | None = None
    model_reasoning_summary: ReasoningSummary | None = None
    model_verbosity: Verbosity | None = None
    service_tier: str | None = None
    analytics: Table | None = None
    apps: Table | None = None
    browser_use: Table | None = None
    computer_use: Table | None = None
    desktop: Table | None = None
    agents: Table | None = None
    allow_login_shell: bool = True
    allow_symlinked_codex_home: bool | None = None
    apps_mcp_product_sku: str | None = None
    audio: Table | None = None
    auto_review: Table | None = None
    background_terminal_max_timeout: UInt64 = 300_000
    chatgpt_base_url: str | None = None
    check_for_update_on_startup: bool | None = None
    cli_auth_credentials_store: CliAuthCredentialsStoreMode = "file"
    cloud: Table | None = None
    daybreak: bool | None = None
    default_permissions: str | None = None
    disable_paste_burst: bool | None = None
    experimental_compact_prompt_file: str | None = None
    experimental_realtime_start_instructions: str | None = None
    experimental_realtime_webrtc_call_base_url: str | None = None
    experimental_realtime_ws_backend_prompt: str | None = None
    experimental_realtime_ws_base_url: str | None = None
    experimental_realtime_ws_model: str | None = None
    experimental_realtime_ws_startup_context: str | None = None
    experimental_thread_store: Table | None = None
    experimental_thread_store_endpoint: str | None = None
    experimental_use_unified_exec_tool: bool | None = None
    # Most are booleans; some of Codex's are tables.
    features: Table = field(default_factory=dict)
    feedback: Table | None = None
    file_opener: str = "vscode"
    ghost_snapshot: Table | None = None
    goals: Table | None = None
    hide_agent_reasoning: bool = False
    history: Table = field(default_factory=lambda: {"persistence": "save-all", "max_bytes": None})
    hooks: Table | None = None
    include_apps_instructions: bool = True
    include_collaboration_mode_instructions: bool = True
    include_environment_context: bool = True
    include_environment_context_time: bool = True
    include_permissions_instructions: bool = True
    js_repl_node_module_dirs: list[str] | None = None
    js_repl_node_path: str | None = None
    log_dir: str | None = None
    marketplaces: Table = field(default_factory=dict)
    mcp_enterprise_managed_auth: Table | None = None
    mcp_oauth_callback_port: UInt16 | None = None
    mcp_oauth_callback_url: str | None = None
    mcp_oauth_credentials_store: Literal["auto", "file", "keyring"] = "auto"
    mcp_optional_startup_grace_ms: UInt64 | None = None
    mcp_servers: dict[str, Table] = field(default_factory=dict)
    memories: Table | None = None
    model_catalog_json: str | None = None
    model_instructions_file: str | None = None
    model_post_turn_compact_threshold_percent: UInt16 | None = None
    model_providers: dict[str, Table] = field(default_factory=dict)
    notice: Table | None = None
    notify: list[str] | None = None
    openai_base_url: str | None = None
    orchestrator: Table | None = None
    oss_provider: str | None = None
    otel: Table | None = None
    permissions: dict[str, Table] | None = None
    personality: Personality | None = None
    plan_mode_reasoning_effort: ReasoningEffort | None = None
    plugins: Table = field(default_factory=dict)
    profile: str | None = None
    profiles: dict[str, Table] = field(default_factory=dict)
    project_doc_fallback_filenames: list[str] = field(default_factory=list)
    project_doc_max_bytes: UInt64 = 32 * 1024
    project_root_markers: list[str] = field(default_factory=lambda: [".git"])
    projects: dict[str, ProjectTable] | None = None
    realtime: Table | None = None
    responses_api_metadata: Table | None = None
    shell_environment_policy: Table = field(default_factory=dict)
    show_raw_agent_reasoning: bool | None = None
    skills: Table | None = None
    sqlite_home: str | None = None
    suppress_unstable_features_warning: bool | None = None
    thread_unload_delay_secs: UInt64 | None = None
    tool_output_token_limit: UInt64 | None = None
    tool_suggest: Table | None = None
    tui: Table | None = None
    windows: Table | None = None


PROVIDER_KEYS: Final = tuple(
    """
    name base_url model_catalog_url env_key env_key_instructions experimental_bearer_token auth
    gateway_oauth aws wire_api capabilities query_params http_headers env_http_headers
    request_max_retries stream_max_retries stream_idle_timeout_ms websocket_connect_timeout_ms
    requires_openai_auth supports_websockets supports_standalone_web_search
    """.split()
)
"""Upstream's keys of a `model_providers` table; Treadle accepts more."""

# Valid keys that `config/read` does not list: of older releases, and one of Treadle's.
_UNLISTED: Final = frozenset(
    """
    base_instructions commit_attribution experimental_instructions_file
    experimental_use_freeform_apply_patch model_supports_reasoning_summaries
    windows_wsl_setup_acknowledged zsh_path
    """.split()
)
_KNOWN: Final = _UNLISTED | frozenset(ConfigValues.__struct_fields__)
_KNOWN_OF_PROVIDER: Final = frozenset(PROVIDER_KEYS) | {*ProviderConfig.__struct_fields__}
_KNOWN_OF_SANDBOX: Final = frozenset(SandboxWorkspaceWrite.__struct_fields__)


def unknown_keys(table: Mapping[str, JsonValue]) -> list[str]:
    """Return the unknown dotted keys in order."""
    unknown = [key for key in table if key not in _KNOWN]
    providers = table.get("model_providers")
    if isinstance(providers, dict):
        for name, provider in providers.items():
            unknown += _unknown_in(f"model_providers.{name}", provider, _KNOWN_OF_PROVIDER)
    sandbox = table.get("sandbox_workspace_write")
    unknown += _unknown_in("sandbox_workspace_write", sandbox, _KNOWN_OF_SANDBOX)
    own = table.get("sandbox")
    unknown += _unknown_in("sandbox", own, frozenset(SandboxTable.__struct_fields__))
    unknown += _unknown_in("features", table.get("features"), KNOWN)
    limits = own.get("limits") if isinstance(own, dict) else None
    unknown += _unknown_in("sandbox.limits", limits, frozenset(LimitsTable.__struct_fields__))
    return sorted(unknown)


def _unknown_in(path: str, table: JsonValue, known: frozenset[str]) -> list[str]:
    return [f"{path}.{key}" for key in table if key not in known] if isinstance(table, dict) else []


def check(table: Mapping[str, JsonValue]) -> ConfigValues:
    """Validate a table of settings.

    Raises:
        ConfigError: a value is invalid; the message names its dotted key and what was expected.
    """
    try:
        settings = msgspec.convert(table, ConfigValues)
    except msgspec.ValidationError as error:
        fault = explain(error, ConfigValues)
        path = _name_entry(table, fault.path)
        raise ConfigError(fault.message.replace(fault.path, path), key=path) from error
    check_features(settings.features)
    if settings.sandbox is not None and settings.sandbox.limits is not None:
        settings.sandbox.limits.read()
    return settings


def check_features(table: Table) -> None:
    """Check the values of the flags that this server honours.

    Raises:
        ConfigError: a value is not a boolean.
    """
    for name, value in table.items():
        if canonical(name) in DEFAULTS and is_on(value) is None:
            kind = type(value).__name__
            key = f"features.{name}"
            raise ConfigError(f"invalid type at `{key}`: expected `bool`, got `{kind}`", key=key)


def older_switches(settings: ConfigValues) -> dict[str, bool]:
    """Return the features that keys of older releases set."""
    older = {
        "unified_exec": settings.experimental_use_unified_exec_tool,
        "view_image": (settings.tools or {}).get("view_image"),
    }
    return {name: value for name, value in older.items() if isinstance(value, bool)}


def _name_entry(table: Mapping[str, JsonValue], path: str) -> str:
    """Return a path with the name of the invalid entry, which the decoder omits."""
    key, dots, rest = path.partition("[...]")
    inner = table.get(key)
    if not dots or not isinstance(inner, dict):
        return path
    for name, value in inner.items():
        try:
            msgspec.convert({key: {name: value}}, ConfigValues)
        except msgspec.ValidationError:
            return f"{key}.{name}{rest}"
    return path
