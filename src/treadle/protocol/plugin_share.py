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
    """Fetch a shared plugin to this machine in order to edit it."""

    remote_plugin_id: str


class PluginShareCheckoutResponse(Value, frozen=True):
    """The folders of the fetched plugin and its marketplace, and their version."""

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
    """A shared plugin, and the folder of its local copy if there is one."""

    plugin: PluginSummary
    local_plugin_path: AbsolutePathBuf | None = None


class PluginShareListParams(Params, frozen=True):
    """List the plugins that the user shares; there are no options."""


class PluginShareListResponse(Value, frozen=True):
    """All plugins that the user shares."""

    data: list[PluginShareListItem]


PluginShareTargetRole = Literal["reader", "editor"]


class PluginShareTarget(Value, frozen=True):
    """A person, group or workspace that may use or edit a plugin."""

    principal_id: str
    principal_type: PluginSharePrincipalType
    role: PluginShareTargetRole


class PluginShareSaveParams(Params, frozen=True):
    """Upload a plugin to share; with a remote id, replace the earlier upload."""

    plugin_path: AbsolutePathBuf
    discoverability: PluginShareDiscoverability | None = None
    remote_plugin_id: str | None = None
    share_targets: list[PluginShareTarget] | None = None


class PluginShareSaveResponse(Value, frozen=True):
    """The plugin's remote id and its link."""

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
