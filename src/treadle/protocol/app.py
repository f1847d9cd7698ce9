"""Apps (connectors): listing, reading and their configuration."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from treadle.protocol.base import Params, SnakeValue, UInt32, Value
from treadle.protocol.mcp import ToolExposureSurface
from treadle.protocol.policy import ApprovalsReviewer


class AppBranding(Value, frozen=True):
    """The publisher of an app, and the addresses of its pages and terms."""

    is_discoverable_app: bool
    category: str | None = None
    developer: str | None = None
    privacy_policy: str | None = None
    terms_of_service: str | None = None
    website: str | None = None


class AppLinksConfig(Value, frozen=True):
    """Settings for each account linked to an app, keyed by the link's id."""


AppToolApproval = Literal["auto", "prompt", "writes", "approve"]


class AppToolsConfig(Value, frozen=True):
    """Settings for each tool of an app, keyed by the tool's name."""


class AppConfig(SnakeValue, frozen=True):
    """The `[apps.ID]` table: whether an app may be used, and when its tools need approval."""

    approvals_reviewer: ApprovalsReviewer | None = None
    default_tools_approval_mode: AppToolApproval | None = None
    default_tools_enabled: bool | None = None
    destructive_enabled: bool | None = None
    enabled: bool = True
    links: AppLinksConfig | None = None
    omit_tools_from: list[ToolExposureSurface] | None = None
    open_world_enabled: bool | None = None
    tools: AppToolsConfig | None = None


class AppReview(Value, frozen=True):
    """The state of an app's review by the store."""

    status: str


class AppScreenshot(Value, frozen=True):
    """An image for the store, with the prompt that it illustrates."""

    user_prompt: str
    file_id: str | None = None
    url: str | None = None


class AppMetadata(Value, frozen=True):
    """Store metadata of an app."""

    categories: list[str] | None = None
    developer: str | None = None
    first_party_requires_install: bool | None = None
    review: AppReview | None = None
    screenshots: list[AppScreenshot] | None = None
    seo_description: str | None = None
    show_in_composer_when_unlinked: bool | None = None
    sub_categories: list[str] | None = None
    version: str | None = None
    version_id: str | None = None
    version_notes: str | None = None
    first_party_type: str | None = None


class AppInfo(Value, frozen=True):
    """An app (connector) that the user has or could install."""

    id: str
    name: str
    app_metadata: AppMetadata | None = None
    branding: AppBranding | None = None
    description: str | None = None
    distribution_channel: str | None = None
    icon_assets: dict[str, str] | None = None
    icon_dark_assets: dict[str, str] | None = None
    install_url: str | None = None
    is_accessible: bool = False
    is_enabled: bool = True
    labels: dict[str, str] | None = None
    logo_url: str | None = None
    logo_url_dark: str | None = None
    plugin_display_names: list[str] = []


class AppLinkConfig(SnakeValue, frozen=True):
    """Approval settings for one linked account."""

    approvals_reviewer: ApprovalsReviewer | None = None
    default_tools_approval_mode: AppToolApproval | None = None


class AppListUpdatedNotification(Value, frozen=True):
    """More apps were loaded; contains the whole merged list."""

    data: list[AppInfo]


class AppSummary(Value, frozen=True):
    """An app that a plugin uses, and whether the user still has to sign in to it."""

    id: str
    name: str
    category: str | None = None
    description: str | None = None
    install_url: str | None = None
    needs_auth: bool = False


AppTemplateUnavailableReason = Literal["NOT_CONFIGURED_FOR_WORKSPACE", "NO_ACTIVE_WORKSPACE"]


class AppTemplateSummary(Value, frozen=True):
    """An app that a workspace must set up first, and why it is not ready."""

    materialized_app_ids: list[str]
    name: str
    template_id: str
    canonical_connector_id: str | None = None
    category: str | None = None
    description: str | None = None
    logo_url: str | None = None
    logo_url_dark: str | None = None
    reason: AppTemplateUnavailableReason | None = None


class AppToolConfig(SnakeValue, frozen=True):
    """Settings of one tool of an app."""

    approval_mode: AppToolApproval | None = None
    enabled: bool | None = None


class AppToolSummary(Value, frozen=True):
    """A tool of an app, as shown to a user."""

    description: str
    name: str
    disabled_reason: str | None = None
    is_enabled: bool = True
    is_read_only: bool = False
    title: str | None = None


class AppsDefaultConfig(SnakeValue, frozen=True):
    """The `[apps._default]` table: settings for apps without their own table."""

    approvals_reviewer: ApprovalsReviewer | None = None
    default_tools_approval_mode: AppToolApproval | None = None
    destructive_enabled: bool = True
    enabled: bool = True
    open_world_enabled: bool = True


class AppsConfig(Value, frozen=True):
    """The `[apps]` table: the default and one entry for each app id."""

    default: AppsDefaultConfig | None = field(name="_default", default=None)


class AppsInstalledParams(Params, frozen=True):
    """List the installed apps and whether the model can call them."""

    force_refresh: bool = False
    thread_id: str | None = None


class InstalledApp(Value, frozen=True):
    """An installed app, and whether policy allows the model to call any of its tools."""

    callable: bool
    enabled: bool
    id: str
    runtime_name: str | None = None


class AppsInstalledResponse(Value, frozen=True):
    """The installed apps, as one consistent snapshot."""

    apps: list[InstalledApp]


class AppsListParams(Params, frozen=True):
    """Page through the apps that the user has or could install."""

    cursor: str | None = None
    force_refetch: bool = False
    limit: UInt32 | None = None
    thread_id: str | None = None


class AppsListResponse(Value, frozen=True):
    """One page of apps, sent after every source has been read."""

    data: list[AppInfo]
    next_cursor: str | None = None


class AppsReadParams(Params, frozen=True):
    """Fetch the details of at most 100 apps."""

    app_ids: list[str]
    include_tools: bool = False
    thread_id: str | None = None


class ConnectorMetadata(Value, frozen=True):
    """The details of one app, with its tools if requested."""

    id: str
    name: str
    description: str | None = None
    distribution_channel: str | None = None
    icon_url: str | None = None
    icon_url_dark: str | None = None
    install_url: str | None = None
    plugin_display_names: list[str] = []
    tool_summaries: list[AppToolSummary] | None = None


class AppsReadResponse(Value, frozen=True):
    """The apps found, in the requested order, and the ids without an app."""

    apps: list[ConnectorMetadata]
    missing_app_ids: list[str]
