"""The plugins that are installed and enabled, and what they provide to threads."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from treadle.config.configuration import Configuration
from treadle.config.effective import EffectiveConfig
from treadle.config.file import ConfigError
from treadle.config.settings import Table
from treadle.engine.mcp.config import PluginOfServer
from treadle.engine.plugins.cache import PluginCache
from treadle.engine.plugins.ids import BadPlugin, PluginId
from treadle.engine.plugins.mentions import MentionedPlugin
from treadle.engine.plugins.parts import PluginHookTable, PluginParts, load_parts
from treadle.engine.project.skills import SkillRoot
from treadle.protocol.base import JsonValue
from treadle.server.sources.mcp import PluginServers

FEATURE: Final = "plugins"
MAX_PLUGINS: Final = 200
"""The maximum number of plugins that are active at a time."""

_POLICY: Final = ("enabled", "default_tools_approval_mode", "enabled_tools", "disabled_tools")

logger = logging.getLogger(__name__)


class PluginSettings(msgspec.Struct, frozen=True):
    """The user's `[plugins."NAME@MARKETPLACE"]` table."""

    enabled: bool = True
    mcp_servers: dict[str, Table] = msgspec.field(default_factory=dict)


class ActivePlugins:
    """The plugins of a home, as the user's configuration enables them."""

    def __init__(self, configuration: Configuration) -> None:
        self.cache: Final = PluginCache(configuration.home)
        self._configuration = configuration

    @property
    def is_on(self) -> bool:
        """Whether the feature is on, as it is by default."""
        return self._effective().switches.get(FEATURE, True)

    def _effective(self) -> EffectiveConfig:
        # Without a folder: a project can neither enable plugins nor add marketplaces.
        try:
            return self._configuration.effective()
        except ConfigError:
            return self._configuration.lenient()

    def settings(self) -> dict[PluginId, PluginSettings]:
        """Return the configured plugins; invalid ones are left out, and logged."""
        found: dict[PluginId, PluginSettings] = {}
        for key, table in sorted(self._effective().plugins.items()):
            try:
                found[PluginId.parse(key)] = msgspec.convert(table, PluginSettings)
            except (BadPlugin, msgspec.ValidationError) as error:
                logger.warning("plugin ignored", extra={"plugin": key[:200], "reason": str(error)})
        return found

    def marketplaces(self) -> Table:
        """Return the `[marketplaces]` table."""
        return self._effective().marketplaces

    def parts(self, disabled: Collection[str] = ()) -> Iterator[PluginParts]:
        """Yield the plugins that are installed and enabled, except some."""
        if not self.is_on:
            return
        enabled = [plugin for plugin, each in self.settings().items() if each.enabled]
        for plugin in enabled[:MAX_PLUGINS]:
            if str(plugin) in disabled:
                continue
            root = self.cache.active(plugin)
            if root is None:
                logger.info("plugin is not installed", extra={"plugin": str(plugin)})
                continue
            try:
                yield load_parts(plugin, root)
            except BadPlugin as error:
                logger.warning("bad plugin", extra={"plugin": str(plugin), "reason": str(error)})

    def skill_roots(self) -> list[SkillRoot]:
        """Return the folders with skills of active plugins."""
        return [root for plugin in self.parts() for root in plugin.skill_roots]

    def mentionable(self, disabled: Collection[str] = ()) -> list[MentionedPlugin]:
        """Return the active plugins as descriptions for a model need them."""
        return [
            MentionedPlugin(
                id=str(plugin.id),
                title=plugin.manifest.title,
                name=plugin.manifest.name,
                has_skills=bool(plugin.skill_roots),
            )
            for plugin in self.parts(disabled)
        ]

    def hook_sources(
        self, disabled: Collection[str] = ()
    ) -> tuple[list[PluginHookTable], list[str]]:
        """Return the hooks of active plugins in the order of plugin ids, and warnings.

        `PluginHookTable` describes what a caller may rely on. Blocks: call it in a worker.
        """
        sources: list[PluginHookTable] = []
        warnings: list[str] = []
        for plugin in self.parts(disabled):
            found, faults = plugin.hooks(self.cache.data(plugin.id))
            sources += found
            warnings += faults
        return sources, warnings

    def servers(self, disabled: Collection[str] = ()) -> PluginServers:
        """Return the MCP servers of active plugins; of two with one name, the first counts."""
        tables: dict[str, Table] = {}
        owners: dict[str, PluginOfServer] = {}
        policies = self.settings()
        for plugin in self.parts(disabled):
            for name, table in plugin.servers.items():
                if name in tables:
                    about = {"server": name[:200], "plugin": str(plugin.id)}
                    logger.warning("MCP server of another plugin has this name", extra=about)
                    continue
                tables[name] = _with_policy(table, policies[plugin.id].mcp_servers.get(name, {}))
                owners[name] = PluginOfServer(str(plugin.id), plugin.manifest.title)
        return PluginServers(tables, owners)


def _with_policy(table: Table, policy: Table) -> Table:
    """Return a server's configuration with what the user decided about it."""
    chosen = {key: policy[key] for key in _POLICY if policy.get(key) is not None}
    own, more = table.get("tools"), policy.get("tools")
    tools: dict[str, JsonValue] = {**own} if isinstance(own, dict) else {}
    tools |= more if isinstance(more, dict) else {}
    return {**table, **chosen, **({"tools": tools} if tools else {})}


def install_root(home: Path) -> Path:
    """Return the folder with the marketplaces that were fetched."""
    return home / ".tmp" / "marketplaces"
