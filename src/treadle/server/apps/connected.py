"""The apps that an account has connected: those whose tools the backend's MCP server has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from treadle.engine.apps.policy import AppsPolicy
from treadle.engine.apps.tools import SERVER, App, RawTool, app_of, is_for_models
from treadle.engine.mcp.config import HostedApps, McpConfig
from treadle.engine.mcp.servers import temporary_servers
from treadle.engine.mcp.startup import StartupRecord
from treadle.engine.services import EngineServices
from treadle.server.apps.backend import SERVER_PATH, AppsBackend, AppsUnavailable

STARTUP_SECONDS: Final = 30.0


class ConnectedApp(NamedTuple):
    """An app, and its tools for models."""

    app: App
    tools: list[RawTool]


class _OneServer:
    """The backend's MCP server as the only configured one."""

    def __init__(self, backend: AppsBackend, environ: Mapping[str, str]) -> None:
        self.environ: Final = environ
        self.startup_record: Final = StartupRecord()
        self._apps = HostedApps(
            table={
                "url": f"{backend.base_url}{SERVER_PATH}",
                "startup_timeout_sec": STARTUP_SECONDS,
            },
            account="",
            login=backend.login_for,
            policy=AppsPolicy(),
        )

    def config(self, settings: object) -> McpConfig:  # noqa: ARG002 - as the protocol has it
        return McpConfig(apps=self._apps)

    def account(self, settings: object) -> str:  # noqa: ARG002 - as the protocol has it
        return self._apps.account

    def approve_always(self, server: str, tool: str, app_id: str | None = None) -> bool:  # noqa: ARG002 - as the protocol has it
        return False


async def connected_apps(
    backend: AppsBackend, services: EngineServices, environ: Mapping[str, str]
) -> list[ConnectedApp]:
    """Return the apps that have tools, in the order of these.

    Raises:
        AppsUnavailable: the MCP server cannot be reached.
    """
    backend.check()
    source = _OneServer(backend, environ)
    async with temporary_servers(
        source,
        tasks=services.tasks,
        home=services.home,
        sandbox=services.sandbox,
        boundary=services.boundary,
    ) as servers:
        server = servers.get(SERVER)
        await server.settled()
        if server.status != "connected":
            raise AppsUnavailable(server.error or f"MCP server {SERVER} is {server.status}")
        found: dict[str, ConnectedApp] = {}
        for tool in server.tools.values():
            app = app_of(tool)
            if app is not None:
                own = found.setdefault(app.id, ConnectedApp(app, []))
                own.tools.extend([tool] if is_for_models(tool) else [])
    return list(found.values())
