"""Approvals in their older form, for clients that request it in the handshake.

Such clients set `capabilities.extensions.legacyApprovals`. They receive `execCommandApproval` and
`applyPatchApproval`, and their answers are converted to the current form.
"""

from __future__ import annotations

import shlex
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.protocol.approval import (
    AcceptWithExecpolicyAmendment,
    AddFileChange,
    ApplyNetworkPolicyAmendment,
    ApplyPatchApprovalParams,
    ApplyPatchApprovalResponse,
    CommandExecutionApprovalDecision,
    CommandExecutionApprovalDecisionDetail,
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    DeleteFileChange,
    ExecCommandApprovalParams,
    ExecCommandApprovalResponse,
    FileChange,
    FileChangeApprovalDecision,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
    ListFilesParsedCommand,
    ParsedCommand,
    ReadParsedCommand,
    ReviewDecision,
    ReviewDecisionDetail,
    SearchParsedCommand,
    UnknownParsedCommand,
    UpdateFileChange,
)
from treadle.protocol.item import (
    AddPatchChangeKind,
    CommandAction,
    DeletePatchChangeKind,
    FileChangeThreadItem,
    FileUpdateChange,
    ListFilesCommandAction,
    ReadCommandAction,
    SearchCommandAction,
)
from treadle.protocol.server_requests import APPLY_PATCH_APPROVAL, EXEC_COMMAND_APPROVAL

if TYPE_CHECKING:
    from treadle.connection.connection import Connection
    from treadle.engine.events.log import OpenedRequest
    from treadle.engine.thread import LoadedThread
    from treadle.server.session import ClientSession

_DECISIONS: Final[dict[str, FileChangeApprovalDecision]] = {
    "approved": "accept",
    "approved_for_session": "acceptForSession",
    "approved_mcp_policy_amendment": "accept",
    "denied": "decline",
    "timed_out": "decline",
    "abort": "cancel",
}


def send_legacy(
    connection: Connection[ClientSession], thread: LoadedThread, request: OpenedRequest
) -> Coroutine[None, None, msgspec.Struct] | None:
    """Send an approval in its older form; return `None` if the request has none.

    Raises:
        ConnectionLost: the client closed the connection.
    """
    match request.params:
        case CommandExecutionRequestApprovalParams(command=str()) as params:
            return _command(connection, params, request.request_id)
        case FileChangeRequestApprovalParams() as params:
            return _patch(connection, thread, params, request.request_id)
        case _:
            return None


async def _answer_command(
    answer: Coroutine[None, None, ExecCommandApprovalResponse],
) -> CommandExecutionRequestApprovalResponse:
    return CommandExecutionRequestApprovalResponse(_command_decision((await answer).decision))


async def _answer_patch(
    answer: Coroutine[None, None, ApplyPatchApprovalResponse],
) -> FileChangeRequestApprovalResponse:
    decision = (await answer).decision
    if isinstance(decision, ReviewDecisionDetail):
        return FileChangeRequestApprovalResponse("decline")
    return FileChangeRequestApprovalResponse(_DECISIONS[decision])


def _command(
    connection: Connection[ClientSession],
    params: CommandExecutionRequestApprovalParams,
    number: int,
) -> Coroutine[None, None, msgspec.Struct]:
    older = ExecCommandApprovalParams(
        call_id=params.item_id,
        command=shlex.split(params.command or ""),
        conversation_id=params.thread_id,
        cwd=params.cwd or "",
        parsed_cmd=[_parsed(action) for action in params.command_actions or ()],
        approval_id=params.approval_id,
        reason=params.reason,
    )
    return _answer_command(connection.begin_request(EXEC_COMMAND_APPROVAL, older, id_=number))


def _patch(
    connection: Connection[ClientSession],
    thread: LoadedThread,
    params: FileChangeRequestApprovalParams,
    number: int,
) -> Coroutine[None, None, msgspec.Struct]:
    turn = thread.turn
    open_item = turn.open_items.get(params.item_id) if turn is not None else None
    item = open_item.current() if open_item is not None else None
    changes = item.changes if isinstance(item, FileChangeThreadItem) else []
    older = ApplyPatchApprovalParams(
        call_id=params.item_id,
        conversation_id=params.thread_id,
        file_changes={change.path: _change(change) for change in changes},
        grant_root=params.grant_root,
        reason=params.reason,
    )
    return _answer_patch(connection.begin_request(APPLY_PATCH_APPROVAL, older, id_=number))


def _command_decision(decision: ReviewDecision) -> CommandExecutionApprovalDecision:
    if not isinstance(decision, ReviewDecisionDetail):
        return _DECISIONS[decision]
    commands, network = decision.approved_execpolicy_amendment, decision.network_policy_amendment
    if commands is not None:
        amendment = AcceptWithExecpolicyAmendment(commands.proposed_execpolicy_amendment)
        return CommandExecutionApprovalDecisionDetail(accept_with_execpolicy_amendment=amendment)
    if network is not None:
        rule = ApplyNetworkPolicyAmendment(network.network_policy_amendment)
        return CommandExecutionApprovalDecisionDetail(apply_network_policy_amendment=rule)
    return "decline"


def _change(change: FileUpdateChange) -> FileChange:
    match change.kind:
        case AddPatchChangeKind():
            return AddFileChange(change.diff)
        case DeletePatchChangeKind():
            return DeleteFileChange(change.diff)
        case kind:
            return UpdateFileChange(change.diff, kind.move_path)


def _parsed(action: CommandAction) -> ParsedCommand:
    match action:
        case ReadCommandAction():
            return ReadParsedCommand(action.command, action.name, action.path)
        case ListFilesCommandAction():
            return ListFilesParsedCommand(action.command, action.path)
        case SearchCommandAction():
            return SearchParsedCommand(action.command, action.path, action.query)
        case _:
            return UnknownParsedCommand(action.command)
