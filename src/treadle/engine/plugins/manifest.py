"""The manifest of a plugin: `.codex-plugin/plugin.json`, or a place that other agents use."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.engine.plugins.documents import (
    MAX_LIST,
    as_table,
    as_text,
    as_texts,
    path_below,
    read_document,
)
from treadle.engine.plugins.ids import BadPlugin, check_version
from treadle.protocol.base import JsonValue
from treadle.protocol.plugin import PluginInterface
from treadle.support.text.urls import web_link

MANIFESTS: Final = (
    ".codex-plugin/plugin.json",
    ".claude-plugin/plugin.json",
    ".cursor-plugin/plugin.json",
    "plugin.json",
)
"""Where a manifest may be, in order of preference."""

LOCAL: Final = "local"
"""The version of a plugin whose manifest names none."""

MAX_PROMPTS: Final = 3
MAX_PROMPT: Final = 1024

logger = logging.getLogger(__name__)


class PluginManifest(Struct, frozen=True, kw_only=True):
    """What a plugin says about itself; paths are inside its folder."""

    path: Path
    name: str
    version: str | None = None
    description: str | None = None
    keywords: list[str] = []
    interface: PluginInterface | None = None
    skills: tuple[Path, ...] = ()
    # A file, or the servers themselves.
    mcp_servers: Path | dict[str, JsonValue] | None = None
    apps: Path | None = None
    # Files, or tables of hooks.
    hooks: tuple[Path | dict[str, JsonValue], ...] | None = None

    @property
    def title(self) -> str:
        """The name for people and models."""
        shown = self.interface.display_name if self.interface is not None else None
        return (shown or "").strip() or self.name


def find_manifest(root: Path) -> Path | None:
    """Return the path of a plugin's manifest, if it has one."""
    return next((path for name in MANIFESTS if (path := root / name).is_file()), None)


def read_manifest(root: Path, *, name: str | None = None) -> PluginManifest:
    """Read the manifest of the plugin in a folder; a manifest without a name gets the given one.

    Raises:
        BadPlugin: there is none, or it is invalid.
    """
    path = find_manifest(root)
    if path is None:
        raise BadPlugin("missing plugin.json")
    try:
        table = read_document(path, root)
    except OSError as error:
        raise BadPlugin(f"failed to read plugin.json: {error.strerror}") from error
    except BadPlugin as error:
        raise BadPlugin(f"failed to parse plugin.json: {error}") from error
    if not isinstance(table, dict):
        raise BadPlugin("failed to parse plugin.json: expected an object")
    named = table.get("name", "")
    if not isinstance(named, str):
        raise BadPlugin("failed to parse plugin.json: expected a string at `name`")
    return PluginManifest(
        path=path,
        name=named if named.strip() else name or root.name,
        version=_version(table.get("version")),
        description=as_text(table.get("description")),
        keywords=as_texts(table.get("keywords")),
        interface=_interface(as_table(table.get("interface")), root),
        skills=_paths(table.get("skills"), root, "skills"),
        mcp_servers=_servers(table.get("mcpServers"), root),
        apps=_path(table.get("apps"), root, "apps"),
        hooks=_hooks(table.get("hooks"), root),
    )


def _version(value: JsonValue) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadPlugin("invalid plugin version in plugin.json: expected string")
    version = value.strip()
    if not version:
        raise BadPlugin("invalid plugin version in plugin.json: must not be blank")
    check_version(version)
    return version


def _path(value: JsonValue, root: Path, field: str) -> Path | None:
    if not isinstance(value, str) or not value:
        return None
    path = path_below(root, value)
    if path is None:
        reason = "expected a path that starts with `./` and stays inside the plugin"
        logger.warning("path ignored", extra={"plugin": str(root), "at": field, "reason": reason})
    return path


def _paths(value: JsonValue, root: Path, field: str) -> tuple[Path, ...]:
    entries = value[:MAX_LIST] if isinstance(value, list) else [value]
    paths = (_path(entry, root, field) for entry in entries)
    return tuple(path for path in paths if path is not None)


def _servers(value: JsonValue, root: Path) -> Path | dict[str, JsonValue] | None:
    return value if isinstance(value, dict) else _path(value, root, "mcpServers")


def _hooks(value: JsonValue, root: Path) -> tuple[Path | dict[str, JsonValue], ...] | None:
    if value is None:
        return None
    entries = value[:MAX_LIST] if isinstance(value, list) else [value]
    found: list[Path | dict[str, JsonValue]] = []
    for entry in entries:
        each = entry if isinstance(entry, dict) else _path(entry, root, "hooks")
        # A file that is named again and again is read once.
        if isinstance(each, dict) or (each is not None and each not in found):
            found.append(each)
    return tuple(found) or None


def _interface(table: dict[str, JsonValue], root: Path) -> PluginInterface | None:
    def image(name: str) -> str | None:
        path = _path(table.get(name), root, f"interface.{name}")
        return None if path is None else str(path)

    def text(*names: str) -> str | None:
        return next((found for name in names if (found := as_text(table.get(name)))), None)

    if not table:
        return None
    shots = [str(each) for each in _paths(table.get("screenshots"), root, "interface.screenshots")]
    interface = PluginInterface(
        capabilities=as_texts(table.get("capabilities")),
        screenshot_urls=[],
        screenshots=shots,
        brand_color=text("brandColor"),
        category=text("category"),
        composer_icon=image("composerIcon"),
        default_prompt=_prompts(table.get("defaultPrompt")),
        developer_name=text("developerName"),
        display_name=text("displayName"),
        logo=image("logo"),
        logo_dark=image("logoDark"),
        long_description=text("longDescription"),
        privacy_policy_url=web_link(text("privacyPolicyUrl", "privacyPolicyURL")),
        short_description=text("shortDescription"),
        terms_of_service_url=web_link(text("termsOfServiceUrl", "termsOfServiceURL")),
        website_url=web_link(text("websiteUrl", "websiteURL")),
    )
    empty = PluginInterface(capabilities=[], screenshot_urls=[], screenshots=[])
    return None if interface == empty else interface


def _prompts(value: JsonValue) -> list[str] | None:
    entries = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    prompts = (" ".join(each.split()) for each in entries[:MAX_LIST] if isinstance(each, str))
    fitting = [prompt for prompt in prompts if 0 < len(prompt) <= MAX_PROMPT]
    return fitting[:MAX_PROMPTS] or None
