"""The plugins of one server: made on first use, since most servers have none."""

from __future__ import annotations

from typing import Final

from treadle.config.configuration import Configuration
from treadle.engine.plugins.git import GitFetcher
from treadle.sandbox.sandbox import Sandbox
from treadle.server.plugins.active import ActivePlugins
from treadle.server.plugins.catalog import PluginCatalog
from treadle.server.plugins.installing import Installer
from treadle.server.plugins.marketplaces import Marketplaces
from treadle.support.concurrency.workers import Workers


class Plugins:
    """What handlers need: the catalog, installation, and marketplaces."""

    def __init__(
        self, configuration: Configuration, active: ActivePlugins, sandbox: Sandbox
    ) -> None:
        # In the home, like the installed files: commands may write in the folder of the system.
        fetched = configuration.home / ".tmp" / "fetched"
        git = GitFetcher(sandbox, Workers("git", 4), configuration.environ, fetched)
        changes = Workers("plugins", 1)
        self.active: Final = active
        self.catalog: Final = PluginCatalog(configuration, active)
        self.installer: Final = Installer(
            configuration, active, git, changes, self.catalog.check_source
        )
        self.marketplaces: Final = Marketplaces(
            configuration, self.catalog, git, self.installer, changes
        )
