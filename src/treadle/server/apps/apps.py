"""The apps of the account that is logged in: loaded, kept for an hour, merged, announced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct, structs

from treadle.config.configuration import Configuration
from treadle.engine.apps.policy import AppsPolicy
from treadle.engine.apps.tools import App
from treadle.protocol.app import (
    AppInfo,
    AppListUpdatedNotification,
    AppSummary,
    ConnectorMetadata,
    InstalledApp,
)
from treadle.protocol.notifications import APP_LIST_UPDATED
from treadle.server.apps.backend import AppsBackend, AppsUnavailable, Login, install_url
from treadle.server.apps.connected import ConnectedApp, connected_apps

if TYPE_CHECKING:
    from treadle.engine.services import EngineServices
    from treadle.server.plugins.active import ActivePlugins

BASE_URL: Final = "https://chatgpt.com/backend-api"
LOAD_SECONDS: Final = 90.0
KEPT_SECONDS: Final = 3600.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


class _Kept(Struct):
    """What was loaded last for one account, and when."""

    account: tuple[str, str | None]
    directory: list[AppInfo] | None = None
    directory_at: float = 0.0
    connected: list[ConnectedApp] | None = None
    connected_at: float = 0.0


class Apps:
    """Loads the apps of the account; without a ChatGPT login there are none."""

    def __init__(
        self,
        configuration: Configuration,
        services: EngineServices,
        plugins: Callable[[], ActivePlugins],
        login: Login,
    ) -> None:
        self._configuration = configuration
        # Returns the login with ChatGPT, if there is one.
        self._login = login
        self._services = services
        self._plugins = plugins
        self._kept: _Kept | None = None
        # One load at a time: requests that wait for another one find its result.
        self._loading = asyncio.Lock()

    async def backend(self) -> AppsBackend | None:
        """Return the backend of the account; `None` without a ChatGPT login."""
        login = await self._login(None)
        if login is None:
            return None
        base_url = self._configuration.lenient().chatgpt_base_url or BASE_URL
        return AppsBackend(base_url, login, self._configuration.environ, self._login)

    async def load(self, backend: AppsBackend, *, refetches: bool) -> list[AppInfo]:
        """Return the apps, and publish the list whenever one of its two sources has loaded.

        Raises:
            AppsUnavailable: one of the sources fails; what was loaded before is kept.
        """
        async with self._loading:
            kept = self._kept_for(backend)
            last: list[AppInfo] | None = None

            async def publish(*, is_last: bool) -> None:
                nonlocal last
                merged = await self._merge(kept.directory, kept.connected)
                is_worth = is_last or any(app.is_accessible for app in merged)
                if is_worth and merged != last:
                    last = merged
                    self._services.broadcast(APP_LIST_UPDATED, AppListUpdatedNotification(merged))

            if kept.directory is not None or kept.connected is not None:
                await publish(is_last=False)
            try:
                async with asyncio.timeout(LOAD_SECONDS), asyncio.TaskGroup() as tasks:
                    first = tasks.create_task(self._directory(backend, kept, refetches=refetches))
                    second = tasks.create_task(self._connected(backend, kept, refetches=refetches))
                    pending = {first, second}
                    while pending:
                        done, pending = await asyncio.wait(
                            pending, return_when=asyncio.FIRST_COMPLETED
                        )
                        if all(task.exception() is None for task in done):
                            await publish(is_last=not pending)
            except* AppsUnavailable as group:
                raise _first(group) from None
            except* TimeoutError:
                message = f"timed out waiting for app lists after {LOAD_SECONDS:g} seconds"
                raise AppsUnavailable(message) from None
            return last or []

    async def installed(self, backend: AppsBackend, *, refetches: bool) -> list[InstalledApp]:
        """Return the connected apps.

        Raises:
            AppsUnavailable: they cannot be loaded.
        """
        async with self._loading:
            kept = self._kept_for(backend)
            try:
                async with asyncio.timeout(LOAD_SECONDS):
                    await self._connected(backend, kept, refetches=refetches)
            except TimeoutError as error:
                message = f"timed out waiting for apps after {LOAD_SECONDS:g} seconds"
                raise AppsUnavailable(message) from error
            policy = self._policy()
            return [
                InstalledApp(
                    callable=any(map(policy.offers, tools)),
                    enabled=policy.enables(app.id),
                    id=app.id,
                    runtime_name=app.name,
                )
                for app, tools in kept.connected or []
            ]

    async def read(
        self, backend: AppsBackend, ids: Sequence[str], *, with_tools: bool
    ) -> list[ConnectorMetadata]:
        """Return details of apps.

        Raises:
            AppsUnavailable: they cannot be loaded.
        """
        details = await backend.details(ids, with_tools=with_tools)
        names = await self._plugin_names()
        return [
            structs.replace(each, plugin_display_names=names.get(each.id, [])) for each in details
        ]

    async def summaries(
        self, backend: AppsBackend, apps: Mapping[str, str | None]
    ) -> list[AppSummary]:
        """Return the apps of a plugin, given with their categories, for clients.

        What the backend does not know of them is left out, also if it cannot be reached.
        """
        if not apps:
            return []
        details: list[ConnectorMetadata] = []
        connected: set[str] = {*apps}
        try:
            details = await backend.details(list(apps), with_tools=False)
            connected = {app.id for app in await self.installed(backend, refetches=False)}
        except AppsUnavailable as error:
            logger.warning("apps of a plugin not loaded", extra={"reason": str(error)})
        known = {each.id: each for each in details}
        return [
            _summary(app_id, category, known.get(app_id), connected)
            for app_id, category in apps.items()
        ]

    def _kept_for(self, backend: AppsBackend) -> _Kept:
        account = (backend.base_url, backend.login.account_id)
        if self._kept is None or self._kept.account != account:
            self._kept = _Kept(account)
        return self._kept

    async def _directory(self, backend: AppsBackend, kept: _Kept, *, refetches: bool) -> None:
        if refetches or kept.directory is None or _is_old(kept.directory_at):
            kept.directory = await _explained("failed to list apps", backend.directory())
            kept.directory_at = asyncio.get_running_loop().time()

    async def _connected(self, backend: AppsBackend, kept: _Kept, *, refetches: bool) -> None:
        if refetches or kept.connected is None or _is_old(kept.connected_at):
            load = connected_apps(backend, self._services, self._configuration.environ)
            kept.connected = await _explained("failed to load accessible apps", load)
            kept.connected_at = asyncio.get_running_loop().time()

    async def _merge(
        self, directory: Sequence[AppInfo] | None, connected: Sequence[ConnectedApp] | None
    ) -> list[AppInfo]:
        """Join both sources: an app that is connected but not in the directory is hidden there."""
        names, policy = await self._plugin_names(), self._policy()
        ids = {app.id for app, _ in connected or ()}
        plain = {app.id: _plain(app) for app, _ in connected or ()}
        apps = list(plain.values())
        if directory is not None:
            listed = {app.id for app in directory}
            # Those of plugins are shown although the directory lacks them.
            missing = [app_id for app_id in names if app_id not in listed]
            others = [plain.get(each) or _plain(App(each)) for each in missing]
            apps = [*directory, *others]
        merged = [
            structs.replace(
                app,
                is_accessible=app.id in ids,
                is_enabled=policy.enables(app.id),
                plugin_display_names=names.get(app.id, []),
            )
            for app in apps
        ]
        return sorted(merged, key=lambda app: (not app.is_accessible, app.name, app.id))

    async def _plugin_names(self) -> Mapping[str, list[str]]:
        """Return the names of active plugins by the apps that they use."""

        def read() -> dict[str, list[str]]:
            names: dict[str, list[str]] = {}
            for plugin in self._plugins().parts():
                for app in plugin.apps:
                    names.setdefault(app, []).append(plugin.manifest.title)
            return names

        return await self._services.file_workers.run(read)

    def _policy(self) -> AppsPolicy:
        return AppsPolicy(self._configuration.lenient().apps)


def _is_old(loaded_at: float) -> bool:
    return asyncio.get_running_loop().time() - loaded_at > KEPT_SECONDS


async def _explained(what: str, load: Awaitable[T]) -> T:
    try:
        return await load
    except AppsUnavailable as error:
        raise AppsUnavailable(f"{what}: {error}") from error


def _first(group: BaseExceptionGroup[AppsUnavailable]) -> AppsUnavailable:
    first = group.exceptions[0]
    return first if isinstance(first, AppsUnavailable) else _first(first)


def _summary(
    app_id: str, category: str | None, details: ConnectorMetadata | None, connected: set[str]
) -> AppSummary:
    name = details.name if details is not None else app_id
    return AppSummary(
        id=app_id,
        name=name,
        category=category,
        description=details.description if details is not None else None,
        install_url=details.install_url if details is not None else install_url(name, app_id),
        needs_auth=app_id not in connected,
    )


def _plain(app: App) -> AppInfo:
    url = install_url(app.title, app.id)
    return AppInfo(id=app.id, name=app.title, description=app.description, install_url=url)
