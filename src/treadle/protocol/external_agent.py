"""Moving configuration and history over from other agents."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, Params, UInt32, Value


class CommandMigration(Value, frozen=True):
    """A custom command found in another agent's set-up."""

    name: str


class ExternalAgentConfigDetectParams(Params, frozen=True):
    """Look for another agent's files that could be taken over."""

    cwds: list[str] | None = None
    include_home: bool = False
    max_session_age_days: UInt32 | None = None
    max_sessions: UInt32 | None = None
    migration_source: str | None = None
    source: str | None = None


ExternalAgentConfigMigrationItemType = Literal[
    "AGENTS_MD",
    "CONFIG",
    "SKILLS",
    "PLUGINS",
    "MCP_SERVER_CONFIG",
    "SUBAGENTS",
    "HOOKS",
    "COMMANDS",
    "MEMORY",
    "SESSIONS",
]


class HookMigration(Value, frozen=True):
    """A hook found in another agent's set-up."""

    name: str


class McpServerMigration(Value, frozen=True):
    """An MCP server found in another agent's set-up."""

    name: str


class PluginsMigration(Value, frozen=True):
    """Plugins of one marketplace found in another agent's set-up."""

    marketplace_name: str
    plugin_names: list[str]


class SessionMigration(Value, frozen=True):
    """A conversation held with another agent, as a file."""

    cwd: str
    path: str
    title: str | None = None


class SkillMigration(Value, frozen=True):
    """A skill found in another agent's set-up."""

    name: str


class SubagentMigration(Value, frozen=True):
    """A subagent defined in another agent's set-up."""

    name: str


class MigrationDetails(Value, frozen=True):
    """By name, what taking over an item would bring."""

    commands: list[CommandMigration] = []
    hooks: list[HookMigration] = []
    mcp_servers: list[McpServerMigration] = []
    memory: list[str] = []
    plugins: list[PluginsMigration] = []
    sessions: list[SessionMigration] = []
    skills: list[SkillMigration] = []
    subagents: list[SubagentMigration] = []


class ExternalAgentConfigMigrationItem(Value, frozen=True):
    """One kind of thing to take over, from the home folder or from a project."""

    description: str
    item_type: ExternalAgentConfigMigrationItemType
    cwd: str | None = None
    details: MigrationDetails | None = None


ExternalAgentDetectedConnectorSource = Literal["remoteMcpServersConfig", "sessionToolUse"]
"""Named in the other agent's configuration, or seen at work in its sessions."""


class ExternalAgentDetectedConnectorCandidate(Value, frozen=True):
    """A connector that another agent used, and in how many of its sessions."""

    name: str
    session_count: UInt32
    source: ExternalAgentDetectedConnectorSource


class ExternalAgentConfigDetectResponse(Value, frozen=True):
    """All that could be taken over; pass what the user picks to the import."""

    items: list[ExternalAgentConfigMigrationItem]
    connectors: list[ExternalAgentDetectedConnectorCandidate] = []


class ExternalAgentConfigImportItemTypeFailure(Value, frozen=True):
    """Something that could not be taken over, and at which stage it failed."""

    failure_stage: str
    item_type: ExternalAgentConfigMigrationItemType
    message: str
    cwd: str | None = None
    error_type: str | None = None
    source: str | None = None
    sub_error_type: str | None = None


class ExternalAgentConfigImportItemTypeSuccess(Value, frozen=True):
    """Something that was taken over, from where and to where."""

    item_type: ExternalAgentConfigMigrationItemType
    cwd: str | None = None
    source: str | None = None
    target: str | None = None
    title: str | None = None


class ExternalAgentConfigImportTypeResult(Value, frozen=True):
    """How the import went for one kind of thing."""

    failures: list[ExternalAgentConfigImportItemTypeFailure]
    item_type: ExternalAgentConfigMigrationItemType
    successes: list[ExternalAgentConfigImportItemTypeSuccess]


class ExternalAgentConfigImportCompletedNotification(Value, frozen=True):
    """An import has ended; its results, kind by kind."""

    import_id: str
    item_type_results: list[ExternalAgentConfigImportTypeResult]


class ExternalAgentConfigImportHistory(Value, frozen=True):
    """A past import and what came of it."""

    completed_at_ms: Int64
    failures: list[ExternalAgentConfigImportItemTypeFailure]
    import_id: str
    successes: list[ExternalAgentConfigImportItemTypeSuccess]
    provider_id: str | None = None


ExternalAgentImportedConnectorSource = Literal["remoteMcpServersConfig"]


class ExternalAgentImportedConnectorCandidate(Value, frozen=True):
    """A connector that past imports came across."""

    name: str
    session_count: UInt32
    source: ExternalAgentImportedConnectorSource


class ExternalAgentConfigImportHistoriesReadResponse(Value, frozen=True):
    """All past imports, and the connectors they came across."""

    connectors: list[ExternalAgentImportedConnectorCandidate]
    data: list[ExternalAgentConfigImportHistory]


class ExternalAgentConfigImportHistoryRecordSuccessParams(Params, frozen=True):
    """Something that the client itself took over."""

    item_type: ExternalAgentConfigMigrationItemType
    cwd: str | None = None
    source: str | None = None
    target: str | None = None
    title: str | None = None


class ExternalAgentConfigImportHistoryRecordTypeResultParams(Params, frozen=True):
    """How the client's own import went for one kind of thing."""

    failures: list[ExternalAgentConfigImportItemTypeFailure]
    item_type: ExternalAgentConfigMigrationItemType
    successes: list[ExternalAgentConfigImportHistoryRecordSuccessParams]


class ExternalAgentConfigImportHistoryRecordParams(Params, frozen=True):
    """Enter in the history an import that the client did by itself."""

    item_type_results: list[ExternalAgentConfigImportHistoryRecordTypeResultParams]
    provider_id: str


class ExternalAgentConfigImportHistoryRecordResponse(Value, frozen=True):
    """The id under which the import was entered."""

    import_id: str


class ExternalAgentConfigImportParams(Params, frozen=True):
    """Take over the items that the user picked among those detected."""

    migration_items: list[ExternalAgentConfigMigrationItem]
    migration_source: str | None = None
    provider_id: str | None = None
    source: str | None = None


class ExternalAgentConfigImportProgressNotification(Value, frozen=True):
    """Part of an import is done; what came of it."""

    import_id: str
    item_type_results: list[ExternalAgentConfigImportTypeResult]


class ExternalAgentConfigImportResponse(Value, frozen=True):
    """The import runs; its id ties the notifications to it."""

    import_id: str
