"""Adds, updates and removes marketplaces: an entry of the user's file, and fetched files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, NamedTuple

import msgspec

from treadle.config.configuration import Configuration
from treadle.config.edit.edits import TableEdit
from treadle.config.file import ConfigError
from treadle.config.settings import Table
from treadle.engine.plugins.copying import CopyLimits, copy_folder
from treadle.engine.plugins.git import MAX_FETCHED, MAX_FILES, Fetched, FetchFailed, GitFetcher
from treadle.engine.plugins.ids import BadPlugin, check_marketplace
from treadle.engine.plugins.marketplace import (
    MarketplaceUnreadable,
    find_marketplace,
    invalid,
    read_marketplace,
)
from treadle.engine.plugins.sources import FolderSource, GitSource, parse_marketplace_source
from treadle.protocol.base import JsonValue
from treadle.protocol.marketplace import (
    MarketplaceAddParams,
    MarketplaceAddResponse,
    MarketplaceRemoveResponse,
)
from treadle.server.plugins.active import install_root
from treadle.server.plugins.catalog import PluginCatalog
from treadle.server.plugins.installing import Installer, edit_user_file
from treadle.support.concurrency.workers import Workers
from treadle.support.files.folder_lock import locked
from treadle.support.files.folders import remove_folder
from treadle.support.files.writing import make_folders, replace_file

RESERVED: Final = "openai-curated"
STAGING: Final = ".staging"
RECORD: Final = ".codex-marketplace-install.json"


class Upgrade(NamedTuple):
    """What an update did: the marketplaces it looked at, the new folders, and faults by name."""

    selected: list[str]
    roots: list[Path]
    faults: list[tuple[str, str]]


class Marketplaces:
    """The marketplaces in the user's file."""

    def __init__(
        self,
        configuration: Configuration,
        catalog: PluginCatalog,
        git: GitFetcher,
        installer: Installer,
        changes: Workers,
    ) -> None:
        self._configuration = configuration
        self._catalog = catalog
        self._active = catalog.active
        self._git = git
        self._installer = installer
        # One thread: changes of plugins and marketplaces exclude each other.
        self._changes = changes

    async def add(self, params: MarketplaceAddParams) -> MarketplaceAddResponse:
        """Add a marketplace from a folder or a repository.

        Raises:
            BadPlugin: the source is invalid, or has no valid marketplace.
            FetchFailed: the repository cannot be fetched.
            OSError: the files or the entry cannot be written.
            ConfigError: the user's file is invalid.
        """
        source = await self._changes.run(self._parse, params)
        root = await self._changes.run(self._find, source)
        if root is not None:
            name = await self._changes.run(_name_in, root)
            return MarketplaceAddResponse(
                already_added=True, installed_root=str(root), marketplace_name=name
            )
        if isinstance(source, FolderSource):
            return await self._changes.run(self._add_folder, source)
        fetched = await self._git.fetch(source)
        try:
            return await self._changes.run(self._add_fetched, source, fetched)
        finally:
            await fetched.remove()

    def _parse(self, params: MarketplaceAddParams) -> GitSource | FolderSource:
        return parse_marketplace_source(
            params.source,
            params.ref_name,
            tuple(params.sparse_paths or ()),
            user_home=self._configuration.environ.get("HOME"),
        )

    def _find(self, source: GitSource | FolderSource) -> Path | None:
        """Return the folder of a marketplace that was already added from this source."""
        wanted = _entry(source)
        for name, table in self._active.marketplaces().items():
            if not isinstance(table, dict) or any(
                (table.get(key) or None) != wanted.get(key)
                for key in ("source_type", "source", "ref", "sparse_paths")
            ):
                continue
            root = self._catalog.root_of(name, table)
            if root is not None and _is_valid(root):
                return root
        return None

    def _add_folder(self, source: FolderSource) -> MarketplaceAddResponse:
        name = _name_in(source.path)
        self._check_new(name)
        edit_user_file(self._configuration, _edit(name, _entry(source)))
        return MarketplaceAddResponse(
            already_added=False, installed_root=str(source.path), marketplace_name=name
        )

    def _check_new(self, name: str) -> None:
        if name == RESERVED:
            raise BadPlugin(
                f"marketplace '{RESERVED}' is reserved and cannot be added from this source"
            )
        known = dict(self._catalog.configured_roots()).get(name)
        if known is not None and _is_valid(known):
            reason = "is already added from a different source; remove it before adding this source"
            raise BadPlugin(f"marketplace '{name}' {reason}")

    def _add_fetched(self, source: GitSource, fetched: Fetched) -> MarketplaceAddResponse:
        name = _name_in(fetched.tree)
        self._check_new(name)
        root = self._put(name, source, fetched)
        return MarketplaceAddResponse(
            already_added=False, installed_root=str(root), marketplace_name=name
        )

    def _put(self, name: str, source: GitSource, fetched: Fetched) -> Path:
        """Put fetched files in place, and write the entry; on a fault, the old ones stay."""
        top = install_root(self._configuration.home)
        for folder in (top.parent, top, top / STAGING):
            make_folders(folder)
        with locked(top / STAGING), _temporary(top / STAGING) as staging:
            staged, old, root = staging / "new", staging / "old", top / name
            limits = CopyLimits(entries=2 * MAX_FILES, size=MAX_FETCHED)
            keeps = _selected(source.sparse_paths)
            copy_folder(fetched.tree, staged, limits, root=fetched.tree, keeps=keeps)
            if _name_in(staged) != name:
                raise BadPlugin("the marketplace changed while it was copied")
            _write_record(staged, source, fetched.commit)
            if os.path.lexists(root):
                root.rename(old)
            staged.rename(root)
            try:
                edit_user_file(self._configuration, _edit(name, _entry(source)))
            except BaseException:
                root.rename(staged)
                if os.path.lexists(old):
                    old.rename(root)
                raise
        return root

    async def remove(self, name: str) -> MarketplaceRemoveResponse:
        """Remove a marketplace and its fetched files; plugins installed from it stay.

        Raises:
            BadPlugin: there is no such marketplace.
            OSError: the files or the entry cannot be removed.
            ConfigError: the user's file is invalid.
        """
        check_marketplace(name)
        root = await self._changes.run(self._remove, name)
        return MarketplaceRemoveResponse(
            marketplace_name=name, installed_root=None if root is None else str(root)
        )

    def _remove(self, name: str) -> Path | None:
        root = install_root(self._configuration.home) / name
        is_fetched = os.path.lexists(root)
        if name not in self._active.marketplaces() and not is_fetched:
            raise BadPlugin(f"marketplace `{name}` is not configured or installed")
        edit_user_file(self._configuration, TableEdit(("marketplaces", name), None))
        if not is_fetched:
            return None
        top = root.parent / STAGING
        make_folders(top)
        with locked(top), _temporary(top) as gone:
            root.rename(gone / "old")
        return root

    async def upgrade(self, name: str | None) -> Upgrade:
        """Update one fetched marketplace or all, and the plugins that are installed from them.

        Raises:
            BadPlugin: there is no such marketplace, or it was not fetched.
        """
        sources = await self._changes.run(self._fetched_sources)
        if name is not None:
            if name not in sources:
                raise BadPlugin(
                    f"marketplace `{name[:200]}` is not configured as a Git marketplace"
                )
            sources = {name: sources[name]}
        outcome = Upgrade(sorted(sources), [], [])
        for each in outcome.selected:
            try:
                root = await self._upgrade(each, sources[each])
            except (BadPlugin, FetchFailed, MarketplaceUnreadable, OSError, ConfigError) as error:
                outcome.faults.append((each, str(error)))
                continue
            if root is not None:
                outcome.roots.append(root)
                outcome.faults.extend([(each, fault) for fault in await self._refresh(root)])
        return outcome

    def _fetched_sources(self) -> dict[str, GitSource]:
        return {
            name: source
            for name, table in self._active.marketplaces().items()
            if (source := _git_source(name, table)) is not None
        }

    async def _upgrade(self, name: str, source: GitSource) -> Path | None:
        """Fetch a marketplace again if its branch or tag has changed; return its folder then."""
        revision = await self._git.revision(source)
        root = install_root(self._configuration.home) / name
        if await self._changes.run(_has, root, source, revision):
            return None
        fetched = await self._git.fetch(source)
        try:
            found = await self._changes.run(_name_in, fetched.tree)
            if found != name:
                reason = f"does not match configured marketplace `{name}`"
                raise BadPlugin(f"upgraded marketplace name `{found}` {reason}")
            return await self._changes.run(self._replace, name, source, fetched)
        finally:
            await fetched.remove()

    def _replace(self, name: str, source: GitSource, fetched: Fetched) -> Path:
        if self._fetched_sources().get(name) != source:
            raise BadPlugin(f"marketplace `{name}` was changed while it was fetched")
        return self._put(name, source, fetched)

    async def _refresh(self, root: Path) -> list[str]:
        """Install the plugins of a marketplace again that are installed; return the faults."""
        path = await self._changes.run(find_marketplace, root)
        if path is None:
            return []
        marketplace = await self._changes.run(read_marketplace, path)
        faults: list[str] = []
        for plugin in marketplace.plugins:
            if self._active.cache.active(plugin.id) is None or not plugin.may_be_installed:
                continue
            try:
                await self._installer.copy(plugin, enables=False)
            except (BadPlugin, FetchFailed, OSError) as error:
                faults.append(f"plugin `{plugin.id.name}`: {error}")
        return faults


