"""Fine-grained permissions: profiles, requests, grants."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import Int64, LegacyAppPathString, Params, Sparse, UInt32, UInt64, Value

FileSystemAccessMode = Literal["read", "write", "deny"]


class GlobPatternFileSystemPath(Value, tag="glob_pattern", frozen=True):
    """All files whose path fits a pattern."""

    pattern: str


class PathFileSystemPath(Value, tag="path", frozen=True):
    """A file or folder, by its path."""

    path: LegacyAppPathString


class KindFileSystemSpecialPath(Value, tag_field="kind", tag="project_roots", frozen=True):
    """The folders that the thread works in, or one place below each of them."""

    subpath: LegacyAppPathString | None = None


class MinimalFileSystemSpecialPath(Value, tag_field="kind", tag="minimal", frozen=True):
    """What programs need of the system in order to run at all."""


class RootFileSystemSpecialPath(Value, tag_field="kind", tag="root", frozen=True):
    """The whole file system."""


class SlashTmpFileSystemSpecialPath(Value, tag_field="kind", tag="slash_tmp", frozen=True):
    """The folder `/tmp`."""


class TmpdirFileSystemSpecialPath(Value, tag_field="kind", tag="tmpdir", frozen=True):
    """The folder that the variable TMPDIR names."""


class UnknownFileSystemSpecialPath(Value, tag_field="kind", tag="unknown", frozen=True):
    """A special place that only a newer peer knows, kept as it was spelled."""

    path: str
    subpath: LegacyAppPathString | None = None


FileSystemSpecialPath = (
    RootFileSystemSpecialPath
    | MinimalFileSystemSpecialPath
    | KindFileSystemSpecialPath
    | TmpdirFileSystemSpecialPath
    | SlashTmpFileSystemSpecialPath
    | UnknownFileSystemSpecialPath
)


class SpecialFileSystemPath(Value, tag="special", frozen=True):
    """A place named by its role instead of its path."""

    value: FileSystemSpecialPath


FileSystemPath = PathFileSystemPath | GlobPatternFileSystemPath | SpecialFileSystemPath


class FileSystemSandboxEntry(Value, frozen=True):
    """One rule of a sandbox: a place, and what may be done there."""

    access: FileSystemAccessMode
    path: FileSystemPath


class AdditionalFileSystemPermissions(Value, frozen=True):
    """Files to be opened up beyond what the sandbox allows."""

    entries: list[FileSystemSandboxEntry] | None = None
    glob_scan_max_depth: UInt64 | UnsetType | None = UNSET
    # This and write are the older spelling of entries.
    read: list[LegacyAppPathString] | None = None
    write: list[LegacyAppPathString] | None = None


class AdditionalNetworkPermissions(Value, frozen=True):
    """Whether the network is to be opened up beyond what the sandbox allows."""

    enabled: bool | None = None


class AdditionalPermissionProfile(Value, frozen=True):
    """What one command needs beyond its sandbox; a missing part asks for nothing."""

    file_system: AdditionalFileSystemPermissions | None = None
    network: AdditionalNetworkPermissions | None = None


class GrantedPermissionProfile(Sparse, frozen=True):
    """The part of a request that the user allows; whatever is left out is refused."""

    file_system: AdditionalFileSystemPermissions | None = None
    network: AdditionalNetworkPermissions | None = None


PermissionGrantScope = Literal["turn", "session"]
"""How long a grant lasts."""


class RequestPermissionProfile(Value, frozen=True):
    """What the model asks to be allowed."""

    file_system: AdditionalFileSystemPermissions | None = None
    network: AdditionalNetworkPermissions | None = None


class PermissionsRequestApprovalParams(Value, frozen=True):
    """The model asks for wider permissions; the turn waits for the user."""

    cwd: LegacyAppPathString
    item_id: str
    permissions: RequestPermissionProfile
    started_at_ms: Int64
    thread_id: str
    turn_id: str
    environment_id: str | None = None
    reason: str | None = None


class PermissionsRequestApprovalResponse(Value, frozen=True):
    """What the user grants, and for how long."""

    permissions: GrantedPermissionProfile
    scope: PermissionGrantScope = "turn"
    # Review each later command of the turn; only for grants that last a turn.
    strict_auto_review: bool | None = None


class ActivePermissionProfile(Value, frozen=True):
    """The profile that a thread's permissions come from, and the one it builds on."""

    id: str
    extends: str | None = None


class PermissionProfileListParams(Params, frozen=True):
    """Page through the profiles that may be chosen, as seen from a folder."""

    cursor: str | None = None
    cwd: str | None = None
    limit: UInt32 | None = None


class PermissionProfileSummary(Value, frozen=True):
    """A profile one may choose, unless an administrator forbids it."""

    allowed: bool
    id: str
    description: str | None = None


class PermissionProfileListResponse(Value, frozen=True):
    """One page of profiles, built-in ones included."""

    data: list[PermissionProfileSummary]
    next_cursor: str | None = None
