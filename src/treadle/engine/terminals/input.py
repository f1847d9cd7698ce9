"""May the model type into a command that runs? Not unasked, if that may do more than others."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from treadle.engine.approvals.approvals import BY_ERROR, BY_USER
from treadle.engine.approvals.judgement import Forbidden, judge_input
from treadle.engine.approvals.permission import Denied
from treadle.engine.errors import TurnCancelled
from treadle.engine.events.server_requests import ServerRequestRefused
from treadle.engine.terminals.run import CommandRun
from treadle.protocol.approval import (
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    WriteStdinGuardianApprovalReviewAction,
)
from treadle.protocol.item import UnknownCommandAction
from treadle.protocol.server_requests import ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

_FREE: Final = (
    "Send input to a running command. It runs outside the sandbox; its folder and its state may "
    "have changed since it was started."
)
_OTHER: Final = (
    "Send input to a running command. It may do other things than the sandbox allows now; its "
    "folder and its state may have changed since it was started."
)


@dataclass(frozen=True, slots=True)
class InputRequest:
    """What the model wants to type, and by which call."""

    run: CommandRun
    call_id: str
    session: int
    chars: str

    @property
    def command(self) -> str:
        """The request in the form of a command, which is how clients show it."""
        return shlex.join(["write_stdin", "--session-id", str(self.session), self.chars])


async def approve_input(thread: LoadedThread, turn: ActiveTurn, request: InputRequest) -> None:
    """Ask about input for a command that may do more than one that is started now.

    Raises:
        Declined: it may not be typed.
        TurnCancelled: the turn is to stop.
    """
    now, then = thread.approvals.confinement(turn), request.run.confinement
    if (then == now or now.is_unrestricted) and not turn.reviews_all:
        return
    reason = _FREE if then.is_unrestricted else _OTHER
    item, settings = request.run.item, thread.settings_of(turn)
    action = WriteStdinGuardianApprovalReviewAction(
        request.call_id, item.cwd, str(request.session), request.chars
    )
    judged = judge_input(settings.approval_policy, reason)
    if isinstance(judged, Forbidden) and not turn.reviews_all:
        raise Denied(judged.reason)
    if not await thread.approvals.reviewed(turn, item.id, action, reason, None):
        await _ask(thread, turn, request, reason)


async def _ask(thread: LoadedThread, turn: ActiveTurn, request: InputRequest, reason: str) -> None:
    item = request.run.item
    params = CommandExecutionRequestApprovalParams(
        item_id=item.id,
        started_at_ms=turn.clock(),
        thread_id=turn.thread_id,
        turn_id=turn.id,
        approval_id=request.call_id,
        available_decisions=["accept", "cancel"],
        command=request.command,
        command_actions=[UnknownCommandAction(request.command)],
        cwd=item.cwd,
        environment_id="local",
        kind="writeStdin",
        reason=reason,
    )
    accept = CommandExecutionRequestApprovalResponse("accept")
    try:
        answer = await thread.server_requests.ask(
            ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
            params,
            turn=turn,
            key=request.call_id,
            flag="waitingOnApproval",
            default=thread.approvals.on_deadline(accept),
            # The command ends with the server, and there is nothing to type into then.
            resumable=False,
        )
    except ServerRequestRefused as refusal:
        raise Denied(BY_ERROR) from refusal
    if answer.decision == "decline":
        raise Denied(BY_USER)
    if answer.decision == "cancel":
        thread.terminals.abort(turn)
        raise TurnCancelled
