"""Conversion of a handler's result to the protocol's response, in its newer and older forms."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from treadle.protocol.approval import (
    AddFileChange,
    ApplyPatchApprovalResponse,
    ApprovedExecpolicyAmendment,
    CommandExecutionApprovalDecision,
    CommandExecutionApprovalDecisionDetail,
    CommandExecutionRequestApprovalResponse,
    DeleteFileChange,
    ExecCommandApprovalResponse,
    FileChange,
    FileChangeRequestApprovalResponse,
    ListFilesParsedCommand,
    ParsedCommand,
    ReadParsedCommand,
    ReviewDecision,
    ReviewDecisionDetail,
    SearchParsedCommand,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.elicitation import McpServerElicitationRequestResponse
from treadle.protocol.item import (
    AddPatchChangeKind,
    CommandAction,
    DeletePatchChangeKind,
    FileUpdateChange,
    ListFilesCommandAction,
    PatchChangeKind,
    ReadCommandAction,
    SearchCommandAction,
    UnknownCommandAction,
    UpdatePatchChangeKind,
)
from treadle.protocol.permission import (
    GrantedPermissionProfile,
    PermissionsRequestApprovalParams,
    PermissionsRequestApprovalResponse,
)
from treadle.protocol.tool import (
    ToolRequestUserInputAnswer,
    ToolRequestUserInputParams,
    ToolRequestUserInputResponse,
)

_DECISIONS: Final = ("accept", "acceptForSession", "decline", "cancel")
_OLD_DECISIONS: Final[dict[object, ReviewDecision]] = {
    "accept": "approved",
    "acceptForSession": "approved_for_session",
    "decline": "denied",
    "cancel": "abort",
}


def _decision(outcome: object) -> JsonValue:
    if isinstance(outcome, CommandExecutionApprovalDecisionDetail) or outcome in _DECISIONS:
        return outcome
    return "accept" if outcome is True else "decline"


def on_command(outcome: object, _params: object) -> CommandExecutionRequestApprovalResponse:
    """Convert a decision about a command; every invalid value declines."""
    if isinstance(outcome, CommandExecutionRequestApprovalResponse):
        return outcome
    return CommandExecutionRequestApprovalResponse(_decision(outcome))


def on_file_change(outcome: object, _params: object) -> FileChangeRequestApprovalResponse:
    """Convert a decision about file changes."""
    if isinstance(outcome, FileChangeRequestApprovalResponse):
        return outcome
    decision = _decision(outcome)
    return FileChangeRequestApprovalResponse(decision if decision in _DECISIONS else "decline")


def on_old_command(outcome: object, _params: object) -> ExecCommandApprovalResponse:
    """Convert a decision about a command to the older form."""
    return ExecCommandApprovalResponse(_old(on_command(outcome, None).decision))


def on_old_patch(outcome: object, _params: object) -> ApplyPatchApprovalResponse:
    """Convert a decision about file changes to the older form."""
    return ApplyPatchApprovalResponse(_old(on_file_change(outcome, None).decision))


def _old(decision: CommandExecutionApprovalDecision) -> ReviewDecision:
    if isinstance(decision, CommandExecutionApprovalDecisionDetail):
        amendment = decision.accept_with_execpolicy_amendment
        if amendment is None:
            return "approved"
        approved = ApprovedExecpolicyAmendment(amendment.execpolicy_amendment)
        return ReviewDecisionDetail(approved_execpolicy_amendment=approved)
    return _OLD_DECISIONS[decision]


def on_permissions(
    outcome: object, params: PermissionsRequestApprovalParams | None
) -> PermissionsRequestApprovalResponse:
    """Convert a decision about permissions: all that was requested, a part of it, or nothing."""
    if isinstance(outcome, PermissionsRequestApprovalResponse):
        return outcome
    granted = GrantedPermissionProfile()
    if isinstance(outcome, GrantedPermissionProfile):
        granted = outcome
    elif outcome is True and params is not None:
        profile = params.permissions
        granted = GrantedPermissionProfile(file_system=profile.file_system, network=profile.network)
    return PermissionsRequestApprovalResponse(granted)


def on_user_input(
    outcome: object, params: ToolRequestUserInputParams | None
) -> ToolRequestUserInputResponse:
    """Convert the user's answers; a single string answers the first question."""
    if isinstance(outcome, ToolRequestUserInputResponse):
        return outcome
    if isinstance(outcome, str) and params is not None and params.questions:
        outcome = {params.questions[0].id: outcome}
    answers = outcome if isinstance(outcome, Mapping) else {}
    return ToolRequestUserInputResponse(
        {str(id_): ToolRequestUserInputAnswer(_texts(answer)) for id_, answer in answers.items()}
    )


def _texts(answer: object) -> list[str]:
    if isinstance(answer, str) or not isinstance(answer, Sequence):
        return [str(answer)]
    return [str(part) for part in answer]


def on_elicitation(outcome: object, _params: object) -> McpServerElicitationRequestResponse:
    """Convert the answer to an elicitation: content, acceptance, refusal or cancellation."""
    match outcome:
        case McpServerElicitationRequestResponse():
            return outcome
        case Mapping():
            return McpServerElicitationRequestResponse("accept", content=dict(outcome))
        case True | "accept":
            return McpServerElicitationRequestResponse("accept", content={})
        case "cancel":
            return McpServerElicitationRequestResponse("cancel")
        case _:
            return McpServerElicitationRequestResponse("decline")


# -- older requests in the newer form


def join_command(command: Sequence[str]) -> str:
    """Return a command as one shell command line."""
    return shlex.join(command)


def action_of(part: ParsedCommand) -> CommandAction:
    """Convert a part of a command to the newer form."""
    match part:
        case ReadParsedCommand():
            return ReadCommandAction(command=part.cmd, name=part.name, path=part.path)
        case ListFilesParsedCommand():
            return ListFilesCommandAction(command=part.cmd, path=part.path)
        case SearchParsedCommand():
            return SearchCommandAction(command=part.cmd, path=part.path, query=part.query)
        case _:
            return UnknownCommandAction(command=part.cmd)


def edits_of(changes: Mapping[str, FileChange]) -> list[FileUpdateChange]:
    """Convert the file changes of a patch to the newer form."""
    return [_edit(path, change) for path, change in changes.items()]


def _edit(path: str, change: FileChange) -> FileUpdateChange:
    kind: PatchChangeKind
    if isinstance(change, AddFileChange | DeleteFileChange):
        is_new = isinstance(change, AddFileChange)
        kind = AddPatchChangeKind() if is_new else DeletePatchChangeKind()
        return FileUpdateChange(diff=change.content, kind=kind, path=path)
    kind = UpdatePatchChangeKind(move_path=change.move_path)
    return FileUpdateChange(diff=change.unified_diff, kind=kind, path=path)
