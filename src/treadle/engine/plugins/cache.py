"""The installed plugins of a home, in Codex's layout: `plugins/cache/MARKETPLACE/NAME/VERSION`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from treadle.engine.plugins.copying import CopyLimits, copy_folder
from treadle.engine.plugins.ids import BadPlugin, PluginId, check_version
from treadle.engine.plugins.manifest import LOCAL, read_manifest
from treadle.support.files.folder_lock import locked
from treadle.support.files.folders import remove_folder
from treadle.support.files.writing import make_folders

CACHE: Final = Path("plugins", "cache")
DATA: Final = Path("plugins", "data")
STAGED: Final = "plugin-install-"
REPLACED: Final = "plugin-backup-"
_PARTS: Final = re.compile(r"(\d+)|([^\d.+-]+)")


class PluginCache:
    """The folders of installed plugins; their names are checked, so none leads out of the home."""

    def __init__(self, home: Path) -> None:
        self._root = home / CACHE
        self._data = home / DATA

    def base(self, plugin: PluginId) -> Path:
        """Return the folder with all versions of a plugin."""
        return self._root / plugin.marketplace / plugin.name

    def data(self, plugin: PluginId) -> Path:
        """Return the folder in which the plugin's own programs keep data."""
        return self._data / f"{plugin.name}-{plugin.marketplace}"

    def active(self, plugin: PluginId) -> Path | None:
        """Return the folder of the installed version: `local` if there is one, else the newest."""
        try:
            with os.scandir(self.base(plugin)) as entries:
                names = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
        except OSError:
            return None
        versions = [name for name in names if _is_version(name)]
        if not versions:
            return None
        newest = LOCAL if LOCAL in versions else max(versions, key=_order)
        return self.base(plugin) / newest

    def install(self, plugin: PluginId, source: Path, root: Path) -> Path:
        """Copy a plugin from below a folder into the cache, in place of other versions.

        A server that is killed meanwhile leaves the old version, the new one, or none.

        Raises:
            BadPlugin: it is not the plugin of that name, or too large.
            OSError: it cannot be copied.
        """
        base = self.base(plugin)
        for folder in (self._root.parent, self._root, base.parent):
            make_folders(folder)
        with locked(base.parent), _staging(base.parent) as staging:
            staged = staging / plugin.name
            staged.mkdir(0o700)
            copy_folder(source, staged / "new", CopyLimits(), root=root)
            manifest = read_manifest(staged / "new", name=source.name)
            if manifest.name != plugin.name:
                expected = f"does not match marketplace plugin name `{plugin.name}`"
                raise BadPlugin(f"plugin.json name `{manifest.name[:200]}` {expected}")
            version = manifest.version or LOCAL
            (staged / "new").rename(staged / version)
            _activate(staged, base, version)
        return base / version

    def uninstall(self, plugin: PluginId) -> None:
        """Remove all versions of a plugin.

        Raises:
            OSError: they cannot be removed.
        """
        base = self.base(plugin)
        if not os.path.lexists(base):
            return
        # Another server may have removed it since.
        with suppress(FileNotFoundError), locked(base.parent), _staging(base.parent) as staging:
            # Renamed first: a plugin disappears as a whole.
            base.rename(staging / plugin.name)


def _is_version(name: str) -> bool:
    try:
        check_version(name)
    except BadPlugin:
        return False
    return True


def _order(version: str) -> tuple[object, ...]:
    """Compare as semantic versions do: numbers by value, and a pre-release before its release."""
    core, _, build = version.partition("+")
    release, _, preview = core.partition("-")
    return (_pieces(release), not preview, _pieces(preview), build)


def _pieces(text: str) -> tuple[tuple[int, int, str], ...]:
    return tuple(
        (0, int(match[1][:18]), "") if match[1] else (1, 0, match[2])
        for match in _PARTS.finditer(text)
    )


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder in a locked one; remove it, and what killed servers left."""
    for left in list(folder.iterdir()):
        if left.name.startswith((STAGED, REPLACED)):
            _remove(left)
    staging = Path(mkdtemp(prefix=STAGED, dir=folder))
    try:
        yield staging
    finally:
        _remove(staging)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        remove_folder(folder)


def _activate(staged: Path, base: Path, version: str) -> None:
    if not base.exists():
        staged.rename(base)
        return
    old = base / version
    if old.exists():
        # A folder cannot be replaced in one step: for a moment this version does not exist.
        old.rename(staged.parent / "replaced")
    (staged / version).rename(old)
    for other in base.iterdir():
        if other.name != version and _is_version(other.name):
            _remove(other)
