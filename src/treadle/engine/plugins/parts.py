"""What an installed plugin provides: skills, MCP servers, hooks, apps."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from treadle.engine.plugins.documents import as_table, is_within, read_document
from treadle.engine.plugins.ids import BadPlugin, PluginId
from treadle.engine.plugins.manifest import MANIFESTS, PluginManifest, read_manifest
from treadle.engine.project.skills import SkillOwner, SkillRoot
from treadle.protocol.base import JsonValue

SKILLS: Final = "skills"
SERVERS: Final = ".mcp.json"
APPS: Final = ".app.json"
HOOKS: Final = "hooks/hooks.json"
MAX_SERVERS: Final = 64
MAX_APPS: Final = 100
_CASE: Final = re.compile(r"(?<!^)(?=[A-Z])")

logger = logging.getLogger(__name__)


class PluginHookTable(NamedTuple):
    """A table of hooks of a plugin, as the file has it; nothing in it has been checked.

    `hooks` is the value of its key `hooks`: groups of handlers by event (`SessionStart`). Programs
    run with the plugin's folder as `PLUGIN_ROOT` and `CLAUDE_PLUGIN_ROOT`, and with the folder for
    its data, which may not exist yet, as `PLUGIN_DATA` and `CLAUDE_PLUGIN_DATA`.
    """

    plugin: PluginId
    root: Path
    data: Path
    path: Path
    """The file, which is the manifest for hooks in the manifest."""
    label: str
    """The name of the source in keys: `ID:LABEL:EVENT:GROUP:HANDLER`."""
    hooks: dict[str, JsonValue]


class PluginParts(Struct, frozen=True, kw_only=True):
    """A plugin in a folder, with what it provides."""

    id: PluginId
    root: Path
    manifest: PluginManifest
    skill_roots: list[SkillRoot]
    # Configurations by name, with an absolute `cwd` where one is set.
    servers: dict[str, dict[str, JsonValue]]
    # Ids and the categories of apps.
    apps: dict[str, str | None]

    def hooks(self, data: Path) -> tuple[list[PluginHookTable], list[str]]:
        """Read the tables of hooks, and return warnings about those that cannot be read."""
        sources: list[PluginHookTable] = []
        warnings: list[str] = []
        for path, label, table in self._hook_tables(warnings):
            hooks = as_table(as_table(table).get("hooks"))
            if hooks:
                sources.append(PluginHookTable(self.id, self.root, data, path, label, hooks))
        return sources, warnings

    def _hook_tables(self, warnings: list[str]) -> Iterator[tuple[Path, str, JsonValue]]:
        places = self.manifest.hooks
        if places is None:
            default = self.root / HOOKS
            places = (default,) if default.is_file() else ()
        for at, place in enumerate(places):
            if isinstance(place, dict):
                yield self.manifest.path, f"plugin.json#hooks[{at}]", place
                continue
            try:
                table = read_document(place, self.root)
            except OSError as error:
                warnings.append(f"failed to read plugin hooks config {place}: {error.strerror}")
            except BadPlugin as error:
                warnings.append(f"failed to parse plugin hooks config {place}: {error}")
            else:
                yield place, place.relative_to(self.root).as_posix(), table


def hook_keys(source: PluginHookTable) -> Iterator[tuple[str, str]]:
    """Yield the event, with a small first letter, and the key of each handler of a source."""
    for event, groups in source.hooks.items():
        camel = f"{event[:1].lower()}{event[1:]}"
        snake = _CASE.sub("_", event).lower()
        for at, group in enumerate(groups if isinstance(groups, list) else []):
            handlers = as_table(group).get("hooks")
            for number in range(len(handlers) if isinstance(handlers, list) else 0):
                yield camel, f"{source.plugin}:{source.label}:{snake}:{at}:{number}"


def load_parts(plugin: PluginId, root: Path) -> PluginParts:
    """Return what the plugin in a folder provides; it is read again when its files change.

    Raises:
        BadPlugin: it has no valid manifest.
    """
    files = [*MANIFESTS, SERVERS, APPS, SKILLS]
    return _load_known(plugin, root, tuple(_stamp(root / name) for name in files))


@lru_cache(maxsize=256)
def _load_known(
    plugin: PluginId,
    root: Path,
    stamps: tuple[object, ...],  # noqa: ARG001 - another state is another answer
) -> PluginParts:
    manifest = read_manifest(root, name=plugin.name)
    return PluginParts(
        id=plugin,
        root=root,
        manifest=manifest,
        skill_roots=_skill_roots(plugin, root, manifest),
        servers=_servers(root, manifest),
        apps=_apps(root, manifest),
    )


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _skill_roots(plugin: PluginId, root: Path, manifest: PluginManifest) -> list[SkillRoot]:
    folders = {path for path in (root / SKILLS, *manifest.skills) if path.is_dir()}
    inside = sorted(path for path in folders if is_within(path, root))
    owner = SkillOwner(str(plugin), manifest.name, root)
    return [SkillRoot(folder, "user", plugin=owner) for folder in inside]


def _servers(root: Path, manifest: PluginManifest) -> dict[str, dict[str, JsonValue]]:
    place = manifest.mcp_servers
    if isinstance(place, dict):
        table = place
    else:
        table = _optional(place or root / SERVERS, root)
        inner = table.get("mcpServers")
        table = inner if isinstance(inner, dict) else table
    servers: dict[str, dict[str, JsonValue]] = {}
    for name, value in sorted(table.items())[:MAX_SERVERS]:
        server = _server(value, root)
        if server is None:
            logger.warning("MCP server left out", extra={"plugin": str(root), "server": name[:200]})
        else:
            servers[name] = server
    return servers


def _server(value: JsonValue, root: Path) -> dict[str, JsonValue] | None:
    """Return the configuration of a server; `None` if it is not one, or leaves the plugin."""
    if not isinstance(value, dict):
        return None
    # The kind follows from the other keys, and logins have settings of the whole server.
    table = {key: each for key, each in value.items() if key not in ("type", "oauth")}
    cwd = table.get("cwd")
    if isinstance(cwd, str):
        folder = Path(os.path.normpath(root / cwd))
        if not is_within(folder, root):
            return None
        table["cwd"] = str(folder)
    return table


def _apps(root: Path, manifest: PluginManifest) -> dict[str, str | None]:
    entries = as_table(_optional(manifest.apps or root / APPS, root).get("apps"))
    apps: dict[str, str | None] = {}
    for _, entry in sorted(entries.items())[:MAX_APPS]:
        table = as_table(entry)
        app, category = table.get("id"), table.get("category")
        if isinstance(app, str) and app.strip():
            apps[app[:200]] = category if isinstance(category, str) else None
    return apps


def _optional(path: Path, root: Path) -> dict[str, JsonValue]:
    """Read a file that a plugin may have; a fault is logged, and the rest of the plugin works."""
    try:
        return as_table(read_document(path, root))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        logger.warning("ignored", extra={"path": str(path), "reason": error.strerror})
    except BadPlugin as error:
        logger.warning("ignored", extra={"path": str(path), "reason": str(error)})
    return {}
