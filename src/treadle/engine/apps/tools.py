"""What the backend says about the tools of apps, in the `_meta` of each."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

from treadle.protocol.base import JsonValue
from treadle.protocol.mcp import McpToolCallAppContext

SERVER: Final = "codex_apps"
"""The name of the MCP server with the tools of all connected apps."""

DETAILS: Final = "_codex_apps"
"""What the backend needs to know of a tool when it is called."""

INSTRUCTIONS: Final = """\
<apps_instructions>
## Apps (connectors)
Apps are services that the user has connected to their account. A user can name an app in a \
message as `[$app-name](app://{connector_id})` or `$app-name`; you may also use one when the \
task calls for it. An app is a set of MCP tools of the server `codex_apps`, in a namespace with \
its name. Its tools are listed, or the tool `tool_search`, if there is one, finds them. Apps \
have no MCP resources: do not call list_mcp_resources or list_mcp_resource_templates for them.
</apps_instructions>"""
"""Describes apps to models."""

MAX_TEXT: Final = 4096
MAX_TITLE: Final = 100
_OTHER: Final = re.compile(r"[^a-z0-9]")

RawTool: TypeAlias = dict[str, JsonValue]


class App(NamedTuple):
    """A connected app, and the account at its service that is linked to it."""

    id: str
    name: str | None = None
    description: str | None = None
    link_id: str | None = None

    @property
    def title(self) -> str:
        """The name for people and models, in one line: its author must not write their text."""
        return " ".join((self.name or self.id).split())[:MAX_TITLE]

    @property
    def slug(self) -> str:
        """The word that mentions the app in a text, after a `$`."""
        return _OTHER.sub("-", self.title.lower()).strip("-") or "app"


def app_of(tool: RawTool) -> App | None:
    """Return the app of a tool, if it has one."""
    meta = _meta(tool)
    app_id = text_of(meta, "connector_id")
    if app_id is None:
        return None
    name = text_of(meta, "connector_name") or text_of(meta, "connector_display_name")
    return App(app_id, name, text_of(meta, "connector_description"), text_of(meta, "link_id"))


def is_for_models(tool: RawTool) -> bool:
    """Whether models may see a tool: some are only for the pages that other tools show."""
    view = _meta(tool).get("ui")
    visibility = view.get("visibility") if isinstance(view, dict) else None
    return not isinstance(visibility, list) or "model" in visibility


def page_of(tool: RawTool) -> str | None:
    """Return the address of the page that shows the results of a tool."""
    meta = _meta(tool)
    view = meta.get("ui")
    nested = text_of(view, "resourceUri") if isinstance(view, dict) else None
    return nested or text_of(meta, "ui/resourceUri") or text_of(meta, "openai/outputTemplate")


def context_of(tool: RawTool) -> McpToolCallAppContext | None:
    """Return what clients are shown of the app behind a call."""
    app = app_of(tool)
    if app is None:
        return None
    path = text_of(details_of(tool), "resource_uri") or ""
    return McpToolCallAppContext(
        connector_id=app.id,
        action_name=path.rstrip("/").rpartition("/")[2] or None,
        app_name=app.name,
        link_id=app.link_id,
        resource_uri=page_of(tool),
    )


def details_of(tool: RawTool) -> RawTool:
    """Return what the backend has to receive with a call of a tool."""
    details = _meta(tool).get(DETAILS)
    return details if isinstance(details, dict) else {}


def title_of(tool: RawTool) -> str | None:
    """Return the title of a tool, without the name of its app in front."""
    title, app = tool.get("title"), app_of(tool)
    if not isinstance(title, str) or not title:
        return None
    return title.removeprefix(f"{app.name}_") or title if app is not None and app.name else title


def text_of(table: RawTool, name: str) -> str | None:
    """Return a text of a table, of limited length; a blank one does not count."""
    value = table.get(name)
    return value.strip()[:MAX_TEXT] or None if isinstance(value, str) else None


def _meta(tool: RawTool) -> RawTool:
    meta = tool.get("_meta")
    return meta if isinstance(meta, dict) else {}
