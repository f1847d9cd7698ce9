"""Installs plugins into the cache and enables them in the user's file, and removes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from treadle.config.configuration import Configuration
from treadle.config.edit.edits import BadEdit, TableEdit, apply
from treadle.config.edit.writer import change_user_file
from treadle.config.file import ConfigError
from treadle.config.settings import Table
from treadle.engine.plugins.git import GitFetcher
from treadle.engine.plugins.ids import BadPlugin, PluginId
from treadle.engine.plugins.marketplace import ListedPlugin, Marketplace, read_marketplace
from treadle.engine.plugins.sources import GitSource
from treadle.protocol.plugin import GitPluginSource, NpmPluginSource
from treadle.server.plugins.active import ActivePlugins
from treadle.support.concurrency.workers import Workers


class Installer:
    """Installs and removes plugins, one at a time."""

    def __init__(
        self,
        configuration: Configuration,
        active: ActivePlugins,
        git: GitFetcher,
        changes: Workers,
        check_source: Callable[[Marketplace], None],
    ) -> None:
        self._configuration = configuration
        self._check_source = check_source
        self._active = active
        self._git = git
        # One thread: changes of plugins and marketplaces exclude each other.
        self._changes = changes

    async def install(self, path: Path, name: str) -> ListedPlugin:
        """Install and enable a plugin of a marketplace.

        Raises:
            BadPlugin: the marketplace, or the plugin, is invalid or does not allow it.
            MarketplaceUnreadable: the file of the marketplace cannot be read.
            FetchFailed: the repository of the plugin cannot be fetched.
            OSError: the plugin cannot be copied, or the user's file not written.
            ConfigError: the user's file is invalid.
        """
        marketplace = await self._changes.run(read_marketplace, path)
        plugin = marketplace.plugin(name)
        if not plugin.may_be_installed:
            where = f"in marketplace `{marketplace.name}`"
            raise BadPlugin(f"plugin `{name[:200]}` is not available for install {where}")
        await self._changes.run(self._check_source, marketplace)
        await self.copy(plugin, enables=True)
        return plugin

    async def copy(self, plugin: ListedPlugin, *, enables: bool) -> None:
        """Copy a plugin from its source into the cache, and enable it if requested."""
        match plugin.source:
            case GitPluginSource() as source:
                fetched = await self._git.fetch(
                    GitSource(source.url, source.sha or source.ref_name)
                )
                try:
                    folder = fetched.tree / (source.path or ".")
                    await self._activate(plugin.id, folder, fetched.tree, enables=enables)
                finally:
                    await fetched.remove()
            case NpmPluginSource():
                reason = "use a git repository or a folder as its source"
                raise BadPlugin(f"npm plugin sources are not supported: {reason}")
            case _:
                folder, root = plugin.folder or Path(), plugin.root
                await self._activate(plugin.id, folder, root, enables=enables)

    async def _activate(self, plugin: PluginId, folder: Path, root: Path, *, enables: bool) -> None:
        await self._changes.run(self._activate_now, plugin, folder, root, enables=enables)

    def _activate_now(self, plugin: PluginId, folder: Path, root: Path, *, enables: bool) -> None:
        if not folder.is_dir():
            raise BadPlugin("path does not exist or is not a directory")
        was_installed = self._active.cache.active(plugin) is not None
        self._active.cache.install(plugin, folder, root)
        if not enables:
            return
        try:
            self._edit(TableEdit(("plugins", str(plugin), "enabled"), value=True))
        except BaseException:
            if not was_installed:
                self._active.cache.uninstall(plugin)
            raise

    async def uninstall(self, plugin: PluginId) -> None:
        """Remove a plugin and the user's settings for it.

        Raises:
            OSError: it cannot be removed.
            ConfigError: the user's file is invalid.
        """
        await self._changes.run(self._uninstall_now, plugin)

    def _uninstall_now(self, plugin: PluginId) -> None:
        # Disabled first: a plugin that is enabled and missing would be reported as broken.
        self._edit(TableEdit(("plugins", str(plugin)), None))
        self._active.cache.uninstall(plugin)

    def _edit(self, edit: TableEdit) -> None:
        edit_user_file(self._configuration, edit)


def edit_user_file(configuration: Configuration, edit: TableEdit) -> None:
    """Set or remove a key of the user's file; a table that becomes empty goes too.

    Raises:
        OSError: the file cannot be written.
        ConfigError: it is invalid, or has another type above the key.
    """

    def change(table: Table) -> Table:
        changed = apply(table, [edit])
        top = edit.path[0]
        return apply(changed, [TableEdit((top,), None)]) if changed.get(top) == {} else changed

    try:
        change_user_file(configuration, change)
    except BadEdit as error:
        raise ConfigError(str(error), key=".".join(error.path)) from error
