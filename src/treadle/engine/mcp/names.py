"""The names of MCP tools for the model: `mcp__server__tool`, or a namespace for each app."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from treadle.engine.apps.tools import App, is_for_models
from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    from treadle.engine.mcp.server import McpServer

MAX_NAME: Final = 64
_INVALID: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_LENGTH: Final = 12


class NamedMcpTool(NamedTuple):
    """A tool of a server, and its name for the model."""

    name: str
    server: McpServer
    tool: dict[str, JsonValue]
    namespace: str | None = None
    # The app that the tool is part of, if it is one of an account's apps.
    app: App | None = None


def model_tools(servers: Iterable[McpServer]) -> list[NamedMcpTool]:
    """Name the tools that models may see."""
    plain: dict[tuple[str, str], tuple[McpServer, dict[str, JsonValue]]] = {}
    of_apps: list[NamedMcpTool] = []
    for server in servers:
        if server.apps is None:
            offered = [tool for tool in server.offered if is_for_models(tool)]
            plain |= {(server.name, str(tool["name"])): (server, tool) for tool in offered}
            continue
        of_apps += [
            NamedMcpTool(each.name, server, each.tool, each.namespace, each.app)
            for each in server.app_tools
        ]
    named = [NamedMcpTool(name, *plain[pair]) for name, pair in model_names(plain).items()]
    return named + of_apps


def model_names(tools: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Give each `(server, tool)` a unique name that providers accept.

    The name of a tool does not depend on the other tools, unless two names collide: then both get a
    hash, so that neither is mistaken for the other in older history.
    """
    plain = {pair: _plain(*pair) for pair in sorted(set(tools))}
    counts = Counter(plain.values())
    return {
        name if counts[name] == 1 and len(name) <= MAX_NAME else _with_hash(name, pair): pair
        for pair, name in plain.items()
    }


def plain_names(server: str, tool: str) -> tuple[str, ...]:
    """The names by which a user knows a tool, whatever other tools the servers have."""
    return tuple(dict.fromkeys((_plain(server, tool), f"mcp__{server}__{tool}")))


def is_of(name: str, server: str) -> bool:
    """Whether a name may belong to a tool of this server, whose tools are not known yet."""
    return name.startswith(_plain(server, "")[: MAX_NAME - _HASH_LENGTH - 1])


def _plain(server: str, tool: str) -> str:
    return _INVALID.sub("_", f"mcp__{server}__{tool}")


def _with_hash(name: str, pair: tuple[str, str]) -> str:
    digest = hashlib.sha256("\0".join(pair).encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name[: MAX_NAME - _HASH_LENGTH - 1]}_{digest}"
