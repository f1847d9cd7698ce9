"""The available models."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from treadle.config.effective import EffectiveConfig
from treadle.config.file import ConfigError
from treadle.config.warnings import defaults_used
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.model.base import ModelError
from treadle.model.catalog import list_models
from treadle.model.provider import build_model, no_credentials
from treadle.protocol.client_requests import CLIENT_REQUESTS, MODEL_LIST
from treadle.protocol.model import Model, ModelListParams, ModelListResponse
from treadle.protocol.notifications import CONFIG_WARNING
from treadle.server.paging.offset import page
from treadle.server.session import ClientSession

if TYPE_CHECKING:
    from treadle.server.server import Server

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

# Clients show nothing until the list arrives, and expect it within a second.
ASK_SECONDS: Final = 0.7
# Providers whose models the catalog describes better than their own list of names.
_CATALOGUED: Final = frozenset({"openai", "anthropic", "scripted"})

logger = logging.getLogger(__name__)


@router.request(MODEL_LIST)
async def model_list(ctx: Context[ClientSession], params: ModelListParams) -> ModelListResponse:
    """List the models of the provider in use, from the catalog, the configuration and itself."""
    effective = ctx.session.server.configuration.lenient()
    remote = await _ask_provider(ctx.session.server, effective)
    catalog = await _read_catalog(ctx.session, effective)
    models = [
        model
        for model in list_models(
            effective.model_provider, [effective.model], remote, catalog=catalog
        )
        if params.include_hidden or not model.hidden
    ]
    data, next_cursor = page(models, params.cursor, params.limit, of="models")
    return ModelListResponse(data=data, next_cursor=next_cursor)


async def _read_catalog(
    session: ClientSession, effective: EffectiveConfig
) -> Sequence[Model] | None:
    """Return the configured catalogue; if it cannot be used, warn and list the built-in one."""
    try:
        return await session.file_workers.run(effective.model_catalog)
    except ConfigError as error:
        session.notify_nowait(CONFIG_WARNING, defaults_used(error))
        return None


async def _ask_provider(server: Server, effective: EffectiveConfig) -> Sequence[str] | None:
    """Return the names that the provider lists, or `None` if it is not asked or not reachable."""
    if effective.model_provider in _CATALOGUED:
        return None
    config = effective.endpoint(effective.model_provider) or effective.provider
    try:
        model = build_model(
            effective.model_provider,
            config,
            environ=server.configuration.environ,
            credentials=server.credentials.login if config.requires_openai_auth else no_credentials,
        )
    except ValueError as error:
        logger.warning("provider is not usable", extra={"reason": str(error)})
        return None
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await model.list_models()
    except (ModelError, TimeoutError) as error:
        logger.info("provider lists no models", extra={"reason": str(error)})
        return None
    finally:
        await model.close()
