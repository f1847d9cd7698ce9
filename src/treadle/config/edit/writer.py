"""Writes to the user's `config.toml`; the result is validated before the file is changed."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from treadle.config.configuration import Configuration
from treadle.config.edit.edits import BadEdit, TableEdit, apply
from treadle.config.edit.key_path import BadKeyPath, KeyPath, parse_key_path
from treadle.config.edit.toml_text import rewrite
from treadle.config.edit.user_file import edit_file
from treadle.config.file import (
    MAX_CONFIG_BYTES,
    MAX_DEPTH,
    MAX_SETTINGS,
    ConfigError,
    count_values,
    fault_of_keys,
)
from treadle.config.layers import Layer, merge
from treadle.config.managed.requirements import pinned_features
from treadle.config.providers import read_providers
from treadle.config.settings import ConfigValues, Table, check
from treadle.engine.features import canonical, is_on
from treadle.engine.mcp.config import BadServer, read_server
from treadle.protocol.base import JsonValue
from treadle.protocol.config import (
    ConfigEdit,
    ConfigWriteResponse,
    OverriddenMetadata,
    SessionFlagsConfigLayerSource,
)

ConfigWriteErrorCode: TypeAlias = Literal[
    "configLayerReadonly", "configValidationError", "configVersionConflict"
]
_MISSING: Final = object()
MAX_EDITS: Final = 500
"""Maximum number of edits in one write, which locks the home until all are made."""


class WriteRefused(Exception):
    """The write is rejected; clients rely on the code and on some of the messages."""

    def __init__(self, code: ConfigWriteErrorCode, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.code: ConfigWriteErrorCode = code
        self.key = key


def write_config(
    configuration: Configuration,
    edits: Sequence[ConfigEdit],
    *,
    file_path: str | None = None,
    expected_version: str | None = None,
) -> ConfigWriteResponse:
    """Make all edits or none, and report whether a higher layer overrides them.

    Raises:
        WriteRefused: wrong file, version conflict, or invalid value.
        ConfigError: the current file is not TOML.
    """
    if len(edits) > MAX_EDITS:
        message = f"edits has {len(edits)} entries: expected at most {MAX_EDITS}"
        raise WriteRefused("configValidationError", message, "edits")
    _check_sizes(edits)
    path = _file_to_write(configuration, file_path)
    parsed: list[TableEdit] = []

    def change(table: Table) -> Table:
        if expected_version not in (None, configuration.user_layer(table).version):
            message = "Configuration was modified since last read. Fetch latest version and retry."
            raise WriteRefused("configVersionConflict", message)
        parsed[:] = [_parse(edit) for edit in edits]
        try:
            after = apply(table, parsed)
        except BadEdit as error:
            raise WriteRefused("configValidationError", str(error), ".".join(error.path)) from error
        _validate(configuration, table, after)
        return after

    written = change_user_file(configuration, change)
    overridden = _find_overridden(configuration.everywhere(written), [e.path for e in parsed])
    return ConfigWriteResponse(
        file_path=str(path),
        status="ok" if overridden is None else "okOverridden",
        version=configuration.user_layer(written).version,
        overridden_metadata=overridden,
    )


def change_user_file(configuration: Configuration, change: Callable[[Table], Table]) -> Table:
    """Apply `change` to the user's file, and return the new content.

    Raises:
        ConfigError: the current file is not TOML; errors of `change` propagate.
        WriteRefused: the next read of the file would refuse it.
    """
    path = configuration.user_file
    after: Table = {}

    def rewritten(content: bytes) -> bytes:
        nonlocal after
        try:
            text = content.decode()
            before = tomllib.loads(text)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            message = f"{path}: {error}"
            raise ConfigError(message, file=path) from error
        after = change(before)
        changed = rewrite(text, before, after)
        encoded = changed.encode()
        if len(encoded) > MAX_CONFIG_BYTES:
            message = f"{path} would have {len(encoded)} bytes: expected at most {MAX_CONFIG_BYTES}"
            raise WriteRefused("configValidationError", message)
        if (fault := fault_of_keys(changed)) is not None:
            raise WriteRefused("configValidationError", f"{path} could not be read: {fault}")
        return encoded

    edit_file(path, rewritten)
    configuration.forget()
    return after


def _check_sizes(edits: Sequence[ConfigEdit]) -> None:
    """Limit the number and depth of values: tomlkit takes quadratic time for a list."""
    count = 0
    for edit in edits:
        name = edit.key_path if len(edit.key_path) <= 60 else f"{edit.key_path[:60]}..."
        size = count_values(edit.value)
        count += size
        if count > MAX_SETTINGS:
            where = "" if count == size else f", {count} with the edits before it"
            message = f"`{name}` has {size} values{where}: expected at most {MAX_SETTINGS}"
            raise WriteRefused("configValidationError", message, name)
        depth = _depth(edit.value)
        if depth > MAX_DEPTH:
            message = f"`{name}` has {depth} levels: expected at most {MAX_DEPTH}"
            raise WriteRefused("configValidationError", message, name)


def _depth(value: JsonValue) -> int:
    if not isinstance(value, dict | list):
        return 0
    parts = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, parts), default=0)


def _file_to_write(configuration: Configuration, file_path: str | None) -> Path:
    path = configuration.user_file
    if file_path is None:
        return path
    # Not resolved: the answer repeats the client's name for the file.
    named = Path(os.path.abspath(file_path)) if "\0" not in file_path else None  # noqa: PTH100
    if named is None or os.path.realpath(named) != os.path.realpath(path):
        raise WriteRefused(
            "configLayerReadonly", "Only writes to the user config are allowed", "filePath"
        )
    return named


def _parse(edit: ConfigEdit) -> TableEdit:
    try:
        path = parse_key_path(edit.key_path)
    except BadKeyPath as error:
        raise WriteRefused("configValidationError", str(error), "keyPath") from error
    return TableEdit(path, edit.value, is_upsert=edit.merge_strategy == "upsert")


def _validate(configuration: Configuration, before: Table, after: Table) -> None:
    try:
        settings = check(after)
        configuration.everywhere(after)
        read_providers(settings, configuration.environ)
        _check_features(configuration, settings)
        _check_servers(before.get("mcp_servers"), settings.mcp_servers)
    except ConfigError as error:
        message = f"Invalid configuration: {error}"
        raise WriteRefused("configValidationError", message, error.key) from error


def _check_features(configuration: Configuration, settings: ConfigValues) -> None:
    pinned = pinned_features(configuration.requirements())
    for name, value in settings.features.items():
        wanted = pinned.get(canonical(name))
        if wanted is not None and is_on(value) != wanted:
            word = "on" if wanted else "off"
            message = f"`features.{name}` must stay {word} on this machine"
            raise ConfigError(message, key=f"features.{name}")


def _check_servers(before: JsonValue, after: Mapping[str, Table]) -> None:
    """Check the servers that are new or changed; earlier faults do not block a write."""
    known = before if isinstance(before, dict) else {}
    for name, table in after.items():
        if table == known.get(name):
            continue
        try:
            read_server(name, table)
        except BadServer as error:
            key = f"mcp_servers.{name}"
            message = f"{error} at `{key}`"
            raise ConfigError(message, key=key) from error


def _find_overridden(
    layers: Sequence[Layer], paths: Sequence[KeyPath]
) -> OverriddenMetadata | None:
    """Return the first written key that a higher layer overrides."""
    merged = merge(layers).table
    system_and_user = 2
    for path in paths:
        effective = _value_at(merged, path)
        if effective is _MISSING or effective == _value_at(layers[1].table, path):
            continue
        for layer in reversed(layers[system_and_user:]):
            if _value_at(layer.table, path) is not _MISSING:
                return OverriddenMetadata(
                    effective_value=effective,
                    message=f"Overridden by {_describe(layer)}",
                    overriding_layer=layer.metadata,
                )
    return None


def _describe(layer: Layer) -> str:
    is_flags = isinstance(layer.source, SessionFlagsConfigLayerSource)
    return "session flags" if is_flags else layer.label


def _value_at(table: JsonValue, path: KeyPath) -> JsonValue:
    for name in path:
        if not isinstance(table, dict) or name not in table:
            return _MISSING
        table = table[name]
    return table
