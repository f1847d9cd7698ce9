"""Reads the hooks that an administrator requires, in the format of `requirements.toml`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from treadle.config.file import ConfigError
from treadle.config.hooks.parse import Slot, Wrong, read_handler, read_table
from treadle.engine.hooks.events import BY_TITLE
from treadle.protocol.base import JsonValue

_FOLDERS = {"managed_dir": "managedDir", "windows_managed_dir": "windowsManagedDir"}


def hooks_required(table: JsonValue) -> JsonValue:
    """Return the table in the protocol's form.

    Raises:
        ConfigError: a hook is invalid, so it cannot be enforced.
    """
    if not isinstance(table, dict):
        return table  # the caller reports the type
    events = {name: value for name, value in table.items() if name not in _FOLDERS}
    folders = {_FOLDERS[name]: table[name] for name in _FOLDERS if name in table}
    for found in read_table(events):
        if isinstance(found, Wrong) or found.fault is not None:
            raise ConfigError(f"{found.fault} in requirements.toml", key="hooks")
    groups = {title: _groups(events.get(title, []), title) for title in BY_TITLE}
    return {**folders, **groups}


def _groups(groups: list[Mapping[str, JsonValue]], title: str) -> list[JsonValue]:
    event = BY_TITLE[title]
    return [
        {
            "matcher": group.get("matcher"),
            "hooks": [
                _handler(Slot(event=event, group=0, index=0, path=()), handler)
                for handler in group.get("hooks", [])
            ],
        }
        for group in groups
    ]


def _handler(slot: Slot, value: JsonValue) -> JsonValue:
    handler = read_handler(slot, value).handler
    return value if handler is None else msgspec.to_builtins(handler)
