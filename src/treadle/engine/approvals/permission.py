"""What the agent wants to do, and what becomes of it: a permit, or one of two refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from treadle.protocol.permission import AdditionalPermissionProfile
from treadle.sandbox.policy import Confinement

CommandKey: TypeAlias = tuple[tuple[str, ...], str, bool, bytes]
"""What two commands have in common that one answer can count for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """A command that the model wants to run, and what it says about it."""

    call_id: str
    argv: tuple[str, ...]
    cwd: str
    escalated: bool = False
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None
    additional: AdditionalPermissionProfile | None = None

    def key_for(self, *, is_free: bool) -> CommandKey:
        """What the command is remembered by, where it runs without a sandbox or in one."""
        # Permissions have lists in them, which cannot be looked up.
        return self.argv, self.cwd, is_free, msgspec.json.encode(self.additional)


@dataclass(frozen=True, slots=True)
class Permission:
    """A command may run, within these bounds."""

    confinement: Confinement
    was_asked: bool
    # Set for a command that runs outside the sandbox without a user who has checked which programs
    # its names lead to: the values of `PATH` and its like that lead to none of a command's making.
    # Its shell reads no start-up files, which could set others.
    searched: Mapping[str, str] | None = None


class Denied(Exception):
    """It may not be done; `reason` is for the model."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ApprovalUnavailable(Exception):
    """Nobody gave an answer that can be used: it is not done; `reason` is for the model."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