def _name_in(root: Path) -> str:
    """Return the name of the marketplace in a folder.

    Raises:
        BadPlugin: there is none, or it is invalid.
    """
    path = find_marketplace(root)
    if path is None:
        raise invalid(root, "marketplace root does not contain a supported manifest")
    try:
        name = read_marketplace(path).name
    except MarketplaceUnreadable as error:
        raise BadPlugin(str(error)) from error
    check_marketplace(name)
    return name


def _is_valid(root: Path) -> bool:
    try:
        _name_in(root)
    except BadPlugin:
        return False
    return True


def _entry(source: GitSource | FolderSource) -> Table:
    """Return the table of a marketplace in the user's file."""
    if isinstance(source, FolderSource):
        return {"source_type": "local", "source": str(source.path)}
    ref: Table = {} if source.ref is None else {"ref": source.ref}
    sparse: Table = {"sparse_paths": list(source.sparse_paths)} if source.sparse_paths else {}
    return {"source_type": "git", "source": source.url, **ref, **sparse}


def _edit(name: str, entry: Table) -> TableEdit:
    return TableEdit(("marketplaces", name), entry)


def _git_source(name: str, table: JsonValue) -> GitSource | None:
    try:
        check_marketplace(name)
    except BadPlugin:
        return None
    if not isinstance(table, dict) or table.get("source_type") != "git":
        return None
    url, ref, sparse = table.get("source"), table.get("ref"), table.get("sparse_paths") or []
    if not isinstance(url, str) or not isinstance(ref, str | None) or not isinstance(sparse, list):
        return None
    return GitSource(url, ref, tuple(each for each in sparse if isinstance(each, str)))


