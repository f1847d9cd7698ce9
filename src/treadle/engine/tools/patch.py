"""The `apply_patch` tool: edits files with one patch, which is approved and applied as a whole."""

from __future__ import annotations

from asyncio import CancelledError, current_task
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from treadle.engine.approvals.approvals import BY_USER
from treadle.engine.approvals.permission import ApprovalUnavailable, Denied
from treadle.engine.errors import TurnCancelled
from treadle.engine.patch.plan import FileEdit
from treadle.engine.patch.syntax import PatchError
from treadle.engine.patch.work import Applied, Draft, apply, draft
from treadle.engine.tools.registry import Output, ToolCall, ToolRefused, read_arguments
from treadle.model.base import ModelTool
from treadle.model.catalog import traits_of
from treadle.protocol import notifications as n
from treadle.protocol.delta import FileChangeOutputDeltaNotification
from treadle.protocol.item import FileChangeThreadItem, FileUpdateChange, PatchApplyStatus
from treadle.protocol.turn import TurnDiffUpdatedNotification
from treadle.support.clock import Stopwatch

if TYPE_CHECKING:
    from treadle.engine.settings import RunSettings
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

IN_PLAN_MODE: Final = (
    "apply_patch is not allowed in Plan mode: describe the change in the proposed plan"
)
_FREEFORM: Final = "Edit files with a patch. The input is the patch itself, not wrapped in JSON."
_FUNCTION: Final = """\
Edit files with a patch. `input` is the text of the patch:

*** Begin Patch
*** Add File: new.py
+each line of the new file, prefixed with a plus
*** Update File: old.py
*** Move to: renamed.py
@@ def function_that_contains_the_change():
 an unchanged line, prefixed with a space
-a removed line
+an added line
*** Delete File: unused.py
*** End Patch

Move to is optional. An update has one section for each place, in the order of the file. Start \
each section with @@, or with @@ and a line above the change. Include some unchanged lines around \
each change, so that its place is unambiguous. End a section with *** End of File if it must match \
the end of the file. Name each file once; paths are relative to the working folder."""
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


def patch_form(settings: RunSettings) -> Literal["freeform", "function"]:
    """Return the form that the model was trained on, otherwise that of the feature flag."""
    is_free = settings.is_enabled("apply_patch_freeform")
    return traits_of(settings.model).apply_patch or ("freeform" if is_free else "function")


class ApplyPatch:
    """Accepts a patch as free text or as the argument of a function."""

    name = "apply_patch"
    # The next call may change the same files.
    is_exclusive = True

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """The definition that the model sees: free text if the model was trained for it."""
        thread = self._thread
        settings = thread.settings_of(thread.turn) if thread.turn else thread.settings
        if patch_form(settings) == "freeform":
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

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Apply the patch."""
        cwd = self._thread.settings_of(turn).cwd
        return await apply_patch(self._thread, turn, call.id, self.text_of(call), cwd)

    def text_of(self, call: ToolCall) -> str:
        """Return the patch of a call.

        Raises:
            ToolRefused: the arguments are invalid.
        """
        return call.input if call.is_custom else read_arguments(call, _Arguments).input


async def apply_patch(
    thread: LoadedThread, turn: ActiveTurn, call_id: str, patch_text: str, cwd: str
) -> Output:
    """Apply a patch with paths relative to a folder; return the output for the model.

    Raises:
        ToolRefused: it cannot or may not be applied; nothing was changed.
        TurnCancelled: the user cancelled the turn.
    """
    if thread.settings_of(turn).changes_nothing:
        raise ToolRefused(IN_PLAN_MODE)
    stopwatch = Stopwatch()
    resources = thread.services.patches
    try:
        # Whether a patch matches reveals content, so only readable files are compared.
        may_read = thread.approvals.confinement(turn).may_read
        patch = await draft(resources.workers, patch_text, cwd, may_read)
    except PatchError as error:
        raise ToolRefused(f"apply_patch verification failed: {error}") from error
    if not patch.edits:
        raise ToolRefused("patch rejected: empty patch")
    needed_approval = await _approve(thread, turn, call_id, patch)
    turn.start_item(_item(call_id, patch.changes, "inProgress"))
    folder = thread.settings_of(turn).cwd
    try:
        # Diffs are published in order, and no other patch changes these files meanwhile.
        async with turn.diff.lock, resources.files.hold(patch.keys()):
            turn.check_storable()
            outcome = await apply(
                resources.workers, patch, turn.diff, folder, was_asked=needed_approval
            )
            _publish(turn, call_id, patch, outcome)
    except CancelledError:
        turn.complete_item(_item(call_id, patch.changes, "failed"))
        raise
    if (task := current_task()) is not None and task.cancelling():
        raise CancelledError  # only after the result was published
    if isinstance(outcome, Applied):
        return _report(stopwatch, 0, _summary(outcome.edits))
    return _report(stopwatch, 1, f"{outcome}\n")


def _publish(turn: ActiveTurn, call_id: str, patch: Draft, outcome: Applied | Exception) -> None:
    text = _summary(outcome.edits) if isinstance(outcome, Applied) else f"{outcome}\n"
    delta = FileChangeOutputDeltaNotification(text, call_id, turn.thread_id, turn.id)
    turn.log.publish(n.ITEM_FILE_CHANGE_OUTPUT_DELTA, delta)
    if not isinstance(outcome, Applied):
        turn.complete_item(_item(call_id, patch.changes, "failed"))
        return
    turn.complete_item(_item(call_id, outcome.changes, "completed"))
    if outcome.diff is not None:
        params = TurnDiffUpdatedNotification(outcome.diff, turn.thread_id, turn.id)
        turn.log.publish(n.TURN_DIFF_UPDATED, params)


async def _approve(thread: LoadedThread, turn: ActiveTurn, call_id: str, patch: Draft) -> bool:
    """Request approval of the edits, judged by the resolved paths; return whether it was needed."""
    cwd = thread.settings_of(turn).cwd

    def show() -> None:
        turn.start_item(_item(call_id, patch.changes, "inProgress"))

    try:
        return await thread.approvals.file_change(turn, call_id, patch, cwd, before=show)
    except (Denied, ApprovalUnavailable, TurnCancelled, CancelledError) as refusal:
        if call_id in turn.open_items:
            turn.complete_item(_item(call_id, patch.changes, "declined"))
        if isinstance(refusal, Denied | ApprovalUnavailable):
            raise ToolRefused(_describe(refusal)) from refusal
        raise


def _describe(refusal: Denied | ApprovalUnavailable) -> str:
    """The reason of a refusal, as a message about the patch."""
    if isinstance(refusal, ApprovalUnavailable):
        return refusal.reason
    return f"patch {BY_USER}" if refusal.reason == BY_USER else f"patch rejected: {refusal.reason}"


def _item(
    call_id: str, changes: list[FileUpdateChange], status: PatchApplyStatus
) -> FileChangeThreadItem:
    return FileChangeThreadItem(changes=changes, id=call_id, status=status)


def _summary(edits: Sequence[FileEdit]) -> str:
    letters = {"add": "A", "update": "M", "delete": "D"}
    lines = [
        f"{letter} {edit.name}\n"
        for kind, letter in letters.items()
        for edit in edits
        if edit.kind == kind
    ]
    return "".join(["Success. Updated the following files:\n", *lines])


def _report(stopwatch: Stopwatch, code: int, text: str) -> str:
    seconds = round(stopwatch.seconds, 1)
    return f"Exit code: {code}\nWall time: {seconds:g} seconds\nOutput:\n{text}"
