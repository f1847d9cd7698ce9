"""Drafts and applies a patch: two blocking steps that run in worker threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from treadle.engine.patch.compare import unified
from treadle.engine.patch.effort import MAX_LINES, MAX_OPERATIONS, MAX_PATCH_BYTES, Effort
from treadle.engine.patch.files import EditFailed, Stale, carry_out, touched
from treadle.engine.patch.plan import FileEdit, plan, targets
from treadle.engine.patch.reading import read_file
from treadle.engine.patch.syntax import Operation, PatchError, parse
from treadle.engine.patch.text import BadText, decode
from treadle.engine.project.diffs import MAX_SHOWN, MAX_TOTAL_SHOWN, TurnDiff
from treadle.protocol.item import (
    AddPatchChangeKind,
    DeletePatchChangeKind,
    FileUpdateChange,
    UpdatePatchChangeKind,
)
from treadle.sandbox.paths import real
from treadle.support.concurrency.workers import Workers

_CONTEXT: Final = 1
# How often a patch is planned while another program changes the same files.
_ATTEMPTS: Final = 3
CHANGED: Final = (
    "a file has changed since the patch was shown for approval; nothing was changed: read the "
    "file again and send a patch for what it contains now"
)
OMITTED: Final = "The diff is not shown: it is longer than"
"""The start of the text that replaces a long diff."""


class Draft(Struct, frozen=True):
    """A patch that matches the files; nothing is changed yet."""

    operations: list[Operation]
    cwd: str
    edits: list[FileEdit]
    # The paths of each edit and of its moved file, without links.
    paths: list[tuple[str, str | None]]
    # For clients.
    changes: list[FileUpdateChange]
    # Whether commands may read a file: it is read again if it has changed.
    may_read: Callable[[str], bool]
    text: str

    def judged(self) -> list[FileUpdateChange]:
        """The changes with resolved paths, which no link can redirect."""
        real = {edit.path: pair for edit, pair in zip(self.edits, self.paths, strict=True)}
        judged = []
        for change in self.changes:
            path, target = real[change.path]
            kind = change.kind if target is None else UpdatePatchChangeKind(target)
            judged.append(msgspec.structs.replace(change, path=path, kind=kind))
        return judged

    def is_cut(self) -> bool:
        """Whether a change is not shown completely."""
        shown = {change.path: change.diff for change in self.changes}
        return any(
            shown[edit.path].startswith(OMITTED)
            or (edit.kind == "delete" and bool(edit.old) and not shown[edit.path])
            for edit in self.edits
        )

    def moved(self) -> dict[str, str]:
        """The whole content of each moved file, of which a diff shows only a part."""
        return {
            target: decode(edit.new)
            for edit, (_, target) in zip(self.edits, self.paths, strict=True)
            if target is not None
        }

    def redirected(self) -> list[tuple[str, str]]:
        """The paths that lead elsewhere through a link below the working folder, and where to."""
        top = real(self.cwd)
        return [
            (named, found)
            for edit, pair in zip(self.edits, self.paths, strict=True)
            for named, found in zip((edit.path, edit.move_path), pair, strict=True)
            if named is not None and found is not None
            if found != os.path.normpath(os.path.join(top, os.path.relpath(named, self.cwd)))  # noqa: PTH118 - pathlib keeps `..`
        ]

    def keys(self) -> list[str]:
        """The files to lock while the patch is applied."""
        return [path for pair in self.paths for path in pair if path is not None]


class Applied(Struct, frozen=True):
    """An applied patch, and the diff of the turn if it has changed."""

    edits: list[FileEdit]
    changes: list[FileUpdateChange]
    diff: str | None


async def draft(workers: Workers, text: str, cwd: str, may_read: Callable[[str], bool]) -> Draft:
    """Parse a patch and plan its edits; the reason of a failure may quote what it reads.

    Raises:
        PatchError: it cannot be applied, or exceeds a limit.
    """
    effort = Effort()
    try:
        return await workers.run(_draft, text, cwd, may_read, effort)
    except asyncio.CancelledError:
        effort.abandon()
        raise


async def apply(
    workers: Workers, patch: Draft, diff: TurnDiff, cwd: str, *, was_asked: bool = False
) -> Applied | PatchError | EditFailed:
    """Apply a patch and add it to the diff of the turn; a failure changes nothing.

    An approval covers what was shown: if it `was_asked` for, a file that changed since is a failure
    unless the edits remain the same.

    A cancelled caller returns at once if no file was changed, and none is changed later. Once files
    are being changed, it waits for the end: a few renames. The caller publishes the result and then
    raises `CancelledError` if `asyncio.current_task` is being cancelled.
    """
    effort = Effort()
    future = await workers.start(_apply, patch, diff, cwd, effort, was_asked)
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError:
        if effort.abandon():
            raise
        await _ended(future)
    try:
        return future.result()
    except (PatchError, EditFailed) as failure:
        return failure


async def _ended(future: asyncio.Future[Applied]) -> None:
    """Wait although the task is cancelled, and perhaps cancelled again."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue


