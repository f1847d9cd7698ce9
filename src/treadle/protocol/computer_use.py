"""Permissions of browser and computer use."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import SnakeValue, Value

AllowDenyRequirement = Literal["allow", "deny"]

BrowserUseAccessApprovalLifetime = Literal["turn", "thread"]


class BrowserUseOriginPolicyConfig(SnakeValue, frozen=True):
    """What the agent's browser may do on a site, as configured by the user."""

    access: AllowDenyRequirement | None = None
    downloads: AllowDenyRequirement | None = None
    full_cdp_access: AllowDenyRequirement | None = None
    uploads: AllowDenyRequirement | None = None


class BrowserUseConfig(SnakeValue, frozen=True):
    """The user's rules for the agent's browser: for named sites, and for all others."""

    allow_history_access: bool | None = None
    default_origin_policy: BrowserUseOriginPolicyConfig | None = None
    origins: dict[str, BrowserUseOriginPolicyConfig] | None = None


class RequestHeader(Value, frozen=True):
    """An HTTP header to send."""

    name: str
    value: str


class BrowserUseExtensionRequirements(Value, frozen=True):
    """Headers that the browser extension must add to its requests."""

    request_headers: list[RequestHeader] | None = None


class BrowserUseOriginPolicy(Value, frozen=True):
    """What the agent's browser may do on a site, as set by the administrator."""

    access: AllowDenyRequirement | None = None
    access_approval_lifetime: BrowserUseAccessApprovalLifetime | None = None
    auto_review: AllowDenyRequirement | None = None
    downloads: AllowDenyRequirement | None = None
    full_cdp_access: AllowDenyRequirement | None = None
    persistent_approval: bool | None = None
    uploads: AllowDenyRequirement | None = None


class BrowserUseRequirements(Value, frozen=True):
    """The administrator's rules for the agent's browser; null imposes none."""

    allow_global_persistent_approval: bool | None = None
    allow_history_access: bool | None = None
    allow_webmcp: bool | None = None
    default_origin_policy: BrowserUseOriginPolicy | None = None
    disable_auto_review: bool | None = None
    extension: BrowserUseExtensionRequirements | None = None
    origins: dict[str, BrowserUseOriginPolicy] | None = None


class ComputerUseMacosConfig(SnakeValue, frozen=True):
    """Mac applications that the user allows or denies, by bundle id."""

    bundle_ids: dict[str, AllowDenyRequirement] | None = None


class ComputerUseWindowsExeConfig(SnakeValue, frozen=True):
    """A Windows program that the user allows or denies, by publisher and product."""

    access: AllowDenyRequirement
    product_name: str
    publisher_name: str
    binary_name: str | None = None


class ComputerUseWindowsConfig(Value, frozen=True):
    """Windows applications that the user allows or denies, by app id or by executable."""

    aumids: dict[str, AllowDenyRequirement] | None = None
    exes: list[ComputerUseWindowsExeConfig] | None = None


class ComputerUseConfig(SnakeValue, frozen=True):
    """The user's rules for which applications the agent may operate."""

    default_app_access: AllowDenyRequirement | None = None
    macos: ComputerUseMacosConfig | None = None
    windows: ComputerUseWindowsConfig | None = None


class ComputerUseMacosRequirements(Value, frozen=True):
    """Mac applications that the administrator allows or denies, by bundle id."""

    bundle_ids: dict[str, AllowDenyRequirement] | None = None


class ComputerUseWindowsExeRequirement(Value, frozen=True):
    """A Windows program that the administrator allows or denies, by publisher and product."""

    access: AllowDenyRequirement
    product_name: str
    publisher_name: str
    binary_name: str | None = None


class ComputerUseWindowsRequirements(Value, frozen=True):
    """Windows applications that the administrator allows or denies, by app id or executable."""

    aumids: dict[str, AllowDenyRequirement] | None = None
    exes: list[ComputerUseWindowsExeRequirement] | None = None


class ComputerUseRequirements(Value, frozen=True):
    """The administrator's rules for operating applications; null imposes none."""

    allow_locked_computer_use: bool | None = None
    allow_persistent_approval: bool | None = None
    default_app_access: AllowDenyRequirement | None = None
    macos: ComputerUseMacosRequirements | None = None
    windows: ComputerUseWindowsRequirements | None = None
