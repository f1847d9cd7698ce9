"""Layers of settings: where each comes from, and how one lies over another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from treadle.config.settings import Table
from treadle.protocol.base import JsonValue
from treadle.protocol.config import (
    ConfigLayer,
    ConfigLayerMetadata,
    ConfigLayerSource,
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
    """One source of settings with all it says, and why it is ignored if it is."""

    source: ConfigLayerSource
    table: Table
    disabled_reason: str | None = None

    @cached_property
    def version(self) -> str:
        """A fingerprint of what the layer says, whatever the order it is said in."""
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
        """The layer in words, for warnings and errors."""
        match self.source:
            case UserConfigLayerSource(file=file, profile=None):
                return f"user ({file})"
            case UserConfigLayerSource(file=file, profile=profile):
                return f"profile {profile} ({file})"
            case SystemConfigLayerSource(file=file):
                return f"system ({file})"
            case ProjectConfigLayerSource(dot_codex_folder=folder):
                return f"project ({folder}/config.toml)"
            case _:
                return "session-flags"

    @property
    def folder(self) -> Path | None:
        """The folder whose `config.toml` the layer is, if it is a file of its own."""
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
        """The layer as clients are told it."""
        return ConfigLayer(
            config=self.table,
            name=self.source,
            version=self.version,
            disabled_reason=self.disabled_reason,
        )


@dataclass(frozen=True, slots=True)
class Merged:
    """What layers amount to, and the layer that decided each dotted key."""

    table: Table
    origins: dict[str, Layer]

    def origin(self, key: str) -> Layer | None:
        """The layer that a key, or the first one below it, came from."""
        if key in self.origins:
            return self.origins[key]
        below = (name for name in self.origins if name.startswith(f"{key}."))
        return self.origins.get(next(below, ""))


def merge(layers: Iterable[Layer]) -> Merged:
    """Lay each layer over those before it; tables are joined, all else is replaced."""
    merged = Merged({}, {})
    for layer in layers:
        if layer.disabled_reason is None:
            _lay_over(merged.table, layer.table, merged.origins, layer, "")
    return merged


def _lay_over(
    below: Table, table: Mapping[str, JsonValue], origins: dict[str, Layer], layer: Layer, at: str
) -> None:
    for key, value in table.items():
        path = f"{at}{key}"
        if isinstance(value, dict):
            if not isinstance(below.get(key), dict):
                _forget(origins, path, below.get(key))
                below[key] = {}
            _lay_over(below[key], value, origins, layer, f"{path}.")
        else:
            _forget(origins, path, below.get(key))
            below[key] = value
            _record(origins, path, value, layer)


def _forget(origins: dict[str, Layer], path: str, value: JsonValue) -> None:
    """Forget where a value came from that is replaced, in the way it was recorded."""
    if isinstance(value, list):
        for index, element in enumerate(value):
            _forget(origins, f"{path}.{index}", element)
    elif isinstance(value, dict):
        for key, element in value.items():
            _forget(origins, f"{path}.{key}", element)
    else:
        origins.pop(path, None)


def _record(origins: dict[str, Layer], path: str, value: JsonValue, layer: Layer) -> None:
    """Note where a value came from; the elements of a list are told one by one."""
    if isinstance(value, list):
        for index, element in enumerate(value):
            _record(origins, f"{path}.{index}", element, layer)
    elif isinstance(value, dict):
        for key, element in value.items():
            _record(origins, f"{path}.{key}", element, layer)
    else:
        origins[path] = layer


def absolute_paths(table: Mapping[str, JsonValue], folder: Path) -> Table:
    """Give a copy in which a relative path starts from the folder of the file that says it."""
    found = dict(table)
    for key in _PATHS & found.keys():
        found[key] = _absolute(found[key], folder)
    sandbox = found.get("sandbox_workspace_write")
    if isinstance(sandbox, dict) and isinstance(sandbox.get("writable_roots"), list):
        roots = [_absolute(root, folder) for root in sandbox["writable_roots"]]
        found["sandbox_workspace_write"] = {**sandbox, "writable_roots": roots}
    return found


def _absolute(path: JsonValue, folder: Path) -> JsonValue:
    if not isinstance(path, str):
        return path  # the check of types will say so, with the name of the setting
    try:
        return str(folder / Path(path).expanduser())
    except RuntimeError:
        return str(folder / path)  # a `~name` of somebody this machine does not know
