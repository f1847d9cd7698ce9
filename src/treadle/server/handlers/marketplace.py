"""Marketplaces of plugins: added from folders and repositories, updated, removed."""

from __future__ import annotations

from functools import partial

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    MARKETPLACE_ADD,
    MARKETPLACE_REMOVE,
    MARKETPLACE_UPGRADE,
)
from treadle.protocol.marketplace import (
    MarketplaceAddParams,
    MarketplaceAddResponse,
    MarketplaceRemoveParams,
    MarketplaceRemoveResponse,
    MarketplaceUpgradeErrorInfo,
    MarketplaceUpgradeParams,
    MarketplaceUpgradeResponse,
)
from treadle.server.handlers.plugin import answering_bad_plugins, plugins_changed
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(MARKETPLACE_ADD)
async def marketplace_add(
    ctx: Context[ClientSession], params: MarketplaceAddParams
) -> MarketplaceAddResponse:
    """Add a marketplace; the files of a repository are fetched."""
    ctx.release_scope()
    with answering_bad_plugins():
        return await ctx.session.server.plugins.marketplaces.add(params)


@router.request(MARKETPLACE_REMOVE)
async def marketplace_remove(
    ctx: Context[ClientSession], params: MarketplaceRemoveParams
) -> MarketplaceRemoveResponse:
    """Remove a marketplace; plugins that were installed from it stay."""
    ctx.release_scope()
    with answering_bad_plugins():
        return await ctx.session.server.plugins.marketplaces.remove(params.marketplace_name)


@router.request(MARKETPLACE_UPGRADE)
async def marketplace_upgrade(
    ctx: Context[ClientSession], params: MarketplaceUpgradeParams
) -> MarketplaceUpgradeResponse:
    """Fetch changed marketplaces, and install their installed plugins again."""
    ctx.release_scope()
    server = ctx.session.server
    with answering_bad_plugins():
        outcome = await server.plugins.marketplaces.upgrade(params.marketplace_name)
    if outcome.roots:
        ctx.after_reply(partial(plugins_changed, server))
    return MarketplaceUpgradeResponse(
        errors=[MarketplaceUpgradeErrorInfo(name, message) for name, message in outcome.faults],
        selected_marketplaces=outcome.selected,
        upgraded_roots=[str(root) for root in outcome.roots],
    )
