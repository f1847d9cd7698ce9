"""The plugins that marketplaces list: where these are, and what clients are shown of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, get_args

import msgspec
from msgspec import structs

from treadle.config.configuration import Configuration
from treadle.engine.plugins.ids import BadPlugin, PluginId
from treadle.engine.plugins.manifest import PluginManifest, find_manifest, read_manifest
from treadle.engine.plugins.marketplace import (
    ListedPlugin,
    LoadFault,
    Marketplace,
    MarketplaceUnreadable,
    find_marketplace,
    read_marketplace,
)
from treadle.engine.plugins.parts import PluginHookTable, hook_keys, load_parts
from treadle.engine.project.docs import repository_root
from treadle.engine.project.skills import find_skills
from treadle.protocol.hook import HookEventName
from treadle.protocol.marketplace import MarketplaceInterface, MarketplaceLoadErrorInfo
from treadle.protocol.plugin import (
    GitPluginSource,
    NpmPluginSource,
    PluginDetail,
    PluginHookSummary,
    PluginInterface,
    PluginMarketplaceEntry,
    PluginSource,
    PluginSummary,
)
from treadle.protocol.skill import SkillInterface, SkillMetadata, SkillSummary
from treadle.server.plugins.active import ActivePlugins, install_root
from treadle.server.sources.skills import disabled_skills

MAX_MARKETPLACES: Final = 200
MAX_SHOWN: Final = 16 * 1024 * 1024
"""The maximum size of the manifests that one answer shows; other plugins have only their names."""

MAX_HOOKS: Final = 1000
"""The maximum number of hooks of one plugin that are shown; more than may run."""

_EVENTS: Final[Mapping[str, HookEventName]] = {name: name for name in get_args(HookEventName)}


class ManifestRoom:
    """Reads manifests for one answer, up to a limit: many plugins may share one large manifest."""

    def __init__(self, size: int | None = None) -> None:
        self._left = MAX_SHOWN if size is None else size

    def read(self, root: Path | None) -> PluginManifest | None:
        """Return the manifest in a folder; `None` if it is bad, or there is no room for it."""
        path = None if root is None or self._left <= 0 else find_manifest(root)
        if root is None or path is None:
            return None
        try:
            self._left -= path.stat().st_size
            manifest = read_manifest(root) if self._left >= 0 else None
        except (BadPlugin, OSError):
            return None  # `plugin/read` says why
        # The paths of images are longer than in the file.
        shown = manifest and (manifest.interface, manifest.keywords)
        self._left -= len(msgspec.json.encode(shown))
        return manifest if self._left >= 0 else None


class PluginCatalog:
    """Reads marketplaces, and compares them with what is installed."""

    def __init__(self, configuration: Configuration, active: ActivePlugins) -> None:
        self._configuration = configuration
        self.active: Final = active

    def marketplaces(self, cwds: Sequence[str] = ()) -> tuple[list[Marketplace], list[LoadFault]]:
        """Read the user's own marketplace, the configured ones, and those of some folders.

        Each plugin id counts once.
        """
        found: list[Marketplace] = []
        faults: list[LoadFault] = []
        seen: set[PluginId] = set()
        for path in list(dict.fromkeys(self._paths(cwds, faults)))[:MAX_MARKETPLACES]:
            try:
                marketplace = read_marketplace(path)
            except (BadPlugin, MarketplaceUnreadable) as error:
                faults.append(LoadFault(path, str(error)))
                continue
            plugins = [plugin for plugin in marketplace.plugins if plugin.id not in seen]
            seen.update(plugin.id for plugin in plugins)
            found.append(structs.replace(marketplace, plugins=plugins))
        return found, faults

    def _paths(self, cwds: Sequence[str], faults: list[LoadFault]) -> Iterator[Path]:
        user_home = self._configuration.environ.get("HOME")
        if user_home and (path := find_marketplace(Path(user_home))):
            yield path
        for name, root in self.configured_roots():
            path = find_marketplace(root)
            if path is not None:
                yield path
            else:
                reason = f"marketplace `{name[:200]}` has no marketplace file in {root}"
                faults.append(LoadFault(root, reason))
        for cwd in cwds:
            top = repository_root(Path(cwd))
            for folder in (Path(cwd), *([top] if top is not None else [])):
                if path := find_marketplace(folder):
                    yield path
                    break

    def check_source(self, marketplace: Marketplace) -> None:
        """Check that a marketplace does not use the name of another one that the user has.

        A plugin of it would take the place of theirs, with its settings and the trust in its hooks.

        Raises:
            BadPlugin: it does.
        """
        known = [path for path in self._paths((), []) if _name_of(path) == marketplace.name]
        places = {os.path.realpath(path) for path in known}
        if places and os.path.realpath(marketplace.path) not in places:
            reason = "is another one, which you have already; remove that one before"
            raise BadPlugin(f"marketplace `{marketplace.name}` in {known[0]} {reason}")

    def configured_roots(self) -> Iterator[tuple[str, Path]]:
        """Yield the names and folders of the configured marketplaces, by folder."""
        roots = [
            (root, name)
            for name, table in self.active.marketplaces().items()
            if (root := self.root_of(name, table)) is not None
        ]
        yield from ((name, root) for root, name in sorted(roots))

    def root_of(self, name: str, table: object) -> Path | None:
        """Return the folder of a configured marketplace."""
        if not isinstance(table, dict):
            return None
        if table.get("source_type") != "local":
            is_safe = "/" not in name and name not in ("", ".", "..")
            return install_root(self._configuration.home) / name if is_safe else None
        source = table.get("source")
        return Path(source) if isinstance(source, str) and source.startswith("/") else None

    def entry(
        self,
        marketplace: Marketplace,
        room: ManifestRoom,
        plugins: Sequence[ListedPlugin] | None = None,
    ) -> PluginMarketplaceEntry:
        """Return a marketplace for clients, with all its plugins or some."""
        shown = marketplace.display_name
        listed = marketplace.plugins if plugins is None else plugins
        return PluginMarketplaceEntry(
            name=marketplace.name,
            path=str(marketplace.path),
            interface=None if shown is None else MarketplaceInterface(display_name=shown),
            plugins=self.summaries(listed, room),
        )

    def summaries(self, plugins: Iterable[ListedPlugin], room: ManifestRoom) -> list[PluginSummary]:
        """Return plugins for clients."""
        settings = self.active.settings()
        enabled = {plugin for plugin, each in settings.items() if each.enabled}
        return [self._summary(plugin, enabled, room) for plugin in plugins]

    def _summary(
        self, plugin: ListedPlugin, enabled: Collection[PluginId], room: ManifestRoom
    ) -> PluginSummary:
        installed = self.active.cache.active(plugin.id)
        manifest = room.read(plugin.folder or installed)
        return PluginSummary(
            auth_policy=plugin.auth_policy,
            enabled=installed is not None and plugin.id in enabled,
            id=str(plugin.id),
            install_policy=plugin.install_policy,
            installed=installed is not None,
            name=plugin.id.name,
            source=plugin.source,
            interface=_interface(manifest, plugin.category),
            keywords=manifest.keywords if manifest is not None else [],
            local_version=manifest.version if manifest is not None else None,
        )

    def installed(self, marketplace: Marketplace, suggested: Sequence[str]) -> list[ListedPlugin]:
        """Return the plugins that are installed, or suggested by name."""
        return [
            plugin
            for plugin in marketplace.plugins
            if plugin.id.name in suggested or self.active.cache.active(plugin.id) is not None
        ]

    def apps(self, plugin: ListedPlugin) -> dict[str, str | None]:
        """Return the apps of a plugin with their categories."""
        root = self.active.cache.active(plugin.id) or plugin.folder
        try:
            return {} if root is None else load_parts(plugin.id, root).apps
        except BadPlugin:
            return {}

    def detail(self, marketplace: Marketplace, plugin: ListedPlugin) -> PluginDetail:
        """Return a plugin with its parts, from its folder or from the installed copy.

        Raises:
            BadPlugin: it has no folder, or no valid manifest.
        """
        root = plugin.folder or self.active.cache.active(plugin.id)
        common = PluginDetail(
            app_templates=[],
            apps=[],
            hooks=[],
            marketplace_name=marketplace.name,
            marketplace_path=str(marketplace.path),
            mcp_servers=[],
            skills=[],
            summary=self.summaries([plugin], ManifestRoom())[0],
        )
        if root is None:
            return structs.replace(common, description=_about_source(plugin.source))
        if not root.is_dir():
            raise BadPlugin("path does not exist or is not a directory")
        parts = load_parts(plugin.id, root)
        sources, _ = parts.hooks(self.active.cache.data(plugin.id))
        skills = find_skills(parts.skill_roots, disabled_skills(self._configuration))
        return structs.replace(
            common,
            description=parts.manifest.description,
            hooks=list(islice(_hooks(sources), MAX_HOOKS)),
            mcp_servers=sorted(parts.servers),
            skills=[_skill(skill) for skill in skills.entries],
        )


def _name_of(path: Path) -> str | None:
    try:
        return read_marketplace(path).name
    except (BadPlugin, MarketplaceUnreadable):
        return None


def _hooks(sources: Iterable[PluginHookTable]) -> Iterator[PluginHookSummary]:
    for source in sources:
        for event, key in hook_keys(source):
            if event in _EVENTS:
                yield PluginHookSummary(event_name=_EVENTS[event], key=key)


def load_errors(faults: Sequence[LoadFault]) -> list[MarketplaceLoadErrorInfo]:
    """Return faults of marketplaces for clients."""
    return [
        MarketplaceLoadErrorInfo(marketplace_path=str(fault.path), message=fault.message)
        for fault in faults
    ]


def _interface(manifest: PluginManifest | None, category: str | None) -> PluginInterface | None:
    """Return how to show a plugin; the category of the marketplace comes first."""
    interface = manifest.interface if manifest is not None else None
    if category is None:
        return interface
    empty = PluginInterface(capabilities=[], screenshot_urls=[], screenshots=[])
    return structs.replace(interface or empty, category=category)


def _skill(skill: SkillMetadata) -> SkillSummary:
    interface = skill.interface if isinstance(skill.interface, SkillInterface) else None
    short = skill.short_description
    return SkillSummary(
        description=skill.description,
        enabled=skill.enabled,
        name=skill.name,
        interface=interface,
        path=skill.path,
        short_description=short if isinstance(short, str) else None,
    )


def _about_source(source: PluginSource) -> str:
    advice = "Install it to view more detailed information. The source of the plugin is"
    if isinstance(source, GitPluginSource):
        named = (("path", source.path), ("ref", source.ref_name), ("sha", source.sha))
        more = "".join(f", {what} `{value}`" for what, value in named if value is not None)
        return f"This is a cross-repo plugin. {advice} {source.url}{more}."
    if isinstance(source, NpmPluginSource):
        more = "" if source.version is None else f", version `{source.version}`"
        return f"This is an npm plugin. {advice} {source.package}{more}."
    return ""
