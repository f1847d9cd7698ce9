"""MCP servers of other agents, in the form of `config.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from treadle.protocol.base import JsonValue
from treadle.server.migration.places import Place, UnreadableSource, part, read_object

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_BEARER: Final = re.compile(r"Bearer \$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")


def find_servers(place: Place) -> dict[str, Mapping[str, JsonValue]]:
    """Return the servers that the other agent uses in a place, by name.

    Those that the user has added for one project only are left out: they may contain keys, and
    `.codex` may be shared.

    Raises:
        UnreadableSource: a file cannot be read.
    """
    if place.agent == "cursor":
        path = place.source / "mcp.json"
        found = part(read_object(path), "mcpServers", path)
    elif place.cwd is None:
        path = place.root / ".claude.json"
        found = part(read_object(path), "mcpServers", path)
    else:
        path = place.root / ".mcp.json"
        found = part(read_object(path), "mcpServers", path)
    return {name: entry for name, entry in sorted(found.items()) if _can_run(entry)}


def _can_run(entry: JsonValue) -> bool:
    if not isinstance(entry, dict) or entry.get("disabled") is True:
        return False
    is_http = isinstance(entry.get("url"), str) and entry.get("type") != "sse"
    return is_http or isinstance(entry.get("command"), str)


def settings_of(name: str, entry: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the table of a server.

    Raises:
        UnreadableSource: it has something that `config.toml` cannot express.
    """
    if not _NAME.fullmatch(name):
        raise UnreadableSource(f"{name!r}: expected a name of letters, digits, `-` and `_`")
    if isinstance(entry.get("command"), str):
        return _process(name, entry)
    return _http(name, entry)


def _process(name: str, entry: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    table: dict[str, JsonValue] = {"command": _plain(name, "command", entry["command"])}
    arguments = entry.get("args") or []
    if not isinstance(arguments, list):
        raise UnreadableSource(f"{name}: args: expected a list")
    if arguments:
        table["args"] = [_plain(name, "args", each) for each in arguments]
    values: dict[str, JsonValue] = {}
    passed: list[str] = []
    for variable, value in _strings(name, "env", entry).items():
        reference = _VARIABLE.fullmatch(value)
        if reference is not None and reference[1] == variable:
            passed.append(variable)
        else:
            values[variable] = _plain(name, f"env.{variable}", value)
    if passed:
        table["env_vars"] = passed
    if values:
        table["env"] = values
    return table


def _http(name: str, entry: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    table: dict[str, JsonValue] = {"url": _plain(name, "url", entry["url"])}
    values: dict[str, JsonValue] = {}
    passed: dict[str, JsonValue] = {}
    for header, value in _strings(name, "headers", entry).items():
        bearer, reference = _BEARER.fullmatch(value), _VARIABLE.fullmatch(value)
        if bearer is not None and header.lower() == "authorization":
            table["bearer_token_env_var"] = bearer[1]
        elif reference is not None:
            passed[header] = reference[1]
        else:
            values[header] = _plain(name, f"headers.{header}", value)
    if values:
        table["http_headers"] = values
    if passed:
        table["env_http_headers"] = passed
    return table


def _strings(name: str, key: str, entry: Mapping[str, JsonValue]) -> Mapping[str, str]:
    found = entry.get(key) or {}
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise UnreadableSource(f"{name}: {key}: expected an object with strings")
    return found


def _plain(name: str, key: str, value: JsonValue) -> str:
    """Return a value without variables, which `config.toml` does not expand."""
    if not isinstance(value, str):
        raise UnreadableSource(f"{name}: {key}: expected a string")
    if "${" in value:
        raise UnreadableSource(f"{name}: {key}: variables are not expanded here")
    return value
