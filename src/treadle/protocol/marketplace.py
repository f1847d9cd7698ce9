"""Plugin marketplaces."""

from __future__ import annotations

from treadle.protocol.base import AbsolutePathBuf, Params, Value


class MarketplaceAddParams(Params, frozen=True):
    """Fetch a marketplace from its source, optionally a branch or tag and a part of it."""

    source: str
    ref_name: str | None = None
    sparse_paths: list[str] | None = None


class MarketplaceAddResponse(Value, frozen=True):
    """The location of the marketplace, and whether it was already there."""

    already_added: bool
    installed_root: AbsolutePathBuf
    marketplace_name: str


class MarketplaceInterface(Value, frozen=True):
    """How a marketplace is displayed."""

    display_name: str | None = None


class MarketplaceLoadErrorInfo(Value, frozen=True):
    """A marketplace that could not be read, and why."""

    marketplace_path: AbsolutePathBuf
    message: str


class MarketplaceRemoveParams(Params, frozen=True):
    """Remove a marketplace and its files."""

    marketplace_name: str


class MarketplaceRemoveResponse(Value, frozen=True):
    """The removed marketplace, and its removed folder, if any."""

    marketplace_name: str
    installed_root: AbsolutePathBuf | None = None


class MarketplaceUpgradeErrorInfo(Value, frozen=True):
    """A marketplace that could not be updated, and why."""

    marketplace_name: str
    message: str


class MarketplaceUpgradeParams(Params, frozen=True):
    """Update one marketplace, or all of them if none is named."""

    marketplace_name: str | None = None


class MarketplaceUpgradeResponse(Value, frozen=True):
    """Which marketplaces were tried, which changed, and which failed."""

    errors: list[MarketplaceUpgradeErrorInfo]
    selected_marketplaces: list[str]
    upgraded_roots: list[AbsolutePathBuf]
