"""The status of a configured server, for clients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from treadle.engine.mcp.server import McpServer, Raw
from treadle.engine.mcp.tokens import TokenFile
from treadle.protocol.mcp import (
    McpAuthStatus,
    McpServerInfo,
    McpServerStatus,
    Resource,
    ResourceTemplate,
    Tool,
)


async def status_of(
    server: McpServer, tokens: TokenFile, *, has_thread: bool, is_full: bool
) -> McpServerStatus:
    """The status of a server with its tools, and with `is_full` also its resources."""
    await server.settled()
    resources: Sequence[Raw] = ()
    templates: Sequence[Raw] = ()
    if is_full and server.status == "connected":
        resources = await server.list_resources("resources")
        templates = await server.list_resources("resourceTemplates")
    return McpServerStatus(
        auth_status=_auth_status(server, tokens),
        name=server.name,
        resources=_convert(resources, Resource),
        resource_templates=_convert(templates, ResourceTemplate),
        tools={tool.name: tool for tool in _convert(server.offered, Tool)},
        plugin_id=server.plugin_id,
        http_origin=_origin(server.config.url),
        runtime_status=server.status if has_thread else None,
        server_capabilities=server.about.get("capabilities"),
        server_info=_info(server.about),
        tools_error=server.error,
    )


T = TypeVar("T", bound=msgspec.Struct)


def _convert(entries: Sequence[Raw], kind: type[T]) -> list[T]:
    converted = []
    for entry in entries:
        # An invalid entry must not hide the others.
        with suppress(msgspec.ValidationError):
            converted.append(msgspec.convert(entry, kind))
    return converted


def _info(about: Raw) -> McpServerInfo | None:
    infos = _convert([about.get("serverInfo") or {}], McpServerInfo)
    return infos[0] if infos else None


def _auth_status(server: McpServer, tokens: TokenFile) -> McpAuthStatus:
    url = server.config.url
    if url is None:
        return "unsupported"
    if server.config.has_own_login or server.apps is not None:
        return "bearerToken"
    if server.status == "authenticationRequired":
        return "notLoggedIn"
    if tokens.get(server.name, url) is not None:
        return "oAuth"
    return "unsupported" if server.status == "connected" else "unknown"


def _origin(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    # Not the whole authority, which may contain a password.
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}"
