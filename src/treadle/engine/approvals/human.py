"""Approvals that an administrator reserves for a person: one command, one time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from treadle.engine.approvals.permission import ApprovalUnavailable, Denied
from treadle.engine.commands.actions import actions_of
from treadle.engine.errors import TurnCancelled
from treadle.engine.events.server_requests import ServerRequestRefused
from treadle.protocol.approval import (
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
)
from treadle.protocol.server_requests import ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL
from treadle.shell.scripts import display
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.approvals.permission import CommandRequest
    from treadle.engine.state import ThreadState
    from treadle.engine.turn import ActiveTurn

NEVER_AUTOMATIC: Final = (
    "managed command policy requires human approval, but this thread uses automatic review"
)
ONE_TIME: Final = "managed command policy requires a one-time human approval"
DECLINED: Final = "rejected by user"
FAILED: Final = "approval request failed"


async def ask_person(
    thread: ThreadState,
    turn: ActiveTurn,
    request: CommandRequest,
    reason: str | None,
    *,
    suffix: str = "",
) -> None:
    """Ask the clients that present such requests to a person; grants and deadlines do not count.

    Raises:
        Denied: the person declined, or approved more than this one time.
        ApprovalUnavailable: no client presents such requests.
        TurnCancelled: the person cancelled the turn.
    """
    if thread.settings_of(turn).reviewer != "user":
        raise Denied(NEVER_AUTOMATIC)
    params = CommandExecutionRequestApprovalParams(
        item_id=request.call_id,
        started_at_ms=turn.clock(),
        thread_id=turn.thread_id,
        turn_id=turn.id,
        kind="humanCommand",
        approval_id=uuid7(),
        additional_permissions=request.additional,
        available_decisions=["accept", "decline", "cancel"],
        command=display(request.argv),
        command_actions=actions_of(request.argv, request.cwd),
        cwd=request.cwd,
        environment_id="local",
        reason=reason or request.justification,
    )
    try:
        answer = await thread.server_requests.send(
            ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
            params,
            turn=turn,
            key=f"{request.call_id}/human{suffix}",
            call_id=request.call_id,
            flag="waitingOnApproval",
            default=CommandExecutionRequestApprovalResponse("decline"),
        )
    except ServerRequestRefused as refusal:
        raise ApprovalUnavailable(FAILED) from refusal
    if answer.decision == "cancel":
        raise TurnCancelled
    if answer.decision == "decline":
        raise Denied(DECLINED)
    if answer.decision != "accept":
        raise Denied(ONE_TIME)
