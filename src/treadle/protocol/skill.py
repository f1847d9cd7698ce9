"""Skills: listing, enabling, metadata."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import AbsolutePathBuf, LegacyAppPathString, Params, Sparse, Value


class SkillToolDependency(Sparse, frozen=True):
    """A tool that a skill needs, such as an MCP server, and how to install it."""

    type: str
    value: str
    command: str | None = None
    description: str | None = None
    transport: str | None = None
    url: str | None = None


class SkillDependencies(Value, frozen=True):
    """The dependencies of a skill."""

    tools: list[SkillToolDependency]


class SkillErrorInfo(Value, frozen=True):
    """A skill file that could not be read, and why."""

    message: str
    path: str


class SkillInterface(Value, frozen=True):
    """How a skill is displayed: names, colours, icons, a first prompt."""

    brand_color: str | UnsetType | None = UNSET
    default_prompt: str | UnsetType | None = UNSET
    display_name: str | UnsetType | None = UNSET
    icon_large: AbsolutePathBuf | UnsetType | None = UNSET
    icon_large_url: str | None = None
    icon_small: AbsolutePathBuf | UnsetType | None = UNSET
    icon_small_url: str | None = None
    short_description: str | UnsetType | None = UNSET


SkillScope = Literal["user", "repo", "system", "admin"]


class SkillMetadata(Value, frozen=True):
    """A discovered skill: its description, its path, and whether it is enabled."""

    description: str
    enabled: bool
    name: str
    path: LegacyAppPathString
    scope: SkillScope
    dependencies: SkillDependencies | UnsetType | None = UNSET
    interface: SkillInterface | UnsetType | None = UNSET
    plugin_id: str | None = None
    short_description: str | UnsetType | None = UNSET


class SkillSummary(Value, frozen=True):
    """A skill that a plugin provides; without a path if it is not on this machine."""

    description: str
    enabled: bool
    name: str
    interface: SkillInterface | None = None
    path: LegacyAppPathString | None = None
    short_description: str | None = None


class SkillsChangedNotification(Value, frozen=True):
    """Skills on disk changed; list them again."""


class SkillsConfigWriteParams(Params, frozen=True):
    """Enable or disable a skill permanently, by its path or by its name, not both."""

    enabled: bool
    name: str | None = None
    path: AbsolutePathBuf | None = None


class SkillsConfigWriteResponse(Value, frozen=True):
    """Whether the skill is enabled after all rules have been applied."""

    effective_enabled: bool


class SkillsExtraRootsSetParams(Params, frozen=True):
    """Set the folders to search for skills besides the usual ones; replaces the last set."""

    extra_roots: list[AbsolutePathBuf]


class SkillsExtraRootsSetResponse(Value, frozen=True):
    """The folders will be searched; `skills/changed` follows."""


class SkillsListEntry(Value, frozen=True):
    """The skills of one working directory, and those that failed to load."""

    cwd: str
    errors: list[SkillErrorInfo]
    skills: list[SkillMetadata]


class SkillsListExtraRootsForCwd(Value, frozen=True):
    """More folders to search for one working directory; older clients only."""

    cwd: str
    extra_user_roots: list[str]


class SkillsListParams(Params, frozen=True):
    """List the skills of some working directories, by default the server's own."""

    cwds: list[str] = []
    force_reload: bool = False
    per_cwd_extra_user_roots: list[SkillsListExtraRootsForCwd] | None = None


class SkillsListResponse(Value, frozen=True):
    """One entry for each requested working directory."""

    data: list[SkillsListEntry]
