"""Configuration layers: their sources and how they are merged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.config.file import ConfigError
from treadle.config.settings import ConfigValues, Table, check
from treadle.protocol.base import JsonValue
from treadle.protocol.config import (
    ConfigLayer,
    ConfigLayerMetadata,
    ConfigLayerSource,
    LegacyManagedConfigTomlFromFileConfigLayerSource,
    ProjectConfigLayerSource,
    SystemConfigLayerSource,
    UserConfigLayerSource,
)

_PATHS: Final = frozenset(
    """
    experimental_compact_prompt_file experimental_instructions_file log_dir model_catalog_json
    model_instructions_file sqlite_home
    """.split()
)


@dataclass(frozen=True)
class Layer:
    """One source of settings, its content and, if it is ignored, the reason."""

    source: ConfigLayerSource
    table: Table
    disabled_reason: str | None = None

    @cached_property
    def version(self) -> str:
        """A fingerprint of the layer's content that does not depend on key order."""
        text = json.dumps(
            self.table, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str
        )
        return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"

    @cached_property
    def metadata(self) -> ConfigLayerMetadata:
        """The layer as the origin of a setting."""
        return ConfigLayerMetadata(name=self.source, version=self.version)

    @property
    def label(self) -> str:
        """A readable name for warnings and errors."""
        match self.source:
            case UserConfigLayerSource(file=file, profile=None):
                return f"user ({file})"
            case UserConfigLayerSource(file=file, profile=profile):
                return f"profile {profile} ({file})"
            case SystemConfigLayerSource(file=file):
                return f"system ({file})"
            case ProjectConfigLayerSource(dot_codex_folder=folder):
                return f"project ({folder}/config.toml)"
            case LegacyManagedConfigTomlFromFileConfigLayerSource(file=file):
                return f"managed ({file})"
            case _:
                return "session-flags"

    @cached_property
    def folder(self) -> Path | None:
        """The folder of the layer's `config.toml`; `None` for other kinds of layer."""
        match self.source:
            case ProjectConfigLayerSource(dot_codex_folder=folder):
                return Path(folder)
            case (
                UserConfigLayerSource(file=file, profile=None) | SystemConfigLayerSource(file=file)
            ):
                return Path(file).parent
            case _:
                return None

    def to_protocol(self) -> ConfigLayer:
        """Return the layer in its protocol form."""
        return ConfigLayer(
            config=self.table,
            name=self.source,
            version=self.version,
            disabled_reason=self.disabled_reason,
        )


class Merged(Struct, frozen=True):
    """The result of a merge, and the layer that set each dotted key."""

    table: Table
    origins: dict[str, Layer]

    def origin(self, key: str) -> Layer | None:
        """Return the layer that set a key or the first key below it."""
        if key in self.origins:
            return self.origins[key]
        below = (name for name in self.origins if name.startswith(f"{key}."))
        return self.origins.get(next(below, ""))


def merge(layers: Iterable[Layer]) -> Merged:
    """Apply the layers in order; tables are merged, other values replaced."""
    merged = Merged({}, {})
    for layer in layers:
        if layer.disabled_reason is None:
            _merge_into(merged.table, layer.table, merged.origins, layer, "")
    return merged


def _merge_into(
    below: Table, table: Mapping[str, JsonValue], origins: dict[str, Layer], layer: Layer, at: str
) -> None:
    for key, value in table.items():
        path = f"{at}{key}"
        if isinstance(value, dict):
            if not isinstance(below.get(key), dict):
                _remove_origins(origins, path, below.get(key))
                below[key] = {}
            _merge_into(below[key], value, origins, layer, f"{path}.")
        else:
            _remove_origins(origins, path, below.get(key))
            below[key] = value
            _record_origins(origins, path, value, layer)


def _remove_origins(origins: dict[str, Layer], path: str, value: JsonValue) -> None:
    """Remove the origins of a replaced value, as `_record_origins` added them."""
    if isinstance(value, list):
        for index, element in enumerate(value):
            _remove_origins(origins, f"{path}.{index}", element)
    elif isinstance(value, dict):
        for key, element in value.items():
            _remove_origins(origins, f"{path}.{key}", element)
    else:
        origins.pop(path, None)


def _record_origins(origins: dict[str, Layer], path: str, value: JsonValue, layer: Layer) -> None:
    """Record the origin of a value; each element of a list has its own entry."""
    if isinstance(value, list):
        for index, element in enumerate(value):
            _record_origins(origins, f"{path}.{index}", element, layer)
    elif isinstance(value, dict):
        for key, element in value.items():
            _record_origins(origins, f"{path}.{key}", element, layer)
    else:
        origins[path] = layer


def absolute_paths(table: Mapping[str, JsonValue], folder: Path) -> Table:
    """Return a copy with relative paths resolved against the folder of their file."""
    resolved = dict(table)
    for key in _PATHS & resolved.keys():
        resolved[key] = _absolute(resolved[key], folder)
    sandbox = resolved.get("sandbox_workspace_write")
    if isinstance(sandbox, dict) and isinstance(sandbox.get("writable_roots"), list):
        roots = [_absolute(root, folder) for root in sandbox["writable_roots"]]
        resolved["sandbox_workspace_write"] = {**sandbox, "writable_roots": roots}
    return resolved


def _absolute(path: JsonValue, folder: Path) -> JsonValue:
    if not isinstance(path, str):
        return path  # `check` reports the wrong type with the name of the setting
    try:
        return str(folder / Path(path).expanduser())
    except RuntimeError:
        return str(folder / path)  # `~name` of an unknown user


def check_merged(merged: Merged) -> ConfigValues:
    """Return the settings of a merge.

    Raises:
        ConfigError: a value does not fit; the message names its layer.
    """
    try:
        return check(merged.table)
    except ConfigError as error:
        # The key of a list element looks like `notify[0]`.
        key = (error.key or "").split("[")[0]
        layer = merged.origin(key)
        where = "" if layer is None else f" in {layer.label}"
        message = f"{error}{where}"
        raise ConfigError(message, key=error.key) from error
