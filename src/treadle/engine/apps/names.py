"""The names of app tools for the model: a namespace for each app, and a name in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from treadle.engine.apps.tools import SERVER, App, RawTool, app_of

PREFIX: Final = f"mcp__{SERVER}__"
MAX_NAMESPACE: Final = 40
MAX_NAME: Final = 64
"""The most characters of a namespace, its separator and a name, as providers limit them."""

_SEPARATOR: Final = 2
_HASH: Final = 12
_OTHER: Final = re.compile(r"[^a-z0-9]")


class NamedTool(NamedTuple):
    """A tool of an app, and its names."""

    namespace: str
    name: str
    app: App
    tool: RawTool


def named_tools(tools: Sequence[RawTool]) -> list[NamedTool]:
    """Name the tools of apps; tools without an app are left out.

    Names do not depend on other tools, unless they collide: then each gets a hash of its identity.
    """
    of_apps = [(app, tool) for tool in tools if (app := app_of(tool)) is not None]
    owners: dict[str, set[str]] = {}
    for app, _ in of_apps:
        owners.setdefault(_namespace(app), set()).add(app.id)
    plain = [
        (_space(app, is_shared=len(owners[_namespace(app)]) > 1), _name(app, str(tool["name"])))
        for app, tool in of_apps
    ]
    counts: dict[tuple[str, str], int] = {}
    for pair in plain:
        counts[pair] = counts.get(pair, 0) + 1
    return [
        NamedTool(
            space,
            _unique(
                name,
                str(tool["name"]),
                MAX_NAME - _SEPARATOR - len(space),
                is_shared=counts[space, name] > 1,
            ),
            app,
            tool,
        )
        for (app, tool), (space, name) in zip(of_apps, plain, strict=True)
    ]


def _space(app: App, *, is_shared: bool) -> str:
    return _unique(_namespace(app), app.id, MAX_NAMESPACE, is_shared=is_shared)


def _namespace(app: App) -> str:
    return f"{PREFIX}{_word(app.title) or 'app'}"


def _name(app: App, tool: str) -> str:
    """Return the name of a tool, from which the name of its app is removed."""
    name = _word(tool) or "tool"
    for prefix in (_word(app.title), _word(app.id)):
        if prefix and name.startswith(prefix) and name != prefix:
            return name.removeprefix(prefix)
    return name


def _word(text: str) -> str:
    return _OTHER.sub("_", text.lower()).strip("_")


def _unique(name: str, identity: str, limit: int, *, is_shared: bool) -> str:
    if not is_shared and len(name) <= limit:
        return name
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH]
    return f"{name[: limit - _HASH - 1]}_{digest}"
