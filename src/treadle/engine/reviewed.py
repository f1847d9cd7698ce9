"""Details of an action that the guardian sees and clients do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from treadle.engine.approvals.permission import CommandRequest
from treadle.engine.patch.work import OMITTED
from treadle.protocol.base import JsonValue
from treadle.protocol.item import FileUpdateChange, UpdatePatchChangeKind

Details: TypeAlias = Mapping[str, JsonValue]

IS_CUT: Final = "isCut"
"""The detail that marks an incomplete description of an action."""


def details_of_command(request: CommandRequest, *, is_free: bool) -> Details:
    """Return whether a command runs outside the sandbox, and its additional permissions."""
    return {
        "runsOutsideTheSandbox": is_free,
        "additionalPermissions": msgspec.to_builtins(request.additional),
    }


def details_of_edits(changes: Sequence[FileUpdateChange]) -> Details:
    """Return the changes to each file."""
    is_cut = any(change.diff.startswith(OMITTED) for change in changes)
    return {"changes": msgspec.to_builtins(list(changes)), IS_CUT: is_cut}


def touched(changes: Sequence[FileUpdateChange]) -> list[str]:
    """Return the files that edits create, change or delete."""
    paths = [change.path for change in changes]
    paths += [
        change.kind.move_path
        for change in changes
        if isinstance(change.kind, UpdatePatchChangeKind) and change.kind.move_path
    ]
    return [str(Path(path)) for path in paths]
