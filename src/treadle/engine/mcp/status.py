"""What clients are told of a configured server."""

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
    """A server with all it offers; its documents only if everything is wanted."""
    await server.settled()
    is_ready = server.status == "connected"
    return McpServerStatus(
        auth_status=_auth_status(server, tokens),
        name=server.name,
        resources=_convert(await server.documents("resources"), Resource)
        if is_ready and is_full
        else [],
        resource_templates=_convert(await server.documents("resourceTemplates"), ResourceTemplate)
        if is_ready and is_full
        else [],
        tools={tool.name: tool for tool in _convert(server.offered, Tool)},
        http_origin=_origin(server.config.url),
        runtime_status=server.status if has_thread else None,
        server_capabilities=server.about.get("capabilities"),
        server_info=_info(server.about),
        tools_error=server.error,
    )


T = TypeVar("T", bound=msgspec.Struct)


def _convert(entries: Sequence[Raw], kind: type[T]) -> list[T]:
    found = []
    for entry in entries:
        # One that breaks the protocol must not hide the others.
        with suppress(msgspec.ValidationError):
            found.append(msgspec.convert(entry, kind))
    return found


def _info(about: Raw) -> McpServerInfo | None:
    found = _convert([about.get("serverInfo") or {}], McpServerInfo)
    return found[0] if found else None


def _auth_status(server: McpServer, tokens: TokenFile) -> McpAuthStatus:
    url = server.config.url
    if url is None:
        return "unsupported"
    if server.config.has_own_login:
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
    # Not the whole authority: it may hold a password.
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}"
