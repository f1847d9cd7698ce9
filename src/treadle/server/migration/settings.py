"""Settings and hooks of Claude Code, in the form of `config.toml` and `hooks.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from treadle.config.settings import Table
from treadle.protocol.base import JsonValue
from treadle.server.migration.places import Place, UnreadableSource, part, read_object

_EVENTS: Final = (
    *("PreToolUse", "PostToolUse", "PermissionRequest", "UserPromptSubmit", "SessionStart"),
    *("SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Stop"),
)


def find_settings(place: Place) -> Table:
    """Return the settings that `config.toml` can express.

    `settings.local.json` of a project is left out: it is private, and `.codex` may be shared.

    Raises:
        UnreadableSource: a file cannot be read.
    """
    if place.agent != "claude":
        return {}
    variables: dict[str, JsonValue] = {}
    is_sandboxed = False
    for name in ("settings.json", "settings.local.json")[: 2 if place.cwd is None else 1]:
        path = place.source / name
        document = read_object(path)
        variables |= {
            key: value
            for key, value in part(document, "env", path).items()
            if isinstance(value, str)
        }
        is_sandboxed |= part(document, "sandbox", path).get("enabled") is True
    table: Table = {"sandbox_mode": "workspace-write"} if is_sandboxed else {}
    if variables:
        table["shell_environment_policy"] = {"set": variables}
    return table


def add_missing(table: Table, found: Mapping[str, JsonValue]) -> Table:
    """Return a table with the settings that it does not have yet."""
    merged = dict(table)
    for key, value in found.items():
        if key not in merged:
            merged[key] = value
        elif isinstance(value, dict) and isinstance(merged[key], dict):
            merged[key] = add_missing(merged[key], value)
    return merged


def find_hooks(place: Place) -> dict[str, JsonValue]:
    """Return the hooks that are commands, by event, without events that Treadle has hooks for.

    Raises:
        UnreadableSource: a file cannot be read.
    """
    if place.agent != "claude":
        return {}
    path = place.source / "settings.json"
    hooks = part(read_object(path), "hooks", path)
    known = part(read_object(place.hooks), "hooks", place.hooks)
    found: dict[str, JsonValue] = {}
    for event in _EVENTS:
        groups = hooks.get(event) or []
        if event in known or not groups:
            continue
        if not isinstance(groups, list):
            raise UnreadableSource(f"{path}: hooks.{event}: expected a list")
        commands = [each for group in groups if (each := _commands(group))]
        if commands:
            found[event] = commands
    return found


def _commands(group: JsonValue) -> JsonValue:
    """Return a group of hooks with those that are commands, or `None` if none is."""
    if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
        return None
    hooks = [
        {key: each[key] for key in ("type", "command", "timeout") if _is_plain(each.get(key))}
        for each in group["hooks"]
        if isinstance(each, dict)
        and each.get("type") == "command"
        and isinstance(each.get("command"), str)
    ]
    if not hooks:
        return None
    matcher = group.get("matcher")
    return {**({"matcher": matcher} if isinstance(matcher, str) else {}), "hooks": hooks}


def _is_plain(value: JsonValue) -> bool:
    """Return whether a value is a text or a number: another one would spoil the file."""
    return isinstance(value, str | int) and not isinstance(value, bool)
