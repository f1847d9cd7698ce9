"""Marketplaces: a file that lists plugins, at one of a few places in a folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from treadle.engine.plugins.documents import (
    MAX_BYTES,
    as_table,
    as_text,
    is_within,
    read_document,
)
from treadle.engine.plugins.ids import BadPlugin, PluginId
from treadle.engine.plugins.sources import read_source
from treadle.protocol.base import JsonValue
from treadle.protocol.plugin import (
    LocalPluginSource,
    PluginAuthPolicy,
    PluginInstallPolicy,
    PluginSource,
)

PLACES: Final = (
    ".agents/plugins/marketplace.json",
    ".claude-plugin/marketplace.json",
    ".cursor-plugin/marketplace.json",
)
"""Where the file may be, in order of preference."""

MAX_ENTRIES: Final = 1000
"""The maximum number of plugins of one marketplace; others are left out."""

PRODUCT: Final = "CODEX"
_INSTALL: Final[tuple[PluginInstallPolicy, ...]] = (
    "NOT_AVAILABLE",
    "AVAILABLE",
    "INSTALLED_BY_DEFAULT",
)
_AUTH: Final[tuple[PluginAuthPolicy, ...]] = ("ON_INSTALL", "ON_USE")

logger = logging.getLogger(__name__)


class MarketplaceNotFound(BadPlugin):
    """The file of the marketplace does not exist."""


class MarketplaceMisplaced(BadPlugin):
    """The file is not at a place of marketplaces."""


class MarketplaceUnreadable(Exception):
    """The file of the marketplace cannot be read."""


class ListedPlugin(Struct, frozen=True, kw_only=True):
    """A plugin as a marketplace lists it."""

    id: PluginId
    source: PluginSource
    # The folder of the marketplace.
    root: Path
    install_policy: PluginInstallPolicy = "AVAILABLE"
    auth_policy: PluginAuthPolicy = "ON_INSTALL"
    products: list[str] | None = None
    category: str | None = None

    @property
    def may_be_installed(self) -> bool:
        """Whether the marketplace allows the installation here."""
        is_for_product = self.products is None or PRODUCT in map(str.upper, self.products)
        return self.install_policy != "NOT_AVAILABLE" and is_for_product

    @property
    def folder(self) -> Path | None:
        """The folder of a plugin on this machine."""
        return Path(self.source.path) if isinstance(self.source, LocalPluginSource) else None


class Marketplace(Struct, frozen=True):
    """A marketplace and the plugins that it lists."""

    path: Path
    name: str
    display_name: str | None
    plugins: list[ListedPlugin]

    def plugin(self, name: str) -> ListedPlugin:
        """Return a plugin by its name.

        Raises:
            BadPlugin: it is not listed.
        """
        for plugin in self.plugins:
            if plugin.id.name == name:
                return plugin
        raise BadPlugin(f"plugin `{name[:200]}` was not found in marketplace `{self.name}`")


class LoadFault(NamedTuple):
    """A marketplace that could not be loaded, and why."""

    path: Path
    message: str


def find_marketplace(root: Path) -> Path | None:
    """Return the path of a folder's marketplace, if it has one."""
    return next((path for name in PLACES if (path := root / name).is_file()), None)


def root_of(path: Path) -> Path:
    """Return the folder to which the paths of a marketplace refer.

    Raises:
        BadPlugin: the file is not at a place of marketplaces.
    """
    for place in PLACES:
        if path.parts[-len(Path(place).parts) :] == Path(place).parts:
            return path.parents[len(Path(place).parts) - 1]
    reason = "marketplace file is not in a supported location"
    raise MarketplaceMisplaced(f"invalid marketplace file `{path}`: {reason}")


def invalid(path: Path, reason: object) -> BadPlugin:
    """Return the error for an invalid marketplace."""
    return BadPlugin(f"invalid marketplace file `{path}`: {reason}")


