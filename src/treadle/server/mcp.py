"""Gives the engine the MCP servers of the configuration."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from treadle.engine.mcp.config import McpConfig
from treadle.engine.settings import Settings
from treadle.server.config_file import ConfigError
from treadle.server.configuration.configuration import Configuration

logger = logging.getLogger(__name__)


class ConfiguredMcp:
    """The servers of the files and of the request that began a thread."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment that tokens and variables are taken from."""
        return self._configuration.environ

    def config(self, settings: Settings | None) -> McpConfig:
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
        path = self._configuration.home / "config.toml"
        table = f"[mcp_servers.{_key(server)}.tools.{_key(tool)}]"
        try:
            text = path.read_text("utf-8")
            if server not in tomllib.loads(text).get("mcp_servers", {}):
                return False
            gap = "" if text.endswith("\n") or not text else "\n"
            text = f'{text}{gap}\n{table}\napproval_mode = "approve"\n'
            # Where the table exists already, or its server is written in one line, this fails.
            tomllib.loads(text)
            _replace(path, text)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            logger.warning("approval not kept", extra={"server": server, "reason": str(error)})
            return False
        return True


def _key(name: str) -> str:
    """A key of TOML, in quotes unless it needs none."""
    import json  # its strings are strings of TOML too

    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all, with the permissions that it had."""
    descriptor, name = tempfile.mkstemp(prefix=".config-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
