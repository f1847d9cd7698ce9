"""Plugins: what marketplaces list, what is installed, installation and removal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from msgspec import structs

from treadle.config.edit.toml_text import Unfaithful
from treadle.config.edit.writer import WriteRefused
from treadle.config.file import ConfigError
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.engine.plugins.git import FetchFailed
from treadle.engine.plugins.ids import BadPlugin, PluginId
from treadle.engine.plugins.marketplace import Marketplace, MarketplaceUnreadable, read_marketplace
from treadle.jsonrpc.errors import InternalError, InvalidRequest
from treadle.protocol.app import AppSummary
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    PLUGIN_INSTALL,
    PLUGIN_INSTALLED,
    PLUGIN_LIST,
    PLUGIN_READ,
    PLUGIN_RECONCILE,
    PLUGIN_SEARCH,
    PLUGIN_UNINSTALL,
)
from treadle.protocol.plugin import (
    PluginDetail,
    PluginInstalledParams,
    PluginInstalledResponse,
    PluginInstallParams,
    PluginInstallResponse,
    PluginListParams,
    PluginListResponse,
    PluginMarketplaceEntry,
    PluginReadParams,
    PluginReadResponse,
    PluginReconcileParams,
    PluginReconcileResponse,
    PluginSearchParams,
    PluginSearchResponse,
    PluginSearchResult,
    PluginUninstallParams,
    PluginUninstallResponse,
)
from treadle.server.folder_limits import MAX_FOLDERS, check_folder, check_folders
from treadle.server.handlers.app import apps_backend
from treadle.server.handlers.refused import NO_CATALOGUE
from treadle.server.paging.offset import page
from treadle.server.plugins.catalog import ManifestRoom, load_errors
from treadle.server.session import ClientSession

if TYPE_CHECKING:
    from treadle.server.plugins.catalog import PluginCatalog
    from treadle.server.server import Server

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

P = ParamSpec("P")
R = TypeVar("R")

OFF: Final = "plugins feature is disabled"
MAX_TERM: Final = 256
MAX_PAGE: Final = 200


@router.request(PLUGIN_LIST)
async def plugin_list(ctx: Context[ClientSession], params: PluginListParams) -> PluginListResponse:
    """List the plugins of all local marketplaces, and the marketplaces that cannot be loaded.

    Nothing is cached, so `forceRefetch` has no effect; no plugin is featured, since only the
    catalogue of a vendor features any.
    """
    ctx.release_scope()
    kinds = params.marketplace_kinds
    if kinds is not None and set(kinds) - {"local"}:
        raise InvalidRequest(f"list remote plugin catalog: {NO_CATALOGUE}", kind="unsupported")
    if kinds == []:
        return PluginListResponse(marketplaces=[])
    check_roots(params.cwds or [])
    return await _reading(ctx, _list, params.cwds or [])


def _list(catalog: PluginCatalog, cwds: Sequence[str]) -> PluginListResponse:
    found, faults = catalog.marketplaces(cwds) if catalog.active.is_on else ([], [])
    room = ManifestRoom()
    entries = [catalog.entry(each, room) for each in found if each.plugins]
    return PluginListResponse(marketplaces=entries, marketplace_load_errors=load_errors(faults))


@router.request(PLUGIN_INSTALLED)
async def plugin_installed(
    ctx: Context[ClientSession], params: PluginInstalledParams
) -> PluginInstalledResponse:
    """List the installed plugins, and those that the client wants to suggest."""
    ctx.release_scope()
    check_roots(params.cwds or [])
    suggested = params.install_suggestion_plugin_names or []
    if len(suggested) > MAX_FOLDERS:
        field = "installSuggestionPluginNames"
        raise InvalidInput(field, f"{field} must have at most {MAX_FOLDERS} entries")
    return await _reading(ctx, _installed, params.cwds or [], suggested)


def _installed(
    catalog: PluginCatalog, cwds: Sequence[str], suggested: Sequence[str]
) -> PluginInstalledResponse:
    found, faults = catalog.marketplaces(cwds) if catalog.active.is_on else ([], [])
    entries: list[PluginMarketplaceEntry] = []
    room = ManifestRoom()
    for marketplace in found:
        plugins = catalog.installed(marketplace, suggested)
        if plugins:
            entries.append(catalog.entry(marketplace, room, plugins))
    return PluginInstalledResponse(
        marketplaces=entries, marketplace_load_errors=load_errors(faults)
    )


@router.request(PLUGIN_SEARCH)
async def plugin_search(
    ctx: Context[ClientSession], params: PluginSearchParams
) -> PluginSearchResponse:
    """Search the local marketplaces for plugins by their names; an empty term finds nothing."""
    ctx.release_scope()
    check_roots(params.cwds or [])
    if len(params.search_term) > MAX_TERM:
        reason = f"searchTerm must have at most {MAX_TERM} characters"
        raise InvalidInput("searchTerm", reason)
    return await _reading(ctx, _search, params)


def _search(catalog: PluginCatalog, params: PluginSearchParams) -> PluginSearchResponse:
    term = params.search_term.strip().casefold()
    is_local = params.scope in (None, "personal")
    results: list[PluginSearchResult] = []
    room = ManifestRoom()
    if term and is_local and catalog.active.is_on:
        for marketplace in catalog.marketplaces(params.cwds or [])[0]:
            results += [
                PluginSearchResult(marketplace.name, plugin, str(marketplace.path))
                for plugin in catalog.summaries(marketplace.plugins, room)
                if _matches(term, plugin.name)
                or (plugin.interface and _matches(term, plugin.interface.display_name or ""))
            ]
    limit = min(params.limit or MAX_PAGE, MAX_PAGE)
    data, next_cursor = page(results, params.cursor, limit, of="plugins")
    return PluginSearchResponse(data=data, next_cursor=next_cursor)


def _matches(term: str, name: str) -> bool:
    return term in name.casefold()


@router.request(PLUGIN_READ)
async def plugin_read(ctx: Context[ClientSession], params: PluginReadParams) -> PluginReadResponse:
    """Return a plugin of a local marketplace with its parts."""
    ctx.release_scope()
    path = _marketplace_path(params, "plugin/read")
    with answering_bad_plugins():
        detail, apps = await _reading(ctx, _read, path, params.plugin_name)
    summaries = await _summaries(ctx.session, apps)
    return PluginReadResponse(structs.replace(detail, apps=summaries))


def _read(
    catalog: PluginCatalog, path: Path, name: str
) -> tuple[PluginDetail, dict[str, str | None]]:
    if not catalog.active.is_on:
        raise BadPlugin(OFF)
    marketplace: Marketplace = read_marketplace(path)
    plugin = marketplace.plugin(name)
    return catalog.detail(marketplace, plugin), catalog.apps(plugin)


async def _summaries(session: ClientSession, apps: dict[str, str | None]) -> list[AppSummary]:
    """Return the apps of a plugin; none without a login, or while apps are off."""
    backend = await apps_backend(session, None) if apps else None
    return [] if backend is None else await session.server.apps.summaries(backend, apps)


@router.request(PLUGIN_INSTALL)
async def plugin_install(
    ctx: Context[ClientSession], params: PluginInstallParams
) -> PluginInstallResponse:
    """Install a plugin of a local marketplace, and enable it for this and later threads."""
    ctx.release_scope()
    path = _marketplace_path(params, "plugin/install")
    server = ctx.session.server
    with answering_bad_plugins():
        if not await ctx.session.file_workers.run(lambda: server.active_plugins.is_on):
            raise BadPlugin(OFF)
        plugin = await server.plugins.installer.install(path, params.plugin_name)
    ctx.after_reply(partial(plugins_changed, server))
    apps = await ctx.session.file_workers.run(server.plugins.catalog.apps, plugin)
    needing = [each for each in await _summaries(ctx.session, apps) if each.needs_auth]
    return PluginInstallResponse(apps_needing_auth=needing, auth_policy=plugin.auth_policy)


@router.request(PLUGIN_UNINSTALL)
async def plugin_uninstall(
    ctx: Context[ClientSession], params: PluginUninstallParams
) -> PluginUninstallResponse:
    """Remove a plugin and the user's settings for it; one that is not installed is fine."""
    ctx.release_scope()
    server = ctx.session.server
    with answering_bad_plugins():
        await server.plugins.installer.uninstall(PluginId.parse(params.plugin_id))
    ctx.after_reply(partial(plugins_changed, server))
    return PluginUninstallResponse()


