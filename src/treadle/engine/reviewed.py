"""Details of an action that the guardian sees and clients do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from treadle.engine.approvals.permission import CommandRequest
from treadle.engine.patch.work import Draft
from treadle.protocol.base import JsonValue
from treadle.protocol.item import (
    CommandExecutionThreadItem,
    FileUpdateChange,
    UpdatePatchChangeKind,
)
from treadle.sandbox.policy import Confinement

Details: TypeAlias = Mapping[str, JsonValue]

IS_CUT: Final = "isCut"
"""The detail that marks an incomplete description of an action."""


def details_of_command(request: CommandRequest, *, is_free: bool) -> Details:
    """Return whether a command runs outside the sandbox, its permissions, and its terminal."""
    return {
        "runsOutsideTheSandbox": is_free,
        "canReceiveInput": request.is_terminal,
        "additionalPermissions": msgspec.to_builtins(request.additional),
    }


def details_of_input(command: CommandExecutionThreadItem, confinement: Confinement) -> Details:
    """Return the command that receives input, and what it may do."""
    return {
        "command": command.command,
        "runsOutsideTheSandbox": confinement.is_unrestricted,
        "writableFolders": [root.path for root in confinement.writable],
        "hasNetwork": confinement.network or confinement.has_proxy,
    }


def details_of_edits(patch: Draft, bounds: Confinement) -> Details:
    """Return the changes to each file, and the whole content of those that move out of bounds."""
    return {
        "changes": msgspec.to_builtins(patch.judged()),
        "movedContents": {
            path: text for path, text in patch.moved().items() if not bounds.may_write(path)
        },
        IS_CUT: patch.is_cut(),
    }


def links_in(patch: Draft) -> str | None:
    """Return where the links among the paths of a patch lead; `None` if there are none."""
    lines = [f"{named} leads through a link to {found}" for named, found in patch.redirected()]
    return "; ".join(lines) or None


def touched(changes: Sequence[FileUpdateChange]) -> list[str]:
    """Return the files that edits create, change or delete."""
    paths = [change.path for change in changes]
    paths += [
        change.kind.move_path
        for change in changes
        if isinstance(change.kind, UpdatePatchChangeKind) and change.kind.move_path
    ]
    return [str(Path(path)) for path in paths]
