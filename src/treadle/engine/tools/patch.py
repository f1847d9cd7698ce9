"""apply_patch: edits to files as one patch, shown, approved and then made as a whole."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.approvals import BY_USER
from treadle.engine.diffs import MAX_SHOWN
from treadle.engine.errors import TurnCancelled
from treadle.engine.patch.compare import unified
from treadle.engine.patch.files import EditFailed, carry_out, read_file, touched
from treadle.engine.patch.plan import Edit, plan
from treadle.engine.patch.syntax import PatchError, parse
from treadle.engine.permits import Declined, Failed
from treadle.engine.tools.registry import Output, ToolCall, ToolRefused, read_arguments
from treadle.model.base import ModelTool
from treadle.model.catalog import traits_of
from treadle.protocol import notifications as n
from treadle.protocol.item import (
    AddPatchChangeKind,
    DeletePatchChangeKind,
    FileChangeThreadItem,
    FileUpdateChange,
    PatchApplyStatus,
    UpdatePatchChangeKind,
)
from treadle.protocol.turn import TurnDiffUpdatedNotification

if TYPE_CHECKING:
    from treadle.engine.thread import Thread
    from treadle.engine.turn import Turn

_CONTEXT: Final = 1
_FREEFORM: Final = "Edit files with a patch. The input is the patch itself, not JSON around it."
_FUNCTION: Final = """\
Edit files with a patch. `input` is its text:

*** Begin Patch
*** Add File: new.py
+each line of the new file, after a plus
*** Update File: old.py
*** Move to: renamed.py
@@ def function_in_which_the_change_is():
 a line that stays, after a blank
-a line that goes
+a line that comes instead
*** Delete File: unused.py
*** End Patch

Move to is optional. An update has one part for each place, in the order of the file, each begun \
by @@ or by @@ and a line above the place. Give some lines that stay around each change, so that \
the place is clear. End a part with *** End of File if it must be at the end of the file. Name \
each file once; paths are relative to the working folder."""
_GRAMMAR: Final = r"""start: begin operation+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

operation: add | delete | update
add: "*** Add File: " path LF new_line+
delete: "*** Delete File: " path LF
update: "*** Update File: " path LF move? part?
move: "*** Move to: " path LF
part: (place | line)+ end_of_file?
place: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF
new_line: "+" /(.*)/ LF
end_of_file: "*** End of File" LF
path: /(.+)/

