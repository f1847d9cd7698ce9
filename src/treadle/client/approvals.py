"""Requests for approval, and ready-made policies that decide them.

A handler receives one request and returns its decision: `True` or `False`, one of the protocol's
decisions, or the protocol's response. Raising `CannotDecide` ends the turn instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from treadle.client._runtime.safety import only_reads
from treadle.protocol.approval import (
    ApplyPatchApprovalParams,
    CommandExecutionApprovalDecision,
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    ExecCommandApprovalParams,
    FileChangeApprovalDecision,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.elicitation import (
    McpServerElicitationRequestParams,
    McpServerElicitationRequestResponse,
)
from treadle.protocol.item import CommandAction, FileUpdateChange, UnknownCommandAction
from treadle.protocol.permission import (
    GrantedPermissionProfile,
    PermissionsRequestApprovalParams,
    PermissionsRequestApprovalResponse,
)
from treadle.protocol.tool import ToolRequestUserInputParams, ToolRequestUserInputResponse


class CannotDecide(Exception):
    """Raised by a handler to end the turn with `ApprovalRequired` or `InputRequired`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandApproval:
    """A request to run a command."""

    thread_id: str
    turn_id: str
    item_id: str
    command: str | None
    cwd: str | None
    reason: str | None
    actions: Sequence[CommandAction]
    """The parts of the command as the server classifies them."""
    params: CommandExecutionRequestApprovalParams | ExecCommandApprovalParams
    """The request as the server sent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChangeApproval:
    """A request to change files."""

    thread_id: str
    turn_id: str
    item_id: str
    changes: Sequence[FileUpdateChange]
    reason: str | None
    grant_root: str | None
    params: FileChangeRequestApprovalParams | ApplyPatchApprovalParams
    """The request as the server sent it."""


CommandDecision: TypeAlias = (
    bool | CommandExecutionApprovalDecision | CommandExecutionRequestApprovalResponse | None
)
FileChangeDecision: TypeAlias = (
    bool | FileChangeApprovalDecision | FileChangeRequestApprovalResponse | None
)
PermissionsDecision: TypeAlias = (
    bool | GrantedPermissionProfile | PermissionsRequestApprovalResponse | None
)
UserAnswers: TypeAlias = (
    str | Mapping[str, str | Sequence[str]] | ToolRequestUserInputResponse | None
)
ElicitationDecision: TypeAlias = (
    bool | str | Mapping[str, JsonValue] | McpServerElicitationRequestResponse | None
)

OnCommand: TypeAlias = Callable[[CommandApproval], CommandDecision | Awaitable[CommandDecision]]
OnFileChange: TypeAlias = Callable[
    [FileChangeApproval], FileChangeDecision | Awaitable[FileChangeDecision]
]
OnPermissions: TypeAlias = Callable[
    [PermissionsRequestApprovalParams], PermissionsDecision | Awaitable[PermissionsDecision]
]
OnUserInput: TypeAlias = Callable[
    [ToolRequestUserInputParams], UserAnswers | Awaitable[UserAnswers]
]
OnElicitation: TypeAlias = Callable[
    [McpServerElicitationRequestParams], ElicitationDecision | Awaitable[ElicitationDecision]
]


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """One handler for each kind of server request; a kind without a handler is declined."""

    command: OnCommand | None = None
    file_change: OnFileChange | None = None
    permissions: OnPermissions | None = None
    user_input: OnUserInput | None = None
    elicitation: OnElicitation | None = None


def _decline(_ask: object) -> bool:
    return False


def _accept(_ask: object) -> bool:
    return True


def _refuse_to_decide(_ask: object) -> NoReturn:
    raise CannotDecide


def is_safe(ask: CommandApproval) -> bool:
    """Return whether a command only reads, lists or searches, judged by its text."""
    params = ask.params
    if isinstance(params, CommandExecutionRequestApprovalParams) and (
        params.kind != "command"
        or params.network_approval_context is not None
        or params.additional_permissions is not None
    ):
        return False
    actions = ask.actions
    if not actions or any(isinstance(action, UnknownCommandAction) for action in actions):
        return False
    return all(only_reads(getattr(action, "command", None)) for action in actions) and (
        only_reads(ask.command)
    )


deny_all: Final = ApprovalPolicy(_decline, _decline, _decline, None, _decline)
"""Decline every request; the turn continues without the action."""

approve_all: Final = ApprovalPolicy(_accept, _accept, _accept, None, _accept)
"""Accept every request. Use it only on a machine that you can afford to lose."""

approve_safe: Final = ApprovalPolicy(is_safe, _decline, _decline, None, _decline)
"""Accept commands that only read; decline everything else.

The decision depends on the text of the command. Git is never accepted, because a repository's
settings can name programs. Treadle's server runs an accepted command without start-up files and
with a `PATH` in which other commands cannot have changed anything. On another server, `ls` may run
a program that a command has planted in a folder of `PATH`; the client cannot detect that.
"""

fail_on_ask: Final = ApprovalPolicy(
    _refuse_to_decide, _refuse_to_decide, _refuse_to_decide, _refuse_to_decide, _refuse_to_decide
)
"""End the turn with `ApprovalRequired` or `InputRequired` at the first request."""
