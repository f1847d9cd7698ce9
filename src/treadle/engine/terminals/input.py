"""Requests approval for input to a running command that has other permissions than new ones."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treadle.engine.approvals.approvals import BY_ERROR, BY_USER
from treadle.engine.approvals.judgement import Forbidden, judge_input
from treadle.engine.approvals.permission import Denied
from treadle.engine.errors import TurnCancelled
from treadle.engine.events.server_requests import ServerRequestRefused
from treadle.engine.hooks.uses import ToolUseRequest
from treadle.engine.reviewed import details_of_input
from treadle.engine.terminals.run import CommandRun
from treadle.protocol.approval import (
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    WriteStdinGuardianApprovalReviewAction,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.item import UnknownCommandAction
from treadle.protocol.server_requests import ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

_FREE: Final = (
    "Send input to a running command. It runs outside the sandbox; its working folder and its "
    "state may have changed since it started."
)
_OTHER: Final = (
    "Send input to a running command. Its permissions differ from the current sandbox; its "
    "working folder and its state may have changed since it started."
)


class InputRequest(Struct, frozen=True):
    """Input that the model wants to send to a command, and the call that sends it."""

    run: CommandRun
    call_id: str
    session: int
    chars: str

    @property
    def command(self) -> str:
        """The request as a command line, which clients show."""
        return shlex.join(["write_stdin", "--session-id", str(self.session), self.chars])


async def approve_input(thread: LoadedThread, turn: ActiveTurn, request: InputRequest) -> None:
    """Request approval of input for a command with other permissions than a new command has.

    Raises:
        Denied: the input may not be sent.
        TurnCancelled: the user cancelled the turn.
    """
    now, then = thread.approvals.confinement(turn), request.run.confinement
    if (then == now or now.is_unrestricted) and not turn.reviews_all:
        return
    reason = _FREE if then.is_unrestricted else _OTHER
    item, settings = request.run.item, thread.settings_of(turn)
    action = WriteStdinGuardianApprovalReviewAction(
        request.call_id, item.cwd, str(request.session), request.chars
    )
    judgement = judge_input(settings.approval_policy, reason)
    if isinstance(judgement, Forbidden) and not turn.reviews_all:
        raise Denied(judgement.reason)
    asked: JsonValue = {"session_id": request.session, "chars": request.chars}
    use = ToolUseRequest("write_stdin", asked)
    if await thread.approvals.hooks_allow(turn, request.call_id, use):
        return
    details = details_of_input(item, then)
    if not await thread.approvals.guardian_allows(
        turn, item.id, action, reason, None, details=details
    ):
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
        answer = await thread.server_requests.send(
            ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
            params,
            turn=turn,
            key=request.call_id,
            flag="waitingOnApproval",
            default=thread.approvals.on_deadline(accept),
            # The command ends with the server process.
            resumable=False,
        )
    except ServerRequestRefused as refusal:
        raise Denied(BY_ERROR) from refusal
    if answer.decision == "decline":
        raise Denied(BY_USER)
    if answer.decision == "cancel":
        thread.terminals.abort(turn)
        raise TurnCancelled