%import common.LF
"""


class _Arguments(msgspec.Struct):
    input: str


class ApplyPatch:
    """Takes a patch as free text or as the one argument of a function."""

    name = "apply_patch"
    # The next call may be about the same files.
    is_exclusive = True

    def __init__(self, thread: Thread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """How the model is offered it: as free text if it was trained for that."""
        thread = self._thread
        settings = thread.settings_of(thread.turn) if thread.turn else thread.settings
        if traits_of(settings.model).apply_patch == "freeform":
            grammar = {"type": "grammar", "syntax": "lark", "definition": _GRAMMAR}
            return {
                "type": "custom",
                "name": self.name,
                "description": _FREEFORM,
                "format": grammar,
            }
        return {
            "type": "function",
            "name": self.name,
            "description": _FUNCTION,
            "strict": False,
            "parameters": {
                "type": "object",
                "properties": {"input": {"type": "string", "description": "The whole patch."}},
                "required": ["input"],
                "additionalProperties": False,
            },
        }

    async def run(self, call: ToolCall, turn: Turn) -> Output:
        """Apply the patch."""
        text = call.input if call.is_custom else read_arguments(call, _Arguments).input
        cwd = self._thread.settings_of(turn).cwd
        return await apply_patch(self._thread, turn, call.id, text, cwd)


async def apply_patch(
    thread: Thread, turn: Turn, call_id: str, patch_text: str, cwd: str
) -> Output:
    """Apply a patch whose paths are relative to a folder; gives what the model is told.

    Raises:
        ToolRefused: it cannot be applied, or may not; nothing was changed.
        TurnCancelled: the user wants the turn to stop.
    """
    started = thread.around.clock()
    try:
        edits = _plan(patch_text, cwd)
        paths = touched(edits)
    except PatchError as error:
        raise ToolRefused(f"apply_patch verification failed: {error}") from error
    if not edits:
        raise ToolRefused("patch rejected: empty patch")
    changes = _changes(edits)
    is_asked = await _approve(thread, turn, call_id, changes, _as_judged(changes, edits, paths))
    turn.start_item(_item(call_id, changes, "inProgress"))
    try:
        if is_asked:
            # The files may have changed while the user thought about it.
            edits = _plan(patch_text, cwd)
            changes = _changes(edits)
        made = carry_out(edits, paths)
    except (PatchError, EditFailed) as failure:
        turn.complete_item(_item(call_id, changes, "failed"))
        return _report(thread, started, 1, f"{failure}\n")
    turn.complete_item(_item(call_id, changes, "completed"))
    turn.diff.note(made)
    _tell_diff(thread, turn)
    return _report(thread, started, 0, _summary(edits))


def _plan(text: str, cwd: str) -> list[Edit]:
    return plan(parse(text), cwd, read_file)


async def _approve(
    thread: Thread,
    turn: Turn,
    call_id: str,
    changes: list[FileUpdateChange],
    judged: list[FileUpdateChange],
) -> bool:
    """Have the edits judged by where they really go; true if somebody was asked."""
    cwd = thread.settings_of(turn).cwd

    def show() -> None:
        turn.start_item(_item(call_id, changes, "inProgress"))

    try:
        return await thread.approvals.file_change(turn, call_id, judged, cwd, before=show)
    except (Declined, Failed, TurnCancelled, CancelledError) as refusal:
        if call_id in turn.open_items:
            turn.complete_item(_item(call_id, changes, "declined"))
        if isinstance(refusal, Declined | Failed):
            raise ToolRefused(_told(refusal)) from refusal
        raise


def _told(refusal: Declined | Failed) -> str:
    """Why it may not be done, in a sentence about the patch."""
    if isinstance(refusal, Failed):
        return refusal.reason
    return f"patch {BY_USER}" if refusal.reason == BY_USER else f"patch rejected: {refusal.reason}"


def _as_judged(
    changes: Sequence[FileUpdateChange],
    edits: Sequence[Edit],
    paths: Sequence[tuple[str, str | None]],
) -> list[FileUpdateChange]:
    """The changes with paths that no link can lead elsewhere any more."""
    real = {edit.path: found for edit, found in zip(edits, paths, strict=True)}
    judged = []
    for change in changes:
        path, target = real[change.path]
        kind = change.kind if target is None else UpdatePatchChangeKind(target)
        judged.append(msgspec.structs.replace(change, path=path, kind=kind))
    return judged


def _changes(edits: Sequence[Edit]) -> list[FileUpdateChange]:
    return [_change(edit) for edit in sorted(edits, key=lambda edit: edit.path)]


def _change(edit: Edit) -> FileUpdateChange:
    """One edit as clients see it: a diff of an update, else what is added or lost."""
    match edit.kind:
        case "add":
            return FileUpdateChange(edit.new.decode(), AddPatchChangeKind(), edit.path)
        case "delete":
            return FileUpdateChange(_text(edit.old), DeletePatchChangeKind(), edit.path)
        case "update":
            diff = unified(edit.old.decode(), edit.new.decode(), context=_CONTEXT)
            if edit.move_path is not None:
                diff += f"\n\nMoved to: {edit.move_path}"
            return FileUpdateChange(diff, UpdatePatchChangeKind(edit.move_path), edit.path)


def _text(data: bytes) -> str:
    """What was in a file, if it is something to read and not too much."""
    if len(data) > MAX_SHOWN:
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def _item(
    call_id: str, changes: list[FileUpdateChange], status: PatchApplyStatus
) -> FileChangeThreadItem:
    return FileChangeThreadItem(changes=changes, id=call_id, status=status)


def _tell_diff(thread: Thread, turn: Turn) -> None:
    diff = turn.diff.news(thread.settings_of(turn).cwd)
    if diff is not None:
        turn.log.tell(
            n.TURN_DIFF_UPDATED, TurnDiffUpdatedNotification(diff, turn.thread_id, turn.id)
        )


def _summary(edits: Sequence[Edit]) -> str:
    letters = {"add": "A", "update": "M", "delete": "D"}
    lines = [
        f"{letter} {edit.name}\n"
        for kind, letter in letters.items()
        for edit in edits
        if edit.kind == kind
    ]
    return "".join(["Success. Updated the following files:\n", *lines])


def _report(thread: Thread, started_ms: int, code: int, text: str) -> str:
    seconds = round((thread.around.clock() - started_ms) / 1000, 1)
    return f"Exit code: {code}\nWall time: {seconds:g} seconds\nOutput:\n{text}"
