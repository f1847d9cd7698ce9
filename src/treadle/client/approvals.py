"""Questions of the server that somebody must decide, and ready-made policies for deciding them.

A handler gets one of these questions and gives its decision: `True` or `False`, one of the
protocol's own words, or the protocol's response. `CannotDecide` ends the turn instead.
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
    """Raised by a handler when nobody may decide: the turn ends with `ApprovalRequired`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandApproval:
    """May a command run?"""

    thread_id: str
    turn_id: str
    item_id: str
    command: str | None
    cwd: str | None
    reason: str | None
    actions: Sequence[CommandAction]
    """What the parts of the command do, as far as the server understands them."""
    params: CommandExecutionRequestApprovalParams | ExecCommandApprovalParams
    """The question as it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChangeApproval:
    """May files be changed?"""

    thread_id: str
    turn_id: str
    item_id: str
    changes: Sequence[FileUpdateChange]
    reason: str | None
    grant_root: str | None
    params: FileChangeRequestApprovalParams | ApplyPatchApprovalParams
    """The question as it came."""


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
    """One decision for each kind of question; a kind without one is answered with no."""

    command: OnCommand | None = None
    file_change: OnFileChange | None = None
    permissions: OnPermissions | None = None
    user_input: OnUserInput | None = None
    elicitation: OnElicitation | None = None


def _no(_ask: object) -> bool:
    return False


def _yes(_ask: object) -> bool:
    return True


def _refuse_to_decide(_ask: object) -> NoReturn:
    raise CannotDecide


def is_safe(ask: CommandApproval) -> bool:
    """Whether a command only reads, lists or searches, as far as anyone can tell from its words."""
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


deny_all: Final = ApprovalPolicy(_no, _no, _no, None, _no)
"""Nothing that has to be asked for is done; the turn goes on without it."""

approve_all: Final = ApprovalPolicy(_yes, _yes, _yes, None, _yes)
"""Everything is done. Only for a machine that may be lost."""

approve_safe: Final = ApprovalPolicy(is_safe, _no, _no, None, _no)
"""Commands that only read are run; nothing else is.

Their words are judged. No use of git is approved: a repository's settings can name programs.
Treadle's server runs such a command without start-up files, and with a `PATH` that leads to nothing
that other commands could have changed. On another server, `ls` may lead to a program that a command
has planted in a folder of `PATH`; the client cannot know that.
"""

fail_on_ask: Final = ApprovalPolicy(
    _refuse_to_decide, _refuse_to_decide, _refuse_to_decide, _refuse_to_decide, _refuse_to_decide
)
"""The first question ends the turn with `ApprovalRequired` or `InputRequired`."""
