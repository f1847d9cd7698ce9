"""The apps that an account has connected: those whose tools the backend's MCP server has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from treadle.engine.mcp.config import McpConfig
from treadle.engine.mcp.servers import temporary_servers
from treadle.engine.mcp.startup import StartupRecord
from treadle.engine.services import EngineServices
from treadle.protocol.base import JsonValue
from treadle.server.apps.backend import MAX_TEXT, SERVER, AppsBackend, AppsUnavailable

NAME: Final = "codex_apps"
STARTUP_SECONDS: Final = 30.0


class ConnectedApp(NamedTuple):
    """An app with tools, and its name and description there."""

    id: str
    name: str | None
    description: str | None


class _OneServer:
    """The backend's MCP server as the only configured one."""

    def __init__(self, backend: AppsBackend, environ: Mapping[str, str]) -> None:
        self.environ: Final = environ
        self.startup_record: Final = StartupRecord()
        self._table: JsonValue = {
            "url": f"{backend.base_url}{SERVER}",
            "http_headers": backend.headers,
            "startup_timeout_sec": STARTUP_SECONDS,
        }

    def config(self, settings: object) -> McpConfig:  # noqa: ARG002 - as the protocol has it
        return McpConfig(servers={NAME: self._table})

    def approve_always(self, server: str, tool: str) -> bool:  # noqa: ARG002 - as the protocol
        return False


async def connected_apps(
    backend: AppsBackend, services: EngineServices, environ: Mapping[str, str]
) -> list[ConnectedApp]:
    """Return the apps that have tools, in the order of these.

    Raises:
        AppsUnavailable: the MCP server cannot be reached.
    """
    source = _OneServer(backend, environ)
    async with temporary_servers(
        source,
        tasks=services.tasks,
        home=services.home,
        sandbox=services.sandbox,
        boundary=services.boundary,
    ) as servers:
        server = servers.get(NAME)
        await server.settled()
        if server.status != "connected":
            raise AppsUnavailable(server.error or f"MCP server {NAME} is {server.status}")
        found: dict[str, ConnectedApp] = {}
        for tool in server.tools.values():
            about = tool.get("_meta")
            if isinstance(about, dict) and (app_id := _text(about, "connector_id")):
                name, description = (
                    _text(about, f"connector_{each}") for each in ("name", "description")
                )
                found.setdefault(app_id, ConnectedApp(app_id, name, description))
    return list(found.values())


def _text(table: dict[str, JsonValue], name: str) -> str | None:
    value = table.get(name)
    return value.strip()[:MAX_TEXT] or None if isinstance(value, str) else None
