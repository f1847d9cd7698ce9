"""Sandbox and approval policies."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import AbsolutePathBuf, SnakeOneOf, SnakeValue, Value
from treadle.protocol.network import NetworkAccess

ApprovalsReviewer = Literal["user", "auto_review", "guardian_subagent"]
"""Who decides approvals; `guardian_subagent` is the old name of `auto_review`."""


class Granular(SnakeValue, frozen=True):
    """Which kinds of approval may reach the user; a kind set to false is denied at once."""

    mcp_elicitations: bool
    rules: bool
    sandbox_approval: bool
    request_permissions: bool = False
    skill_approval: bool = False


class GranularAskForApproval(SnakeOneOf, frozen=True):
    """An approval policy that decides for each kind of approval; experimental."""

    granular: Granular | None = None


AskForApproval = Literal["untrusted", "on-failure", "on-request", "never"] | GranularAskForApproval
"""When the agent must ask for approval before it acts."""

SandboxMode = Literal["read-only", "workspace-write", "danger-full-access"]
"""The short form of a sandbox policy, as used by `thread/start` and the configuration."""


class DangerFullAccessSandboxPolicy(Value, tag="dangerFullAccess", frozen=True):
    """No sandbox: commands may do everything that the user may."""


class FullAccessReadOnlyAccess(Value, tag="fullAccess", frozen=True):
    """Every file may be read; older clients only."""


class RestrictedReadOnlyAccess(Value, tag="restricted", frozen=True):
    """Only the given roots may be read; older clients only."""

    # Also the system folders that most programs need to start.
    include_platform_defaults: bool = True
    readable_roots: list[AbsolutePathBuf] = []


ReadOnlyAccess = RestrictedReadOnlyAccess | FullAccessReadOnlyAccess


class ReadOnlySandboxPolicy(Value, tag="readOnly", frozen=True):
    """Commands may read files but not write any."""

    network_access: bool = False
    access: ReadOnlyAccess | UnsetType | None = UNSET


class ExternalSandboxSandboxPolicy(Value, tag="externalSandbox", frozen=True):
    """The server already runs inside an external sandbox and adds none."""

    network_access: NetworkAccess = "restricted"


class WorkspaceWriteSandboxPolicy(Value, tag="workspaceWrite", frozen=True):
    """Commands may write in the workspace, in temporary folders and in the given roots."""

    exclude_slash_tmp: bool = False
    exclude_tmpdir_env_var: bool = False
    network_access: bool = False
    writable_roots: list[AbsolutePathBuf] = []
    read_only_access: ReadOnlyAccess | UnsetType | None = UNSET


SandboxPolicy = (
    DangerFullAccessSandboxPolicy
    | ReadOnlySandboxPolicy
    | ExternalSandboxSandboxPolicy
    | WorkspaceWriteSandboxPolicy
)
