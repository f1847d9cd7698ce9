"""Plugin marketplaces."""

from __future__ import annotations

from treadle.protocol.base import AbsolutePathBuf, Params, Value


class MarketplaceAddParams(Params, frozen=True):
    """Fetch a marketplace from its source, at a branch or tag and in part if wanted."""

    source: str
    ref_name: str | None = None
    sparse_paths: list[str] | None = None


class MarketplaceAddResponse(Value, frozen=True):
    """Where the marketplace now lies, and whether it already did."""

    already_added: bool
    installed_root: AbsolutePathBuf
    marketplace_name: str


class MarketplaceInterface(Value, frozen=True):
    """How a marketplace wants to be shown."""

    display_name: str | None = None


class MarketplaceLoadErrorInfo(Value, frozen=True):
    """A marketplace that could not be read, and why."""

    marketplace_path: AbsolutePathBuf
    message: str


class MarketplaceRemoveParams(Params, frozen=True):
    """Forget a marketplace and its files."""

    marketplace_name: str


class MarketplaceRemoveResponse(Value, frozen=True):
    """The marketplace that is gone, and the folder that went with it, if any."""

    marketplace_name: str
    installed_root: AbsolutePathBuf | None = None


class MarketplaceUpgradeErrorInfo(Value, frozen=True):
    """A marketplace that could not be brought up to date, and why."""

    marketplace_name: str
    message: str


class MarketplaceUpgradeParams(Params, frozen=True):
    """Bring one marketplace up to date, or all of them if none is named."""

    marketplace_name: str | None = None


class MarketplaceUpgradeResponse(Value, frozen=True):
    """Which marketplaces were tried, which changed, and which failed."""

    errors: list[MarketplaceUpgradeErrorInfo]
    selected_marketplaces: list[str]
    upgraded_roots: list[AbsolutePathBuf]
