"""Provides the engine with the configured MCP servers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from treadle.config.configuration import Configuration
from treadle.config.file import ConfigError
from treadle.config.settings import Table
from treadle.engine.mcp.config import GRACE_SECONDS, McpConfig, PluginOfServer
from treadle.engine.mcp.startup import StartupRecord
from treadle.engine.settings import RunSettings
from treadle.server.sources.apps import AccountApps

if TYPE_CHECKING:
    from treadle.config.effective import EffectiveConfig
    from treadle.server.plugins.active import ActivePlugins

logger = logging.getLogger(__name__)


class PluginServers(NamedTuple):
    """The MCP servers of plugins, and the plugin of each."""

    tables: dict[str, Table]
    owners: dict[str, PluginOfServer]


class ConfiguredMcp:
    """The MCP servers of the configuration files and of the request that started a thread."""

    def __init__(
        self, configuration: Configuration, plugins: Callable[[], ActivePlugins] | None = None
    ) -> None:
        self.startup_record: Final = StartupRecord()
        self._configuration = configuration
        self._plugins = plugins
        self._apps = AccountApps(configuration)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment that supplies tokens and variables."""
        return self._configuration.environ

    def config(self, settings: RunSettings | None) -> McpConfig:
        """Return the servers of a thread with these settings, or without a thread."""
        cwd = None if settings is None else settings.cwd
        request = settings.config if settings is not None else None
        try:
            effective = self._configuration.effective(cwd, request)
        except ConfigError as error:
            # A fault that appears while a thread is loaded is reported elsewhere.
            logger.warning("no mcp servers", extra={"reason": str(error)})
            return McpConfig()
        account = self.account(settings)
        grace = effective.mcp_optional_startup_grace_ms
        disabled = settings.disabled_plugin_ids if settings is not None else ()
        provided = self._provided(effective, disabled)
        return McpConfig(
            servers={**provided.tables, **effective.mcp_servers},
            plugins={
                name: plugin
                for name, plugin in provided.owners.items()
                if name not in effective.mcp_servers
            },
            apps=self._apps.hosted(effective, account),
            callback_port=effective.mcp_oauth_callback_port,
            callback_url=effective.mcp_oauth_callback_url,
            grace_seconds=GRACE_SECONDS if grace is None else grace / 1000,
        )

    def _provided(self, effective: EffectiveConfig, disabled: Collection[str]) -> PluginServers:
        """Return the servers of plugins; without any, their code is not imported."""
        if self._plugins is None or not effective.plugins:
            return PluginServers({}, {})
        return self._plugins().servers(disabled)

    def account(self, settings: RunSettings | None) -> str | None:
        """Return what identifies the account whose apps a thread with these settings may use."""

        def switches() -> Mapping[str, bool]:
            if settings is not None:
                return settings.features
            return self._configuration.lenient().switches

        return self._apps.account(switches)

    def approve_always(self, server: str, tool: str, app_id: str | None = None) -> bool:
        """Record in the user's file that a tool needs no further approval.

        Only for an app, or for a server in that file or of a plugin: elsewhere, a table with this
        one key would not be a server.
        """
        from treadle.config.edit.edits import BadEdit, TableEdit, apply
        from treadle.config.edit.toml_text import Unfaithful
        from treadle.config.edit.writer import change_user_file

        tools = ("mcp_servers", server, "tools", tool, "approval_mode")
        owner = self.config(None).plugins.get(server)

        def change(table: Table) -> Table:
            if app_id is not None:
                own = ("apps", app_id, "tools", tool, "approval_mode")
                return apply(table, [TableEdit(own, "approve")])
            if owner is not None:
                return apply(table, [TableEdit(("plugins", owner.id, *tools), "approve")])
            servers = table.get("mcp_servers")
            if not isinstance(servers, dict) or server not in servers:
                message = f"{server} is not a server in {self._configuration.user_file}"
                raise ConfigError(message)
            return apply(table, [TableEdit(tools, "approve")])

        try:
            change_user_file(self._configuration, change)
        except (OSError, ConfigError, BadEdit, Unfaithful) as error:
            logger.warning("approval not kept", extra={"server": server, "reason": str(error)})
            return False
        return True
