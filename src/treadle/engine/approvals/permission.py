"""A command that the agent requests, and the result: a permission or one of two errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct, field

from treadle.protocol.permission import AdditionalPermissionProfile
from treadle.sandbox.policy import Confinement

RETRY: Final = "/retry"
"""Suffix of the call id in the key of a request to retry the call without the sandbox."""

CommandKey: TypeAlias = tuple[tuple[str, ...], str, bool, bool, bytes]
"""Identifies a command: a grant covers all commands with the same key."""


class CommandRequest(Struct, frozen=True, kw_only=True):
    """A command that the model wants to run, with its options."""

    call_id: str
    argv: tuple[str, ...]
    cwd: str
    escalated: bool = False
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None
    additional: AdditionalPermissionProfile | None = None
    # The model can type into it, so an interpreter runs more than the command says.
    is_terminal: bool = False

    def key_for(self, *, is_free: bool) -> CommandKey:
        """The key of the command, outside the sandbox or in it."""
        # Permissions contain lists, which are not hashable.
        additional = msgspec.json.encode(self.additional)
        return self.argv, self.cwd, is_free, self.is_terminal, additional


class Permission(Struct, frozen=True):
    """A command may run within this confinement."""

    confinement: Confinement
    was_asked: bool
    # Set for a command that runs, outside the sandbox or unasked, although no user checked which
    # programs its names resolve to: `PATH` and similar variables without folders that commands can
    # write. Its shell reads no start-up files, which could change these variables.
    search_paths: Mapping[str, str] | None = None
    # Variables of a command that leaves the sandbox in which others run: their files must not
    # choose what it starts.
    variables: Mapping[str, str] = field(default_factory=dict)


class Denied(Exception):
    """The action may not run; `reason` is for the model."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ApprovalUnavailable(Exception):
    """There was no usable answer, so the action does not run; `reason` is for the model."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
