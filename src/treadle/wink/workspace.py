"""A folder for the agent with copies of the host's files, described to the model by its section."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from weakincentives.prompt import (
    HostMount,
    HostMountPreview,
    WorkspaceBudgetExceededError,
    WorkspaceSection,
    WorkspaceSecurityError,
)

__all__ = [
    "CodexWorkspaceSection",
    "HostMount",
    "HostMountPreview",
    "WorkspaceBudgetExceededError",
    "WorkspaceSecurityError",
]


class CodexWorkspaceSection(WorkspaceSection):
    """WINK's workspace section, which a `with` block cleans up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cleanup()