def _draft(text: str, cwd: str, may_read: Callable[[str], bool], effort: Effort) -> Draft:
    operations = _read(text)
    # Before any file is read: duplicate paths are an error.
    paths = touched(targets(operations, cwd), effort)
    edits = plan(operations, cwd, partial(read_file, may_read=may_read), effort)
    return Draft(operations, cwd, edits, paths, _changes(edits), may_read, text)


def _read(text: str) -> list[Operation]:
    if len(text) > MAX_PATCH_BYTES or text.count("\n") > MAX_LINES:
        raise PatchError(
            f"the patch is larger than {MAX_PATCH_BYTES} characters or {MAX_LINES} lines; "
            "split it into several patches"
        )
    operations = parse(text)
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(
            f"the patch changes more than {MAX_OPERATIONS} files; split it into several patches"
        )
    return operations


def _apply(
    patch: Draft,
    diff: TurnDiff,
    cwd: str,
    effort: Effort,
    was_asked: bool,  # noqa: FBT001 - workers pass positional arguments
) -> Applied:
    edits, changes = patch.edits, patch.changes
    for _ in range(_ATTEMPTS):
        try:
            changed = carry_out(edits, patch.paths, effort)
        except Stale:
            # Files may change while the approval is open.
            effort.restart()
            read = partial(read_file, may_read=patch.may_read)
            edits = plan(patch.operations, patch.cwd, read, effort)
            changes = _changes(edits)
            if was_asked and not _is_same(patch, edits, changes):
                raise EditFailed(CHANGED) from None
            effort.restart()
            continue
        diff.add(changed)
        return Applied(edits, changes, diff.take_update(cwd))
    raise EditFailed(
        "another program is changing these files at the same time; nothing was changed"
    )


def _is_same(patch: Draft, edits: Sequence[FileEdit], changes: Sequence[FileUpdateChange]) -> bool:
    """Whether edits do what was shown for approval.

    An update in place changes the lines that its diff shows, wherever they are now. A move or a
    deletion also concerns the lines that no diff shows.
    """
    return all(
        now == before
        or (
            (before.kind, before.move_path) == ("update", None)
            and not patch.is_cut()
            and _changed_lines(before_shown.diff) == _changed_lines(now_shown.diff)
        )
        for (before, before_shown), (now, now_shown) in zip(
            _by_path(patch.edits, patch.changes), _by_path(edits, changes), strict=True
        )
    )


def _by_path(
    edits: Sequence[FileEdit], changes: Sequence[FileUpdateChange]
) -> list[tuple[FileEdit, FileUpdateChange]]:
    shown = {change.path: change for change in changes}
    return [(edit, shown[edit.path]) for edit in edits]


def _changed_lines(diff: str) -> list[str]:
    return [line for line in diff.split("\n") if line.startswith(("+", "-"))]


def _changes(edits: Sequence[FileEdit]) -> list[FileUpdateChange]:
    """The edits for clients, up to the size of one message."""
    changes: list[FileUpdateChange] = []
    left = MAX_TOTAL_SHOWN
    for edit in sorted(edits, key=lambda edit: edit.path):
        change = _change(edit)
        if len(change.diff) > min(left, MAX_SHOWN):
            limit = min(left, MAX_SHOWN)
            omitted = "" if edit.kind == "delete" else f"{OMITTED} {limit} characters.\n"
            change = msgspec.structs.replace(change, diff=omitted)
        left -= len(change.diff)
        changes.append(change)
    return changes


def _change(edit: FileEdit) -> FileUpdateChange:
    """One edit for clients: the diff of an update, otherwise the added or deleted content."""
    match edit.kind:
        case "add":
            return FileUpdateChange(decode(edit.new), AddPatchChangeKind(), edit.path)
        case "delete":
            return FileUpdateChange(_text(edit.old), DeletePatchChangeKind(), edit.path)
        case "update":
            diff = unified(decode(edit.old), decode(edit.new), context=_CONTEXT)
            if edit.move_path is not None:
                diff += f"\n\nMoved to: {edit.move_path}"
            return FileUpdateChange(diff, UpdatePatchChangeKind(edit.move_path), edit.path)


def _text(data: bytes) -> str:
    """The content of a file, if it is text and not too long."""
    if len(data) > MAX_SHOWN:
        return ""
    try:
        return decode(data)
    except BadText:
        return ""
