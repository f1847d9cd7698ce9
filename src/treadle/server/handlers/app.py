"""Apps of a ChatGPT account: listing, details, and which are connected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.jsonrpc.errors import InternalError, InvalidOptions
from treadle.protocol.app import (
    AppsInstalledParams,
    AppsInstalledResponse,
    AppsListParams,
    AppsListResponse,
    AppsReadParams,
    AppsReadResponse,
)
from treadle.protocol.client_requests import APP_INSTALLED, APP_LIST, APP_READ, CLIENT_REQUESTS
from treadle.server.apps.backend import AppsUnavailable
from treadle.server.paging.offset import page
from treadle.server.session import ClientSession

if TYPE_CHECKING:
    from treadle.server.apps.backend import AppsBackend

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

FEATURE: Final = "apps"
MAX_READ: Final = 100
MAX_ID: Final = 256


@router.request(APP_LIST)
async def app_list(ctx: Context[ClientSession], params: AppsListParams) -> AppsListResponse:
    """List the apps after both of their sources have loaded; none without a ChatGPT login."""
    ctx.release_scope()
    backend = await apps_backend(ctx.session, params.thread_id)
    if backend is None:
        return AppsListResponse(data=[])
    with _answering():
        apps = await ctx.session.server.apps.load(backend, refetches=params.force_refetch)
    data, next_cursor = page(apps, params.cursor, params.limit, of="apps")
    return AppsListResponse(data=data, next_cursor=next_cursor)


@router.request(APP_INSTALLED)
async def app_installed(
    ctx: Context[ClientSession], params: AppsInstalledParams
) -> AppsInstalledResponse:
    """List the connected apps."""
    ctx.release_scope()
    backend = await apps_backend(ctx.session, params.thread_id)
    if backend is None:
        return AppsInstalledResponse(apps=[])
    with _answering():
        apps = await ctx.session.server.apps.installed(backend, refetches=params.force_refresh)
    return AppsInstalledResponse(apps=apps)


@router.request(APP_READ)
async def app_read(ctx: Context[ClientSession], params: AppsReadParams) -> AppsReadResponse:
    """Return details of apps in the order of their ids, and the ids without an app."""
    ctx.release_scope()
    if len(params.app_ids) > MAX_READ:
        raise InvalidOptions(f"app/read accepts at most {MAX_READ} appIds")
    for at, app_id in enumerate(params.app_ids):
        if len(app_id) > MAX_ID:
            raise InvalidInput(f"appIds[{at}]", f"an app id has at most {MAX_ID} characters")
    ids = list(dict.fromkeys(params.app_ids))
    backend = await apps_backend(ctx.session, params.thread_id)
    if backend is None or not ids:
        return AppsReadResponse(apps=[], missing_app_ids=ids)
    with _answering():
        found = await ctx.session.server.apps.read(backend, ids, with_tools=params.include_tools)
    by_id = {each.id: each for each in found}
    return AppsReadResponse(
        apps=[by_id[each] for each in ids if each in by_id],
        missing_app_ids=[each for each in ids if each not in by_id],
    )


async def apps_backend(session: ClientSession, thread_id: str | None) -> AppsBackend | None:
    """Return the backend, unless the feature is off in the thread, or in the configuration."""
    server = session.server
    if thread_id is not None:
        switches = server.threads.get(thread_id).settings.features
    else:
        switches = server.configuration.lenient().switches
    return await server.apps.backend() if switches.get(FEATURE, True) else None


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except AppsUnavailable as error:
        raise InternalError(str(error), kind="appsUnavailable") from error
