"""The configuration files: parsed once until they change, and the layers of the fixed ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from treadle.config.file import MAX_CONFIG_BYTES, ConfigError, read_toml
from treadle.config.layers import Layer, absolute_paths, check_merged, merge
from treadle.config.settings import ConfigValues, Table
from treadle.protocol.config import (
    LegacyManagedConfigTomlFromFileConfigLayerSource,
    SystemConfigLayerSource,
    UserConfigLayerSource,
)

MAX_CACHED: Final = 64

Stamp: TypeAlias = tuple[int, int, int, int] | None
"""What changes with the content of a file; `None` if there is none."""


class OuterLayers(NamedTuple):
    """The layers that apply in every folder, as their files are now."""

    stamps: tuple[Stamp, ...]
    base: Sequence[Layer]
    managed: Sequence[Layer]
    settings: ConfigValues
    """The settings without those of projects, profiles and requests."""


class LayerFiles:
    """Reads the configuration files of a system, a home and its projects.

    A file is looked up on each use, so changes take effect at once, and parsed only if it changed.
    """

    def __init__(self, system: Path, home: Path, flags: Sequence[Layer]) -> None:
        self.requirements = system / "requirements.toml"
        self.system = system / "config.toml"
        self.managed = system / "managed_config.toml"
        self.user = home / "config.toml"
        self._flags = flags
        # As text: pathlib costs more than the look-up.
        places = (self.requirements, self.system, self.managed, self.user)
        self._fixed = tuple(map(str, places))
        self._tables: dict[Path, tuple[Stamp, Table | ConfigError]] = {}
        self._outer: OuterLayers | None = None

    def forget(self) -> None:
        """Drop what is cached: two changes within one timestamp look like one."""
        self._tables.clear()
        self._outer = None

    def stamps(self) -> tuple[Stamp, ...]:
        """Return what changes when one of the fixed files changes."""
        return tuple(map(stamp_of, self._fixed))

    def outer(self) -> OuterLayers:
        """Return the layers that apply in every folder.

        Raises:
            ConfigError: a file cannot be read, or a value does not fit.
        """
        # Before the files are read: a change during that is seen by the next call.
        stamps = self.stamps()
        known = self._outer
        if known is None or known.stamps != stamps:
            base, managed = self.base(), self.managed_layers()
            settings = check_merged(merge([*base, *self._flags, *managed]))
            known = self._outer = OuterLayers(stamps, base, managed, settings)
        return known

    def base(self) -> Sequence[Layer]:
        """Return the layers of the system and of the user.

        Raises:
            ConfigError: a file cannot be read.
        """
        source = UserConfigLayerSource(file=str(self.user))
        return self.system_layer(), Layer(source, self.read(self.user))

    def system_layer(self) -> Layer:
        """Return the layer of the system.

        Raises:
            ConfigError: the file cannot be read.
        """
        return Layer(SystemConfigLayerSource(file=str(self.system)), self.read(self.system))

    def managed_layers(self) -> Sequence[Layer]:
        """Return the administrator's layer above all others, if there is one.

        Raises:
            ConfigError: the file cannot be read.
        """
        table = self.read(self.managed)
        source = LegacyManagedConfigTomlFromFileConfigLayerSource(file=str(self.managed))
        return [Layer(source, table)] if table else []

    def read(self, path: Path, limit: int = MAX_CONFIG_BYTES) -> Table:
        """Return the content of a file; it is parsed once until it changes, also if it is invalid.

        Raises:
            ConfigError: the file cannot be read, or is not TOML.
        """
        stamp = stamp_of(path)
        cached = self._tables.get(path)
        if cached is None or cached[0] != stamp:
            table = {} if stamp is None else _parse(path, limit)
            if len(self._tables) >= MAX_CACHED:
                self._tables.clear()
            cached = self._tables[path] = (stamp, table)
        found = cached[1]
        if isinstance(found, ConfigError):
            raise ConfigError(str(found), key=found.key, file=found.file)
        return found


def _parse(path: Path, limit: int) -> Table | ConfigError:
    try:
        return absolute_paths(read_toml(path, limit), path.parent)
    except ConfigError as error:
        if isinstance(error.__cause__, OSError):
            raise  # the next attempt may succeed, although the file has not changed
        return ConfigError(str(error), file=error.file)


def stamp_of(path: Path | str) -> Stamp:
    """Return what changes with the content of a file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - takes text as well, see LayerFiles
    except OSError:
        return None
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino
