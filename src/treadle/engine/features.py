"""The feature flags: one table of those that this server honours, and the names of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from treadle.protocol.base import JsonValue
from treadle.protocol.feature import ExperimentalFeature, ExperimentalFeatureStage


class FeatureFlag(Struct, frozen=True):
    """A flag, its stage and default; only beta flags have texts for users."""

    name: str
    stage: ExperimentalFeatureStage
    is_default: bool
    display_name: str | None = None
    description: str | None = None
    announcement: str | None = None

    def to_protocol(self, *, is_enabled: bool) -> ExperimentalFeature:
        """Return the flag as clients see it."""
        return ExperimentalFeature(
            default_enabled=self.is_default,
            enabled=is_enabled,
            name=self.name,
            stage=self.stage,
            announcement=self.announcement,
            description=self.description,
            display_name=self.display_name,
        )


FLAGS: Final = (
    FeatureFlag("shell_tool", "stable", is_default=True),
    FeatureFlag("unified_exec", "stable", is_default=True),
    FeatureFlag("unified_exec_tty", "stable", is_default=True),
    FeatureFlag("view_image", "stable", is_default=True),
    FeatureFlag("apply_patch_freeform", "underDevelopment", is_default=False),
    FeatureFlag("web_search_request", "deprecated", is_default=False),
    FeatureFlag("web_search_cached", "deprecated", is_default=False),
    FeatureFlag("multi_agent", "stable", is_default=True),
    FeatureFlag("goals", "stable", is_default=True),
    FeatureFlag("hooks", "stable", is_default=True),
    FeatureFlag("apps", "stable", is_default=True),
    FeatureFlag("plugins", "stable", is_default=True),
    FeatureFlag("personality", "stable", is_default=True),
    FeatureFlag("collaboration_modes", "stable", is_default=True),
    FeatureFlag("request_permissions_tool", "underDevelopment", is_default=False),
    FeatureFlag("exec_permission_approvals", "underDevelopment", is_default=False),
    FeatureFlag("default_mode_request_user_input", "underDevelopment", is_default=False),
    FeatureFlag("guardian_approval", "stable", is_default=True),
    FeatureFlag("tool_search", "stable", is_default=True),
    FeatureFlag("tool_search_always_defer_mcp_tools", "underDevelopment", is_default=False),
    FeatureFlag("fast_mode", "stable", is_default=True),
    FeatureFlag(
        "network_proxy",
        "beta",
        is_default=False,
        display_name="Network proxy",
        description="Lets sandboxed commands reach chosen hosts only, through a proxy.",
        announcement="Commands can be limited to chosen hosts: enable the network proxy, and list "
        "the hosts in config.toml.",
    ),
)
DEFAULTS: Final = {flag.name: flag.is_default for flag in FLAGS}

SWITCHABLE: Final = ("apps", "plugins")
"""The flags that a client can switch while the server runs."""

ALIASES: Final = {
    "codex_hooks": "hooks",
    "collab": "multi_agent",
    "connectors": "apps",
    "experimental_use_freeform_apply_patch": "apply_patch_freeform",
    "experimental_use_unified_exec_tool": "unified_exec",
    "include_apply_patch_tool": "apply_patch_freeform",
    "request_permissions": "exec_permission_approvals",
    "web_search": "web_search_request",
}
"""Older names of flags."""

# A file shared with Codex must not cause warnings: what these flags switch does not exist here.
_OTHERS: Final = frozenset(
    """
    agent_message_board agent_message_board_mcp analytics_plan_history
    api_key_cyber_access_programs api_key_model_discovery app_server_websocket_compression
    apply_patch_preserve_line_endings apply_patch_streaming_events
    apps_early_resource_discovery apps_mcp_path_override artifact async_compaction
    async_compaction_root_only auth_elicitation background_paginated_rollout_migration
    bedrock_setup_wizard browser_annotation_api browser_use browser_use_external
    browser_use_full_cdp_access child_agents_md chronicle cli_daybreak cli_resume_account_check
    code_mode code_mode_buffered_exec code_mode_host code_mode_host_grpc
    code_mode_host_output_truncation code_mode_interrupt code_mode_only
    code_mode_only_strict_3p_tools code_mode_prewarm code_mode_tool_description_first
    code_mode_tool_search codex_apps_mcp_2026_07_28 codex_git_commit
    command_sessions_world_state compaction_image_budget computer_use
    concurrent_reasoning_summaries content_item_kinds context_management credential_masking
    critical_path_timing current_time_reminder cwd_relative_turn_diffs daemon_auto_start
    daybreak_program_propagation defer_mailbox_preemption deferred_executor
    deferred_tool_world_state elevated_windows_sandbox enable_fanout enable_mcp_apps
    enable_request_compression executed_tool_call_metadata executor_capability_discovery
    executor_capability_discovery_v2 experimental_windows_sandbox external_agent_memory_import
    external_migration gateway_setup_wizard gcp_setup_wizard
    guardian_conversation_history_tools guardian_denial_reconsideration
    guardian_enhanced_node_repl_transcripts guardian_ext guardian_include_additional_context
    guardian_native_multi_agent_history guardian_node_repl_transcript_images
    guardian_recorded_items guardian_reuse_parent_compaction guardian_root_handoff_context
    guardian_trust_orchestrator_connectors guardianv2 guardianv2.thread_context
    guardianv2_decisions_comparison guardianv3 hosted_search_policy image_detail_original
    image_generation image_generation_animation image_resize_notice in_app_browser in_app_chat
    in_app_dictation in_app_local_automation in_app_updates in_app_voice incremental_exec_tools
    incremental_tools incremental_tools_legacy incremental_tools_legacy_gcp instant_interrupt
    interrupt_on_cancel item_ids js_repl js_repl_tools_only local_thread_store_compression
    local_thread_store_shared_compression login_shell_package_path mcp_2026_07_28
    mcp_connection_sharing mcp_lazy_stdio_startup mcp_oauth_refresh_coordination
    mcp_tool_list_changed memories mentions_v2 model_catalog_in_context multi_agent_mode
    multi_agent_v2 multi_agent_v2_dynamic_tools multi_env_copy_file non_prefixed_mcp_tool_names
    nonfatal_clock_read_errors omit_app_server_notification_media omit_skill_descriptions
    output_token_replay plugin_discovery_prefetch plugin_hooks plugin_sharing
    powershell_shell_version prediction_preserve_parent_tools prefer_mxc prevent_idle_sleep psp
    realtime_conversation reasoning_effort_override recommended_plugins remote_compaction_v2
    remote_control remote_models remote_plugin request_rule resize_all_images
    respect_system_proxy responses_websockets responses_websockets_v2
    retain_client_developer_messages retain_client_tool_outputs rollout_budget
    runtime_agent_instances runtime_metrics search_tool secret_auth_storage send_async_message
    send_message_to_user_async shell_snapshot shell_snapshot_v2 shell_zsh_fork
    simplified_selection_hints skill_catalog_deltas skill_env_var_dependency_prompt
    skill_mcp_dependency_install skill_search skip_host_skill_discovery sleep_tool sqlite
    stable_environment_tools standalone_web_search steer step_model_switching
    subagent_default_context_limits subagent_thread_environments
    suppress_model_change_announcements system_proxy_fallback terminal_resize_reflow
    terminal_visualization_instructions token_budget tool_call_mcp_elicitation tool_suggest
    transcript_v2 tui_app_server tui_extensions_statusline tui_multi_backend tui_workspace
    ultrafast_mode unavailable_dummy_tools unbounded_connection_retries undo
    unified_exec_zsh_fork unified_image_budget untrusted_as_tool_output use_agent_identity
    use_legacy_landlock use_linux_sandbox_bwrap use_xaa wake_on_agent_messages
    windows_sandbox_service workspace_dependencies workspace_owner_usage_nudge worktrees
    write_stdin_approval
    enable_experimental_windows_sandbox memory_tool telepathy
    """.split()
)
KNOWN: Final = _OTHERS | {*DEFAULTS, *ALIASES}
"""All names that are valid in a `features` table."""


def canonical(name: str) -> str:
    """Return the current name of a flag."""
    return ALIASES.get(name, name)


def is_on(value: JsonValue) -> bool | None:
    """Return what a value in a `features` table means: a flag with options may be a table."""
    if isinstance(value, dict):
        value = value.get("enabled", False)
    return value if isinstance(value, bool) else None


def switched(value: JsonValue, *, to: bool) -> JsonValue:
    """Return the value of a flag with its options, switched."""
    return {**value, "enabled": to} if isinstance(value, dict) else to


def resolve(table: Mapping[str, JsonValue]) -> dict[str, bool]:
    """Return the switches that a `features` table sets; a current name wins over an older one."""
    names = sorted(table, key=lambda name: name not in ALIASES)
    values = ((canonical(name), is_on(table[name])) for name in names)
    return {name: value for name, value in values if name in DEFAULTS and value is not None}


def list_features(switches: Mapping[str, bool]) -> list[ExperimentalFeature]:
    """Return all flags with their state under these switches."""
    return [flag.to_protocol(is_enabled=switches.get(flag.name, flag.is_default)) for flag in FLAGS]
