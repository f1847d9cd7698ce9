"""Hooks: programs that run at set points of a turn."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType, field

from treadle.protocol.base import (
    AbsolutePathBuf,
    Int64,
    JsonValue,
    LegacyAppPathString,
    Params,
    UInt64,
    Value,
)


class CommandConfiguredHookHandler(Value, tag="command", frozen=True):
    """A shell command that handles a hook event."""

    async_: bool
    command: str
    # Tokens beyond which its context goes to a file: 2500 by default, 0 for never.
    additional_context_limit: UInt64 | None = None
    command_windows: str | None = None
    status_message: str | None = None
    timeout_sec: UInt64 | None = None


class McpToolConfiguredHookHandler(Value, tag="mcp_tool", frozen=True):
    """A tool of an MCP server that handles a hook event."""

    input: dict[str, JsonValue]
    server: str
    tool: str
    status_message: str | None = None
    timeout_sec: UInt64 | None = None


class PromptConfiguredHookHandler(Value, tag="prompt", frozen=True):
    """A hook that is a prompt to the model; configurations may name it."""


class AgentConfiguredHookHandler(Value, tag="agent", frozen=True):
    """A hook that is an agent; configurations may name it."""


ConfiguredHookHandler = (
    CommandConfiguredHookHandler
    | McpToolConfiguredHookHandler
    | PromptConfiguredHookHandler
    | AgentConfiguredHookHandler
)


class ConfiguredHookMatcherGroup(Value, frozen=True):
    """Handlers that run when an event matches a pattern, or always without one."""

    hooks: list[ConfiguredHookHandler]
    matcher: str | None = None


HookEventName = Literal[
    "preToolUse",
    "permissionRequest",
    "postToolUse",
    "preModelRequest",
    "postModelRequest",
    "preCompact",
    "postCompact",
    "sessionStart",
    "sessionEnd",
    "userPromptSubmit",
    "subagentStart",
    "subagentStop",
    "stop",
    "interrupt",
]

HookExecutionMode = Literal["sync", "async"]

HookHandlerType = Literal["command", "mcpTool", "prompt", "agent"]

HookOutputEntryKind = Literal["warning", "stop", "feedback", "context", "error"]


class HookOutputEntry(Value, frozen=True):
    """One message of a hook, and its kind."""

    kind: HookOutputEntryKind
    text: str


HookRunStatus = Literal["running", "completed", "failed", "blocked", "stopped"]

HookScope = Literal["thread", "turn"]

HookSource = Literal[
    "system",
    "user",
    "project",
    "mdm",
    "sessionFlags",
    "plugin",
    "cloudRequirements",
    "cloudManagedConfig",
    "legacyManagedConfigFile",
    "legacyManagedConfigMdm",
    "unknown",
]


class HookRunSummary(Value, frozen=True):
    """One run of one hook: its trigger, its source and its outcome."""

    display_order: Int64
    entries: list[HookOutputEntry]
    event_name: HookEventName
    execution_mode: HookExecutionMode
    handler_type: HookHandlerType
    id: str
    scope: HookScope
    source_path: LegacyAppPathString
    started_at: Int64
    status: HookRunStatus
    completed_at: Int64 | None = None
    duration_ms: Int64 | None = None
    source: HookSource = "unknown"
    status_message: str | None = None


class HookCompletedNotification(Value, frozen=True):
    """A hook has finished; the turn is absent when it ran for the thread as a whole."""

    run: HookRunSummary
    thread_id: str
    turn_id: str | None = None


class HookErrorInfo(Value, frozen=True):
    """A hook file that could not be loaded, and why."""

    message: str
    path: str


HookTrustStatus = Literal["managed", "untrusted", "trusted", "modified"]
"""`modified`: trusted once, but changed since."""


class CommandHookMetadata(Value, tag_field="handlerType", tag="command", frozen=True):
    """A discovered hook that runs a shell command, and whether it is trusted."""

    current_hash: str
    display_order: Int64
    enabled: bool
    event_name: HookEventName
    is_managed: bool
    key: str
    source: HookSource
    source_path: AbsolutePathBuf
    timeout_sec: UInt64
    trust_status: HookTrustStatus
    command: str
    additional_context_limit: UInt64 | None = None
    environment_id: str | UnsetType | None = UNSET
    matcher: str | None = None
    plugin_id: str | None = None
    status_message: str | None = None
    async_: bool = False


class McpToolHookMetadata(Value, tag_field="handlerType", tag="mcpTool", frozen=True):
    """A discovered hook that calls a tool of an MCP server."""

    current_hash: str
    display_order: Int64
    enabled: bool
    event_name: HookEventName
    is_managed: bool
    key: str
    source: HookSource
    source_path: AbsolutePathBuf
    timeout_sec: UInt64
    trust_status: HookTrustStatus
    server: str
    tool: str
    additional_context_limit: UInt64 | None = None
    environment_id: str | UnsetType | None = UNSET
    matcher: str | None = None
    plugin_id: str | None = None
    status_message: str | None = None


class PromptHookMetadata(Value, tag_field="handlerType", tag="prompt", frozen=True):
    """A discovered hook that prompts the model."""

    current_hash: str
    display_order: Int64
    enabled: bool
    event_name: HookEventName
    is_managed: bool
    key: str
    source: HookSource
    source_path: AbsolutePathBuf
    timeout_sec: UInt64
    trust_status: HookTrustStatus
    additional_context_limit: UInt64 | None = None
    environment_id: str | UnsetType | None = UNSET
    matcher: str | None = None
    plugin_id: str | None = None
    status_message: str | None = None


class AgentHookMetadata(Value, tag_field="handlerType", tag="agent", frozen=True):
    """A discovered hook that runs an agent."""

    current_hash: str
    display_order: Int64
    enabled: bool
    event_name: HookEventName
    is_managed: bool
    key: str
    source: HookSource
    source_path: AbsolutePathBuf
    timeout_sec: UInt64
    trust_status: HookTrustStatus
    additional_context_limit: UInt64 | None = None
    environment_id: str | UnsetType | None = UNSET
    matcher: str | None = None
    plugin_id: str | None = None
    status_message: str | None = None


HookMetadata = CommandHookMetadata | McpToolHookMetadata | PromptHookMetadata | AgentHookMetadata


class HookPromptFragment(Value, frozen=True):
    """Text that one run of a hook added to the conversation."""

    hook_run_id: str
    text: str


class HookStartedNotification(Value, frozen=True):
    """A hook has begun to run."""

    run: HookRunSummary
    thread_id: str
    turn_id: str | None = None


class HooksListEntry(Value, frozen=True):
    """The hooks that apply in one folder, and the errors while reading them."""

    cwd: str
    errors: list[HookErrorInfo]
    hooks: list[HookMetadata]
    warnings: list[str]


class HooksListParams(Params, frozen=True):
    """List the hooks that apply in some folders, by default the server's own."""

    cwds: list[str] = []
    # Lists the hooks of a loaded thread instead; excludes `cwds`.
    thread_id: str | None = None


