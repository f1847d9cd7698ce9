"""Provides the engine with the hooks of the configuration files, and of the request of a thread."""

from __future__ import annotations

import logging
from pathlib import Path

from treadle.config.configuration import Configuration
from treadle.config.file import ConfigError
from treadle.config.hooks.presence import has_hooks
from treadle.engine.hooks.hook import NOTHING, FoundHooks
from treadle.engine.settings import RunSettings
from treadle.protocol.base import JsonValue

logger = logging.getLogger(__name__)


class ConfiguredHooks:
    """The hooks that apply in a folder, as the files are now."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    @property
    def user_file(self) -> Path:
        """The file in which the user trusts hooks."""
        return self._configuration.user_file

    def find(self, cwd: str, request: JsonValue = None) -> FoundHooks:
        """Find the hooks of a folder; blocks.

        Raises:
            ConfigError: the configuration is invalid.
        """
        configuration = self._configuration
        effective = configuration.effective(cwd, request)
        if not has_hooks(effective):
            return NOTHING
        # Imported on use: most folders have none.
        from treadle.config.hooks.discovery import find_hooks

        bypasses = configuration.bypasses_hook_trust
        return find_hooks(
            effective, configuration.system / "requirements.toml", bypasses_trust=bypasses
        )

    def of_thread(self, settings: RunSettings) -> FoundHooks | None:
        """Find the hooks of a thread; null if the configuration has become invalid."""
        try:
            return self.find(settings.cwd, settings.config)
        except ConfigError as error:
            # A fault that appears while a thread is loaded is reported elsewhere.
            logger.warning("hooks not read", extra={"reason": str(error)})
            return None
