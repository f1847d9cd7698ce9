"""Plugins: listing, reading, installing, their scheduled tasks."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.app import AppSummary, AppTemplateSummary
from treadle.protocol.base import AbsolutePathBuf, Int64, Params, UInt32, Value
from treadle.protocol.hook import HookEventName
from treadle.protocol.marketplace import MarketplaceInterface, MarketplaceLoadErrorInfo
from treadle.protocol.skill import SkillSummary

PluginAuthPolicy = Literal["ON_INSTALL", "ON_USE"]
"""When the user is asked to sign in to the plugin's apps."""

PluginAvailability = Literal["DISABLED_BY_ADMIN", "AVAILABLE"]


class PluginHookSummary(Value, frozen=True):
    """A hook that a plugin provides, and its event."""

    event_name: HookEventName
    key: str


PluginDisabledReason = Literal[
    "disabled_by_admin", "plan_not_eligible", "required_app_unavailable", "unknown"
]

PluginInstallPolicy = Literal["NOT_AVAILABLE", "AVAILABLE", "INSTALLED_BY_DEFAULT"]

PluginInstallPolicySource = Literal["WORKSPACE_SETTING", "IMPLICIT_CANONICAL_APP"]


class PluginInterface(Value, frozen=True):
    """How a plugin is displayed; paths refer to the installed copy, URLs to the catalogue."""

    capabilities: list[str]
    screenshot_urls: list[str]
    screenshots: list[AbsolutePathBuf]
    brand_color: str | None = None
    category: str | None = None
    composer_icon: AbsolutePathBuf | None = None
    composer_icon_url: str | None = None
    default_prompt: list[str] | None = None
    developer_name: str | None = None
    display_name: str | None = None
    logo: AbsolutePathBuf | None = None
    logo_dark: AbsolutePathBuf | None = None
    logo_url: str | None = None
    logo_url_dark: str | None = None
    long_description: str | None = None
    privacy_policy_url: str | None = None
    short_description: str | None = None
    terms_of_service_url: str | None = None
    website_url: str | None = None


PluginShareDiscoverability = Literal["LISTED", "UNLISTED", "PRIVATE"]

PluginSharePrincipalRole = Literal["reader", "editor", "owner"]

PluginSharePrincipalType = Literal["user", "group", "workspace"]


class PluginSharePrincipal(Value, frozen=True):
    """A person, group or workspace that a plugin is shared with, and their role."""

    name: str
    principal_id: str
    principal_type: PluginSharePrincipalType
    role: PluginSharePrincipalRole


class PluginShareContext(Value, frozen=True):
    """How a plugin is shared: its owner, recipients and version."""

    remote_plugin_id: str
    can_publish_to_workspace: bool | None = None
    creator_account_user_id: str | None = None
    creator_name: str | None = None
    discoverability: PluginShareDiscoverability | None = None
    remote_version: str | None = None
    share_principals: list[PluginSharePrincipal] | None = None
    share_url: str | None = None


class GitPluginSource(Value, tag="git", frozen=True):
    """A plugin in a Git repository."""

    url: str
    path: str | None = None
    ref_name: str | None = None
    sha: str | None = None


class LocalPluginSource(Value, tag="local", frozen=True):
    """A plugin in a folder of this machine."""

    path: AbsolutePathBuf


class NpmPluginSource(Value, tag="npm", frozen=True):
    """A plugin that is an npm package."""

    package: str
    registry: str | None = None
    version: str | None = None


class RemotePluginSource(Value, tag="remote", frozen=True):
    """A plugin of the remote catalogue; only the server knows how to fetch it."""


PluginSource = LocalPluginSource | GitPluginSource | NpmPluginSource | RemotePluginSource


class PluginSummary(Value, frozen=True):
    """A plugin as shown in a list: its description, and whether it is installed and usable."""

    auth_policy: PluginAuthPolicy
    enabled: bool
    id: str
    install_policy: PluginInstallPolicy
    installed: bool
    name: str
    source: PluginSource
    availability: PluginAvailability = "AVAILABLE"
    disabled_reason: PluginDisabledReason | None = None
    eligible_plan_types: list[str] | None = None
    install_policy_source: PluginInstallPolicySource | None = None
    installed_at: Int64 | None = None
    interface: PluginInterface | None = None
    keywords: list[str] = []
    local_version: str | None = None
    must_show_installation_interstitial: bool | None = None
    remote_plugin_id: str | None = None
    share_context: PluginShareContext | None = None
    version: str | None = None


class DailyScheduledTaskSchedule(Value, tag="daily", frozen=True):
    """Every day at one time."""

    time: str


