"""Gives the engine the MCP servers of the configuration."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from treadle.config.configuration import Configuration
from treadle.config.file import ConfigError
from treadle.config.settings import Table
from treadle.engine.mcp.config import McpConfig
from treadle.engine.mcp.startup import StartupRecord
from treadle.engine.settings import RunSettings

logger = logging.getLogger(__name__)


class ConfiguredMcp:
    """The servers of the files and of the request that began a thread."""

    def __init__(self, configuration: Configuration) -> None:
        self.patience: Final = StartupRecord()
        self._configuration = configuration

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment that tokens and variables are taken from."""
        return self._configuration.environ

    def config(self, settings: RunSettings | None) -> McpConfig:
        """The servers of a thread with these settings, or of no thread."""
        cwd = None if settings is None else settings.cwd
        asked = settings.config if settings is not None else None
        try:
            effective = self._configuration.effective(cwd, asked)
        except ConfigError as error:
            # Who changes the files while a thread is loaded is told elsewhere.
            logger.warning("no mcp servers", extra={"reason": str(error)})
            return McpConfig()
        grace = effective.mcp_optional_startup_grace_ms
        given = {} if grace is None else {"grace_seconds": grace / 1000}
        return McpConfig(
            servers=dict(effective.mcp_servers),
            callback_port=effective.mcp_oauth_callback_port,
            callback_url=effective.mcp_oauth_callback_url,
            **given,
        )

    def approve_always(self, server: str, tool: str) -> bool:
        """Add to the user's file that a tool need not be asked for any more.

        Only for a server of that file: anywhere else a table of one key would be no server.
        """
        from treadle.config.edit.edits import BadEdit, TableEdit, apply
        from treadle.config.edit.restyle import Unfaithful
        from treadle.config.edit.writer import change_user_file

        tools = ("mcp_servers", server, "tools", tool, "approval_mode")

        def change(table: Table) -> Table:
            servers = table.get("mcp_servers")
            if not isinstance(servers, dict) or server not in servers:
                message = f"{server} is no server of {self._configuration.user_file}"
                raise ConfigError(message)
            return apply(table, [TableEdit(tools, "approve")])

        try:
            change_user_file(self._configuration, change)
        except (OSError, ConfigError, BadEdit, Unfaithful) as error:
            logger.warning("approval not kept", extra={"server": server, "reason": str(error)})
            return False
        return True
