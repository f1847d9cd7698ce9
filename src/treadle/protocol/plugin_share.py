"""Sharing plugins with other people."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import AbsolutePathBuf, Params, Value
from treadle.protocol.plugin import (
    PluginShareDiscoverability,
    PluginSharePrincipal,
    PluginSharePrincipalType,
    PluginSummary,
)


class PluginShareCheckoutParams(Params, frozen=True):
    """Fetch a shared plugin to this machine in order to work on it."""

    remote_plugin_id: str


class PluginShareCheckoutResponse(Value, frozen=True):
    """Where the fetched plugin and its marketplace lie, and the version they have."""

    marketplace_name: str
    marketplace_path: AbsolutePathBuf
    plugin_id: str
    plugin_name: str
    plugin_path: AbsolutePathBuf
    remote_plugin_id: str
    remote_version: str | None = None


class PluginShareDeleteParams(Params, frozen=True):
    """Stop sharing a plugin."""

    remote_plugin_id: str


class PluginShareDeleteResponse(Value, frozen=True):
    """The plugin is no longer shared."""


class PluginShareListItem(Value, frozen=True):
    """A shared plugin, and its folder if a copy is on this machine."""

    plugin: PluginSummary
    local_plugin_path: AbsolutePathBuf | None = None


class PluginShareListParams(Params, frozen=True):
    """Ask for the plugins that the user shares; there is nothing to choose."""


class PluginShareListResponse(Value, frozen=True):
    """All plugins that the user shares."""

    data: list[PluginShareListItem]


PluginShareTargetRole = Literal["reader", "editor"]


class PluginShareTarget(Value, frozen=True):
    """A person, group or workspace that may use a plugin, or edit it too."""

    principal_id: str
    principal_type: PluginSharePrincipalType
    role: PluginShareTargetRole


class PluginShareSaveParams(Params, frozen=True):
    """Upload a plugin for others; with a remote id, replace what was uploaded before."""

    plugin_path: AbsolutePathBuf
    discoverability: PluginShareDiscoverability | None = None
    remote_plugin_id: str | None = None
    share_targets: list[PluginShareTarget] | None = None


class PluginShareSaveResponse(Value, frozen=True):
    """The plugin's remote id and the link to pass on."""

    remote_plugin_id: str
    share_url: str
    can_publish_to_workspace: bool | None = None


PluginShareUpdateDiscoverability = Literal["UNLISTED", "PRIVATE", "LISTED"]


class PluginShareUpdateTargetsParams(Params, frozen=True):
    """Set who may find and use a shared plugin; the list replaces the old one."""

    discoverability: PluginShareUpdateDiscoverability
    remote_plugin_id: str
    share_targets: list[PluginShareTarget]


class PluginShareUpdateTargetsResponse(Value, frozen=True):
    """Who may find and use the plugin now."""

    discoverability: PluginShareDiscoverability
    principals: list[PluginSharePrincipal]
