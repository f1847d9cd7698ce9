"""The guardian's opinion of a call that a client added to the context of an idle thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from treadle.engine.approvals.judgement import NeedsApproval, judge_command, judge_edit
from treadle.engine.errors import InvalidInput
from treadle.engine.patch.syntax import PatchError
from treadle.engine.patch.work import draft
from treadle.engine.reviewed import Details, details_of_command, details_of_edits, touched
from treadle.engine.tools.exec import ExecCommand
from treadle.engine.tools.patch import ApplyPatch
from treadle.engine.tools.registry import ToolCall, ToolRefused, read_call
from treadle.engine.tools.shell import Shell, ShellCommand
from treadle.engine.turn import ActiveTurn
from treadle.protocol.approval import (
    ApplyPatchGuardianApprovalReviewAction,
    CommandGuardianApprovalReviewAction,
    GuardianApprovalReview,
    GuardianApprovalReviewAction,
)
from treadle.shell.scripts import display
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.approvals.permission import CommandRequest
    from treadle.engine.thread import LoadedThread

EXPECTED: Final = "expected a call of a command tool or of apply_patch as the last item"


class _Action(NamedTuple):
    shown: GuardianApprovalReviewAction
    justification: str | None
    details: Details


async def assess(thread: LoadedThread) -> tuple[str, GuardianApprovalReview | None]:
    """Assess the last item of a thread; return its call id, and `None` if no review is needed.

    Raises:
        InvalidInput: a turn is active, or the last item is not a call that can be assessed.
    """
    if thread.turn is not None:
        raise InvalidInput("threadId", f"thread {thread.id} has an active turn")
    items = thread.context.history.items
    call = read_call(items[-1]) if items and items[-1].get("call_id") else None
    if call is None:
        raise InvalidInput("threadId", EXPECTED)
    turn = ActiveTurn(uuid7(), thread.id, thread.log, thread.services.clock, "regular")
    try:
        action = await _action_of(thread, turn, call)
    except (ToolRefused, PatchError) as error:
        raise InvalidInput("threadId", f"the call {call.id} is invalid: {error}") from error
    if action is None:
        return call.id, None
    guardian = thread.approvals.guardian
    shown, why, details = action
    return call.id, await guardian.assess(turn, shown, why, details=details)


async def _action_of(thread: LoadedThread, turn: ActiveTurn, call: ToolCall) -> _Action | None:
    tool = thread.tools.find(call)
    if isinstance(tool, ExecCommand | Shell | ShellCommand):
        requested = await tool.requested(call, thread.settings_of(turn))
        return _command(thread, turn, requested)
    if isinstance(tool, ApplyPatch):
        return await _patch(thread, turn, tool.text_of(call))
    raise InvalidInput("threadId", f"{EXPECTED}, not of {call.name}")


def _command(thread: LoadedThread, turn: ActiveTurn, request: CommandRequest) -> _Action | None:
    approvals, settings = thread.approvals, thread.settings_of(turn)
    usual = wider = approvals.confinement(turn)
    if request.additional is not None:
        wider = approvals.confinement(turn, request.additional)
    judgement = judge_command(
        request.argv,
        policy=settings.approval_policy,
        sandbox=settings.enforced_sandbox,
        rule=approvals.rules(turn).check(request.argv),
        wants_more=request.escalated or wider != usual,
    )
    if isinstance(judgement, NeedsApproval) and judgement.is_personal:
        raise InvalidInput("threadId", "managed command policy requires human approval")
    is_free = request.escalated or usual.is_unrestricted
    is_known = approvals.grants.has_command(request.key_for(is_free=is_free))
    if is_known or not isinstance(judgement, NeedsApproval):
        return None
    shown = CommandGuardianApprovalReviewAction(display(request.argv), request.cwd, "unifiedExec")
    return _Action(shown, request.justification, details_of_command(request, is_free=is_free))


async def _patch(thread: LoadedThread, turn: ActiveTurn, text: str) -> _Action | None:
    approvals, settings = thread.approvals, thread.settings_of(turn)
    bounds = approvals.confinement(turn)
    patch = await draft(thread.services.patches.workers, text, settings.cwd, bounds.may_read)
    paths = touched(patch.judged())
    judgement = judge_edit(
        settings.approval_policy,
        settings.enforced_sandbox,
        is_inside=all(bounds.may_write(path) for path in paths),
    )
    if approvals.grants.has_files(paths) or not isinstance(judgement, NeedsApproval):
        return None
    shown = ApplyPatchGuardianApprovalReviewAction(settings.cwd, list(paths))
    return _Action(shown, judgement.reason, details_of_edits(patch, bounds))