class HooksListResponse(Value, frozen=True):
    """The hooks, one entry for each folder."""

    data: list[HooksListEntry]


class ManagedHooksRequirements(Value, frozen=True):
    """Hooks that an administrator imposes, by event, and the folders of their scripts."""

    permission_request: list[ConfiguredHookMatcherGroup] = field(name="PermissionRequest")
    post_compact: list[ConfiguredHookMatcherGroup] = field(name="PostCompact")
    post_tool_use: list[ConfiguredHookMatcherGroup] = field(name="PostToolUse")
    pre_compact: list[ConfiguredHookMatcherGroup] = field(name="PreCompact")
    pre_tool_use: list[ConfiguredHookMatcherGroup] = field(name="PreToolUse")
    session_start: list[ConfiguredHookMatcherGroup] = field(name="SessionStart")
    stop: list[ConfiguredHookMatcherGroup] = field(name="Stop")
    subagent_start: list[ConfiguredHookMatcherGroup] = field(name="SubagentStart")
    subagent_stop: list[ConfiguredHookMatcherGroup] = field(name="SubagentStop")
    user_prompt_submit: list[ConfiguredHookMatcherGroup] = field(name="UserPromptSubmit")
    interrupt: list[ConfiguredHookMatcherGroup] = field(name="Interrupt", default_factory=list)
    post_model_request: list[ConfiguredHookMatcherGroup] = field(
        name="PostModelRequest", default_factory=list
    )
    pre_model_request: list[ConfiguredHookMatcherGroup] = field(
        name="PreModelRequest", default_factory=list
    )
    session_end: list[ConfiguredHookMatcherGroup] = field(name="SessionEnd", default_factory=list)
    managed_dir: str | None = None
    windows_managed_dir: str | None = None