def read_marketplace(path: Path) -> Marketplace:
    """Read a marketplace; its invalid plugins are left out, and logged.

    Raises:
        BadPlugin: the file is invalid or does not exist.
        MarketplaceUnreadable: the file cannot be read.
    """
    try:
        path.stat()
        root = root_of(path)
        table = read_document(path, root, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MarketplaceNotFound(f"marketplace file `{path}` does not exist") from error
    except MarketplaceMisplaced:
        raise
    except OSError as error:
        reason = f"failed to read marketplace file: {error.strerror}"
        raise MarketplaceUnreadable(reason) from error
    except BadPlugin as error:
        raise invalid(path, error) from error
    if not isinstance(table, dict):
        raise invalid(path, "expected an object")
    name = _required(table, "name", str, path)
    entries = list(_entries(_required(table, "plugins", list, path), name, path, root))
    shown = as_text(as_table(table.get("interface")).get("displayName"))
    return Marketplace(path, name, shown, entries)


T = TypeVar("T")


def _required(table: dict[str, JsonValue], field: str, kind: type[T], path: Path) -> T:
    if field not in table:
        raise invalid(path, f"missing field `{field}`")
    value = table[field]
    if not isinstance(value, kind):
        word = "a string" if issubclass(kind, str) else "an array"
        raise invalid(path, f"expected {word} at `{field}`")
    return value


def _entries(
    values: Sequence[JsonValue], marketplace: str, path: Path, root: Path
) -> Iterator[ListedPlugin]:
    seen: set[str] = set()
    for at, value in enumerate(values[:MAX_ENTRIES]):
        table = _checked(value, f"plugins[{at}]", path)
        try:
            plugin = _plugin(table, marketplace, root)
        except BadPlugin as error:
            about = {"marketplace": str(path), "plugin": str(table["name"])[:200]}
            logger.warning("plugin left out", extra={**about, "reason": str(error)})
            continue
        if plugin.id.name not in seen:
            seen.add(plugin.id.name)
            yield plugin
    if len(values) > MAX_ENTRIES:
        logger.warning("plugins left out", extra={"marketplace": str(path), "limit": MAX_ENTRIES})


def _checked(value: JsonValue, at: str, path: Path) -> dict[str, JsonValue]:
    """Check the shape of an entry; a wrong one makes the whole file invalid, as in Codex."""
    if not isinstance(value, dict):
        raise invalid(path, f"expected an object at `{at}`")
    for field in ("name", "source"):
        if field not in value:
            raise invalid(path, f"missing field `{field}` at `{at}`")
    policy = value.get("policy", {})
    if not isinstance(policy, dict):
        raise invalid(path, f"expected an object at `{at}.policy`")
    products = policy.get("products")
    checks = (
        ("name", isinstance(value["name"], str), "a string"),
        ("category", isinstance(value.get("category"), str | None), "a string"),
        ("policy.installation", policy.get("installation", "AVAILABLE") in _INSTALL, _INSTALL),
        ("policy.authentication", policy.get("authentication", "ON_USE") in _AUTH, _AUTH),
        ("policy.products", isinstance(products, list | None), "an array"),
    )
    for field, is_valid, expected in checks:
        if not is_valid:
            names = expected if isinstance(expected, str) else f"one of {', '.join(expected)}"
            raise invalid(path, f"expected {names} at `{at}.{field}`")
    return value


def _plugin(table: dict[str, JsonValue], marketplace: str, root: Path) -> ListedPlugin:
    source = read_source(table["source"], root)
    if isinstance(source, LocalPluginSource) and not is_within(Path(source.path), root):
        raise BadPlugin("local plugin source path must stay within the marketplace root")
    policy = as_table(table.get("policy"))
    products = policy.get("products")
    return ListedPlugin(
        id=PluginId.of(table["name"], marketplace),
        source=source,
        root=root,
        install_policy=policy.get("installation", "AVAILABLE"),
        auth_policy=policy.get("authentication", "ON_INSTALL"),
        products=None if products is None else [each for each in products if isinstance(each, str)],
        category=as_text(table.get("category")),
    )