@router.request(PLUGIN_RECONCILE)
def plugin_reconcile(
    _ctx: Context[ClientSession], _params: PluginReconcileParams
) -> PluginReconcileResponse:
    """Change nothing: plugins of local marketplaces are as they were installed."""
    return PluginReconcileResponse(
        changed_plugins=[],
        failed_materialization_remote_plugin_ids=[],
        failed_remote_plugin_ids=[],
    )


def plugins_changed(server: Server) -> None:
    """Let loaded threads use what plugins provide now, and notify clients of their skills."""
    for thread_id in server.threads.loaded_ids():
        server.threads.get(thread_id).mcp.reload()
    server.publish_skills_changed()


def check_roots(cwds: Sequence[str]) -> None:
    """Check the folders in which a client looks for marketplaces.

    Raises:
        InvalidInput: there are too many, or one is not an absolute path.
    """
    check_folders(cwds)
    for at, cwd in enumerate(cwds):
        _check_absolute(cwd, f"cwds[{at}]")


def _check_absolute(path: str, field: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise InvalidInput(field, f"path must be absolute: {path!r}")


def _marketplace_path(params: PluginReadParams | PluginInstallParams, method: str) -> Path:
    path, remote = params.marketplace_path, params.remote_marketplace_name
    if (path is None) == (remote is None):
        names = "marketplacePath or remoteMarketplaceName"
        raise InvalidRequest(f"{method} requires exactly one of {names}", kind="invalidParams")
    if path is None:
        raise InvalidRequest(f"read remote plugin details: {NO_CATALOGUE}", kind="unsupported")
    check_folder(path, "marketplacePath")
    _check_absolute(path, "marketplacePath")
    return Path(path)


@contextmanager
def answering_bad_plugins() -> Iterator[None]:
    """Answer faults of plugins and marketplaces, of their files, and of the user's file."""
    try:
        yield
    except BadPlugin as error:
        raise InvalidRequest(str(error), kind="invalidPlugin") from error
    except MarketplaceUnreadable as error:
        raise InternalError(str(error), kind="io") from error
    except FetchFailed as error:
        raise InternalError(str(error), kind="fetchFailed") from error
    except WriteRefused as error:
        raise InvalidRequest(str(error), kind="invalidConfig") from error
    except (ConfigError, Unfaithful) as error:
        raise InternalError(str(error), kind="invalidConfig") from error


async def _reading(
    ctx: Context[ClientSession],
    work: Callable[Concatenate[PluginCatalog, P], R],
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Run work on the catalog in a worker: marketplaces may be large, or on a slow disk."""
    catalog = ctx.session.server.plugins.catalog
    return await ctx.session.file_workers.run(work, catalog, *args, **kwargs)
