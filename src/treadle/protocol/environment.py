"""Machines other than this one on which a thread may run."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import LegacyAppPathString, Params, PathUri, Sparse, UInt64, Value


class EnvironmentSkillsParams(Params, frozen=True):
    """Skills that an environment must provide before the first model request."""

    required: list[str] | None = None


class EnvironmentAddParams(Params, frozen=True):
    """Register a remote machine by the URL of its exec server, so that turns may run there."""

    environment_id: str
    exec_server_url: str
    auth_bearer_token: str | None = None
    connect_timeout_ms: UInt64 | None = None
    skills: EnvironmentSkillsParams | None = None
    websocket_request_id: str | None = None


class EnvironmentAddResponse(Value, frozen=True):
    """The environment is registered."""


class EnvironmentConnectionNotification(Value, frozen=True):
    """A thread's environment was connected or lost; the method says which."""

    environment_id: str
    thread_id: str


class EnvironmentInfoParams(Params, frozen=True):
    """Read information about an environment."""

    environment_id: str


class EnvironmentShellInfo(Value, frozen=True):
    """The shell that runs commands there, by name and by path on that machine."""

    name: str
    path: str


class EnvironmentInfoResponse(Value, frozen=True):
    """The environment's shell and its default folder."""

    shell: EnvironmentShellInfo
    cwd: PathUri | None = None


EnvironmentStatusKind = Literal["ready", "pending", "disconnected", "unknown"]
"""`pending` was never connected, `disconnected` failed, `unknown` is not configured."""


class EnvironmentStatusParams(Params, frozen=True):
    """Read whether an environment is connected, without connecting to it."""

    environment_id: str


class EnvironmentStatusResponse(Sparse, frozen=True):
    """The state of the connection; the error explains a missing one."""

    status: EnvironmentStatusKind
    error: str | None = None


class ThreadEnvironment(Value, frozen=True):
    """An environment selected for a thread, connected or not, and its folders there."""

    cwd: LegacyAppPathString
    environment_id: str
    runtime_workspace_roots: list[LegacyAppPathString]


class TurnEnvironmentParams(Params, frozen=True):
    """An environment for a turn to run in, and its folder; the roots default to `cwd` alone."""

    cwd: LegacyAppPathString
    environment_id: str
    runtime_workspace_roots: list[LegacyAppPathString] | None = None