def _record(source: GitSource, commit: str) -> Table:
    return {
        "source_type": "git",
        "source": source.url,
        "ref_name": source.ref,
        "sparse_paths": list(source.sparse_paths),
        "revision": commit,
    }


def _write_record(root: Path, source: GitSource, commit: str) -> None:
    """Write what was fetched beside it, where Codex looks for it too."""
    record = msgspec.json.format(msgspec.json.encode(_record(source, commit)))
    replace_file(root / RECORD, record)


def _has(root: Path, source: GitSource, commit: str) -> bool:
    """Return whether a folder has this commit."""
    if find_marketplace(root) is None:
        return False
    try:
        record: JsonValue = msgspec.json.decode((root / RECORD).read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return bool(record == _record(source, commit))


def _selected(sparse_paths: tuple[str, ...]) -> Callable[[str], bool]:
    """Return the choice of files: those in the given parts, and those in folders above them."""
    parts = [path.strip("/") for path in sparse_paths]
    if not parts:
        return lambda _path: True

    def keeps(path: str) -> bool:
        folder = path.rpartition("/")[0]
        return any(
            not folder or f"{part}/".startswith(f"{folder}/") or f"{path}/".startswith(f"{part}/")
            for part in parts
        )

    return keeps


@contextmanager
def _temporary(top: Path) -> Iterator[Path]:
    """Yield a folder in a locked one; remove it, and what killed servers left there."""
    for left in top.iterdir():
        _discard(left)
    folder = Path(mkdtemp(prefix="marketplace-", dir=top))
    try:
        yield folder
    finally:
        _discard(folder)


def _discard(folder: Path) -> None:
    with suppress(OSError):
        remove_folder(folder)