ScheduledTaskWeekday = Literal["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


class HourlyScheduledTaskSchedule(Value, tag="hourly", frozen=True):
    """Every given number of hours, on the given days or on all."""

    interval_hours: UInt32
    days: list[ScheduledTaskWeekday] | None = None


class WeekdaysScheduledTaskSchedule(Value, tag="weekdays", frozen=True):
    """Monday to Friday at one time."""

    time: str


class WeeklyScheduledTaskSchedule(Value, tag="weekly", frozen=True):
    """On the given days of each week at one time."""

    days: list[ScheduledTaskWeekday]
    time: str


ScheduledTaskSchedule = (
    HourlyScheduledTaskSchedule
    | DailyScheduledTaskSchedule
    | WeekdaysScheduledTaskSchedule
    | WeeklyScheduledTaskSchedule
)


class ScheduledTaskSummary(Value, frozen=True):
    """A prompt that a plugin proposes to run on a schedule."""

    key: str
    name: str
    prompt: str
    schedule: ScheduledTaskSchedule


class PluginDetail(Value, frozen=True):
    """A plugin with all its parts: skills, hooks, apps, MCP servers, tasks."""

    app_templates: list[AppTemplateSummary]
    apps: list[AppSummary]
    hooks: list[PluginHookSummary]
    marketplace_name: str
    mcp_servers: list[str]
    skills: list[SkillSummary]
    summary: PluginSummary
    description: str | None = None
    marketplace_path: AbsolutePathBuf | None = None
    onboarding_skill: SkillSummary | None = None
    scheduled_tasks: list[ScheduledTaskSummary] | None = None
    share_url: str | None = None


class PluginInstallParams(Params, frozen=True):
    """Install a plugin that a marketplace lists."""

    plugin_name: str
    install_attempt_id: str | None = None
    marketplace_path: AbsolutePathBuf | None = None
    remote_marketplace_name: str | None = None
    force_remote_sync: bool = False


class PluginInstallResponse(Value, frozen=True):
    """The plugin is installed; lists the apps that still require a sign-in."""

    apps_needing_auth: list[AppSummary]
    auth_policy: PluginAuthPolicy


class PluginInstalledParams(Params, frozen=True):
    """List the installed plugins, plus some that could be suggested."""

    cwds: list[AbsolutePathBuf] | None = None
    install_suggestion_plugin_names: list[str] | None = None


class PluginMarketplaceEntry(Value, frozen=True):
    """A marketplace and the plugins it lists."""

    name: str
    plugins: list[PluginSummary]
    interface: MarketplaceInterface | None = None
    path: AbsolutePathBuf | None = None


class PluginInstalledResponse(Value, frozen=True):
    """The installed plugins by marketplace, and the marketplaces that could not be read."""

    marketplaces: list[PluginMarketplaceEntry]
    marketplace_load_errors: list[MarketplaceLoadErrorInfo] = []


PluginListMarketplaceKind = Literal[
    "local", "vertical", "workspace-directory", "shared-with-me", "created-by-me-remote"
]


class PluginListParams(Params, frozen=True):
    """List the plugins of every available marketplace."""

    cwds: list[AbsolutePathBuf] | None = None
    force_refetch: bool = False
    marketplace_kinds: list[PluginListMarketplaceKind] | None = None
    force_remote_sync: bool = False


class PluginListResponse(Value, frozen=True):
    """The plugins by marketplace, and the marketplaces that could not be read."""

    marketplaces: list[PluginMarketplaceEntry]
    featured_plugin_ids: list[str] = []
    marketplace_load_errors: list[MarketplaceLoadErrorInfo] = []
    remote_sync_error: str | None = None


class PluginReadParams(Params, frozen=True):
    """Read the details of one plugin of a marketplace."""

    plugin_name: str
    marketplace_path: AbsolutePathBuf | None = None
    remote_marketplace_name: str | None = None


class PluginReadResponse(Value, frozen=True):
    """The requested plugin."""

    plugin: PluginDetail


class PluginReconcileChangedPlugin(Value, frozen=True):
    """A plugin that changed, and which of its parts may be affected."""

    has_apps: bool
    has_hooks: bool
    has_mcps: bool
    has_skills: bool
    id: str


class PluginReconcileParams(Params, frozen=True):
    """Synchronize the installed plugins with the remote catalogue."""

    reason: str | None = None


class PluginReconcileResponse(Value, frozen=True):
    """What this pass changed, and what it could not fetch."""

    changed_plugins: list[PluginReconcileChangedPlugin]
    failed_materialization_remote_plugin_ids: list[str]
    failed_remote_plugin_ids: list[str]


PluginSearchScope = Literal["global", "workspace", "personal"]


class PluginSearchParams(Params, frozen=True):
    """Search for plugins by a word."""

    search_term: str
    cursor: str | None = None
    cwds: list[AbsolutePathBuf] | None = None
    limit: UInt32 | None = None
    scope: PluginSearchScope | None = None


class PluginSearchResult(Value, frozen=True):
    """A matching plugin, and its marketplace."""

    marketplace_name: str
    plugin: PluginSummary
    marketplace_path: AbsolutePathBuf | None = None


class PluginSearchResponse(Value, frozen=True):
    """One page of matching plugins."""

    data: list[PluginSearchResult]
    next_cursor: str | None = None


class PluginSkillReadParams(Params, frozen=True):
    """Read the text of a skill from a plugin of the remote catalogue."""

    remote_marketplace_name: str
    remote_plugin_id: str
    skill_name: str


class PluginSkillReadResponse(Value, frozen=True):
    """The text of the skill, if there is one."""

    contents: str | None = None


class PluginUninstallParams(Params, frozen=True):
    """Remove an installed plugin and the user's settings for it."""

    plugin_id: str
    force_remote_sync: bool = False


class PluginUninstallResponse(Value, frozen=True):
    """The plugin is removed."""
