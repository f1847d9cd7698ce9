"""Import of configuration and history from other agents."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, Params, UInt32, Value


class CommandMigration(Value, frozen=True):
    """A custom command found in another agent's setup."""

    name: str


class ExternalAgentConfigDetectParams(Params, frozen=True):
    """Look for files of other agents that could be imported."""

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
    """A hook found in another agent's setup."""

    name: str


class McpServerMigration(Value, frozen=True):
    """An MCP server found in another agent's setup."""

    name: str


class PluginsMigration(Value, frozen=True):
    """Plugins of one marketplace found in another agent's setup."""

    marketplace_name: str
    plugin_names: list[str]


class SessionMigration(Value, frozen=True):
    """A stored conversation with another agent."""

    cwd: str
    path: str
    title: str | None = None


class SkillMigration(Value, frozen=True):
    """A skill found in another agent's setup."""

    name: str


class SubagentMigration(Value, frozen=True):
    """A sub-agent defined in another agent's setup."""

    name: str


class MigrationDetails(Value, frozen=True):
    """The names of everything that importing an item adds."""

    commands: list[CommandMigration] = []
    hooks: list[HookMigration] = []
    mcp_servers: list[McpServerMigration] = []
    memory: list[str] = []
    plugins: list[PluginsMigration] = []
    sessions: list[SessionMigration] = []
    skills: list[SkillMigration] = []
    subagents: list[SubagentMigration] = []


class ExternalAgentConfigMigrationItem(Value, frozen=True):
    """One kind of item to import, from the home folder or from a project."""

    description: str
    item_type: ExternalAgentConfigMigrationItemType
    cwd: str | None = None
    details: MigrationDetails | None = None


ExternalAgentDetectedConnectorSource = Literal["remoteMcpServersConfig", "sessionToolUse"]
"""Named in the other agent's configuration, or used in its sessions."""


class ExternalAgentDetectedConnectorCandidate(Value, frozen=True):
    """A connector that another agent used, and in how many of its sessions."""

    name: str
    session_count: UInt32
    source: ExternalAgentDetectedConnectorSource


class ExternalAgentConfigDetectResponse(Value, frozen=True):
    """Everything that could be imported; pass the user's selection to the import."""

    items: list[ExternalAgentConfigMigrationItem]
    connectors: list[ExternalAgentDetectedConnectorCandidate] = []


class ExternalAgentConfigImportItemTypeFailure(Value, frozen=True):
    """An item that could not be imported, and the stage that failed."""

    failure_stage: str
    item_type: ExternalAgentConfigMigrationItemType
    message: str
    cwd: str | None = None
    error_type: str | None = None
    source: str | None = None
    sub_error_type: str | None = None


class ExternalAgentConfigImportItemTypeSuccess(Value, frozen=True):
    """An item that was imported, with its source and target."""

    item_type: ExternalAgentConfigMigrationItemType
    cwd: str | None = None
    source: str | None = None
    target: str | None = None
    title: str | None = None


class ExternalAgentConfigImportTypeResult(Value, frozen=True):
    """The result of the import for one kind of item."""

    failures: list[ExternalAgentConfigImportItemTypeFailure]
    item_type: ExternalAgentConfigMigrationItemType
    successes: list[ExternalAgentConfigImportItemTypeSuccess]


class ExternalAgentConfigImportCompletedNotification(Value, frozen=True):
    """An import has ended; its results by kind."""

    import_id: str
    item_type_results: list[ExternalAgentConfigImportTypeResult]


class ExternalAgentConfigImportHistory(Value, frozen=True):
    """A past import and its results."""

    completed_at_ms: Int64
    failures: list[ExternalAgentConfigImportItemTypeFailure]
    import_id: str
    successes: list[ExternalAgentConfigImportItemTypeSuccess]
    provider_id: str | None = None


ExternalAgentImportedConnectorSource = Literal["remoteMcpServersConfig"]


class ExternalAgentImportedConnectorCandidate(Value, frozen=True):
    """A connector found by past imports."""

    name: str
    session_count: UInt32
    source: ExternalAgentImportedConnectorSource


class ExternalAgentConfigImportHistoriesReadResponse(Value, frozen=True):
    """All past imports, and the connectors they found."""

    connectors: list[ExternalAgentImportedConnectorCandidate]
    data: list[ExternalAgentConfigImportHistory]


class ExternalAgentConfigImportHistoryRecordSuccessParams(Params, frozen=True):
    """An item that the client imported itself."""

    item_type: ExternalAgentConfigMigrationItemType
    cwd: str | None = None
    source: str | None = None
    target: str | None = None
    title: str | None = None


class ExternalAgentConfigImportHistoryRecordTypeResultParams(Params, frozen=True):
    """The result of the client's own import for one kind of item."""

    failures: list[ExternalAgentConfigImportItemTypeFailure]
    item_type: ExternalAgentConfigMigrationItemType
    successes: list[ExternalAgentConfigImportHistoryRecordSuccessParams]


class ExternalAgentConfigImportHistoryRecordParams(Params, frozen=True):
    """Record an import that the client performed itself."""

    item_type_results: list[ExternalAgentConfigImportHistoryRecordTypeResultParams]
    provider_id: str


class ExternalAgentConfigImportHistoryRecordResponse(Value, frozen=True):
    """The id of the recorded import."""

    import_id: str


class ExternalAgentConfigImportParams(Params, frozen=True):
    """Import the items that the user selected among those detected."""

    migration_items: list[ExternalAgentConfigMigrationItem]
    migration_source: str | None = None
    provider_id: str | None = None
    source: str | None = None


class ExternalAgentConfigImportProgressNotification(Value, frozen=True):
    """Part of an import is done; contains its results."""

    import_id: str
    item_type_results: list[ExternalAgentConfigImportTypeResult]


class ExternalAgentConfigImportResponse(Value, frozen=True):
    """The import is running; notifications refer to it by this id."""

    import_id: str
