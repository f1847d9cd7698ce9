"""Setup of the sandbox on Windows."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import AbsolutePathBuf, Params, Value

WindowsSandboxImplementation = Literal["elevated", "unelevated", "mxc"]

WindowsSandboxReadiness = Literal["ready", "notConfigured", "updateRequired"]


class WindowsSandboxReadinessResponse(Value, frozen=True):
    """Whether commands can be sandboxed on Windows, or what is missing."""

    status: WindowsSandboxReadiness


WindowsSandboxSetupMode = Literal["elevated", "unelevated"]


class WindowsSandboxSetupCompletedNotification(Value, frozen=True):
    """A setup has ended, successfully or with an error."""

    mode: WindowsSandboxSetupMode
    success: bool
    error: str | None = None


class WindowsSandboxSetupStartParams(Params, frozen=True):
    """Prepare the Windows sandbox, with or without administrator rights."""

    mode: WindowsSandboxSetupMode
    cwd: AbsolutePathBuf | None = None


class WindowsSandboxSetupStartResponse(Value, frozen=True):
    """Setup runs in the background; `windowsSandbox/setupCompleted` reports its end."""

    started: bool
