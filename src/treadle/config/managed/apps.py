"""What an administrator demands of apps: `[apps]` of `requirements.toml`."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from treadle.config.file import ConfigError
from treadle.config.managed.requirements import Replaced
from treadle.config.settings import Table
from treadle.protocol.app import AppToolApproval
from treadle.protocol.base import JsonValue


class _Tool(Struct, frozen=True):
    approval_mode: AppToolApproval | None = None


class _App(Struct, frozen=True):
    enabled: bool | None = None
    tools: dict[str, _Tool] = {}


def pin_apps(required: JsonValue, table: Table) -> list[Replaced]:
    """Disable apps and set approvals of tools in the merged table; return what was different.

    Raises:
        ConfigError: the requirement is invalid, so it cannot be enforced.
    """
    if required is None:
        return []
    try:
        apps = msgspec.convert(required, dict[str, _App])
    except msgspec.ValidationError as error:
        raise ConfigError(f"apps: {error} in requirements.toml", key="apps") from error
    replaced: list[Replaced] = []
    for app_id, app in apps.items():
        if app.enabled is False:
            _set(table, ("apps", app_id, "enabled"), False, replaced)
        for name, tool in app.tools.items():
            if tool.approval_mode is not None:
                key = ("apps", app_id, "tools", name, "approval_mode")
                _set(table, key, tool.approval_mode, replaced)
    return replaced


def _set(table: Table, path: tuple[str, ...], value: JsonValue, replaced: list[Replaced]) -> None:
    *folders, last = path
    for name in folders:
        inner = table.get(name)
        # A copy: tables of layers are kept.
        table[name] = dict(inner) if isinstance(inner, dict) else {}
        table = table[name]
    before = table.get(last, value)
    if before != value:
        replaced.append(Replaced(".".join(path), _word(before), _word(value)))
    table[last] = value


def _word(value: JsonValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
