"""Provides the engine with the hooks of the configuration files, and of the request of a thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.config.configuration import Configuration
from treadle.config.file import ConfigError
from treadle.config.hooks.presence import has_hooks
from treadle.engine.hooks.hook import NOTHING, FoundHooks
from treadle.engine.settings import RunSettings
from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    from treadle.server.plugins.active import ActivePlugins

logger = logging.getLogger(__name__)


class ConfiguredHooks:
    """The hooks that apply in a folder, as the files are now."""

    def __init__(self, configuration: Configuration, plugins: Callable[[], ActivePlugins]) -> None:
        self._configuration = configuration
        self._plugins = plugins

    @property
    def user_file(self) -> Path:
        """The file in which the user trusts hooks."""
        return self._configuration.user_file

    def find(
        self, cwd: str, request: JsonValue = None, disabled: Collection[str] = ()
    ) -> FoundHooks:
        """Find the hooks of a folder, without those of some plugins; blocks.

        Raises:
            ConfigError: the configuration is invalid.
        """
        configuration = self._configuration
        effective = configuration.effective(cwd, request)
        provided = self._plugins().hook_sources(disabled) if effective.plugins else ([], [])
        if not has_hooks(effective) and not any(provided):
            return NOTHING
        # Imported on use: most folders have none.
        from treadle.config.hooks.discovery import find_hooks

        bypasses = configuration.bypasses_hook_trust
        return find_hooks(
            effective,
            configuration.system / "requirements.toml",
            plugins=provided,
            bypasses_trust=bypasses,
        )

    def of_thread(self, settings: RunSettings) -> FoundHooks:
        """Find the hooks of a thread, or why they cannot be found."""
        try:
            return self.find(settings.cwd, settings.config, settings.disabled_plugin_ids)
        except ConfigError as error:
            logger.warning("hooks not read", extra={"reason": str(error)})
            return FoundHooks(failure=str(error))
