"""Fine-grained permissions: profiles, requests, grants."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import Int64, LegacyAppPathString, Params, Sparse, UInt32, UInt64, Value

FileSystemAccessMode = Literal["read", "write", "deny"]


class GlobPatternFileSystemPath(Value, tag="glob_pattern", frozen=True):
    """All files whose path matches a pattern."""

    pattern: str


class PathFileSystemPath(Value, tag="path", frozen=True):
    """A file or folder, by its path."""

    path: LegacyAppPathString


class KindFileSystemSpecialPath(Value, tag_field="kind", tag="project_roots", frozen=True):
    """The folders of the thread, or one path below each of them."""

    subpath: LegacyAppPathString | None = None


class MinimalFileSystemSpecialPath(Value, tag_field="kind", tag="minimal", frozen=True):
    """The system files that programs need in order to run."""


class RootFileSystemSpecialPath(Value, tag_field="kind", tag="root", frozen=True):
    """The whole file system."""


class SlashTmpFileSystemSpecialPath(Value, tag_field="kind", tag="slash_tmp", frozen=True):
    """The folder `/tmp`."""


class TmpdirFileSystemSpecialPath(Value, tag_field="kind", tag="tmpdir", frozen=True):
    """The folder that the TMPDIR variable names."""


class UnknownFileSystemSpecialPath(Value, tag_field="kind", tag="unknown", frozen=True):
    """A special path that only a newer peer knows, kept as spelled."""

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
    """A path named by its role."""

    value: FileSystemSpecialPath


FileSystemPath = PathFileSystemPath | GlobPatternFileSystemPath | SpecialFileSystemPath


class FileSystemSandboxEntry(Value, frozen=True):
    """One rule of a sandbox: a path, and the access to it."""

    access: FileSystemAccessMode
    path: FileSystemPath


class AdditionalFileSystemPermissions(Value, frozen=True):
    """Files to make accessible beyond what the sandbox allows."""

    entries: list[FileSystemSandboxEntry] | None = None
    glob_scan_max_depth: UInt64 | UnsetType | None = UNSET
    # This and write are the older spelling of entries.
    read: list[LegacyAppPathString] | None = None
    write: list[LegacyAppPathString] | None = None


class AdditionalNetworkPermissions(Value, frozen=True):
    """Whether to allow the network beyond what the sandbox allows."""

    enabled: bool | None = None


class AdditionalPermissionProfile(Value, frozen=True):
    """What one command needs beyond its sandbox; an absent part requests nothing."""

    file_system: AdditionalFileSystemPermissions | None = None
    network: AdditionalNetworkPermissions | None = None


class GrantedPermissionProfile(Sparse, frozen=True):
    """The part of a request that the user allows; omitted parts are denied."""

    file_system: AdditionalFileSystemPermissions | None = None
    network: AdditionalNetworkPermissions | None = None


PermissionGrantScope = Literal["turn", "session"]
"""How long a grant lasts."""


class RequestPermissionProfile(Value, frozen=True):
    """The permissions that the model requests."""

    file_system: AdditionalFileSystemPermissions | None = None
    network: AdditionalNetworkPermissions | None = None


class PermissionsRequestApprovalParams(Value, frozen=True):
    """The model requests additional permissions; the turn waits for the user."""

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
    """The profile that a thread's permissions come from, and the profile it extends."""

    id: str
    extends: str | None = None


class PermissionProfileListParams(Params, frozen=True):
    """Page through the available profiles for a folder."""

    cursor: str | None = None
    cwd: str | None = None
    limit: UInt32 | None = None


class PermissionProfileSummary(Value, frozen=True):
    """A selectable profile, unless an administrator forbids it."""

    allowed: bool
    id: str
    description: str | None = None


class PermissionProfileListResponse(Value, frozen=True):
    """One page of profiles, including built-in ones."""

    data: list[PermissionProfileSummary]
    next_cursor: str | None = None
