"""Approvals of commands and file changes, their decisions, and automatic review."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from treadle.protocol.base import (
    AbsolutePathBuf,
    Int64,
    JsonValue,
    LegacyAppPathString,
    OneOf,
    Params,
    SnakeOneOf,
    SnakeValue,
    ThreadId,
    UInt8,
    UInt16,
    Value,
    experimental,
)
from treadle.protocol.item import CommandAction
from treadle.protocol.network import (
    NetworkApprovalContext,
    NetworkApprovalProtocol,
    NetworkPolicyAmendment,
)
from treadle.protocol.permission import AdditionalPermissionProfile, RequestPermissionProfile


class AddFileChange(Value, tag="add", frozen=True):
    """A new file and its content."""

    content: str


class DeleteFileChange(Value, tag="delete", frozen=True):
    """A file to delete and its current content."""

    content: str


class UpdateFileChange(SnakeValue, tag="update", frozen=True):
    """An edit as a unified diff, with the new path if the file moves."""

    unified_diff: str
    move_path: str | None = None


FileChange = AddFileChange | DeleteFileChange | UpdateFileChange


class ApplyPatchApprovalParams(Value, frozen=True):
    """Older form of the request to approve a file change."""

    call_id: str
    conversation_id: ThreadId
    file_changes: dict[str, FileChange]
    grant_root: str | None = None
    reason: str | None = None


class ApprovedExecpolicyAmendment(SnakeValue, frozen=True):
    """Approve, and run commands with the same prefix without approval from now on."""

    proposed_execpolicy_amendment: list[str]


class Denied(Value, frozen=True):
    """Deny, with a reason for the model."""

    rejection: str


class ReviewDecisionNetworkPolicyAmendment(SnakeValue, frozen=True):
    """Store a rule that allows or denies the host from now on."""

    network_policy_amendment: NetworkPolicyAmendment


class ReviewDecisionDetail(SnakeOneOf, frozen=True):
    """A decision that carries data."""

    approved_execpolicy_amendment: ApprovedExecpolicyAmendment | None = None
    network_policy_amendment: ReviewDecisionNetworkPolicyAmendment | None = None
    denied: Denied | None = None


ReviewDecision = (
    Literal[
        "approved",
        "approved_for_session",
        "approved_mcp_policy_amendment",
        "timed_out",
        "abort",
        "denied",
    ]
    | ReviewDecisionDetail
)
"""`denied` lets the turn continue, `abort` ends it."""


class ApplyPatchApprovalResponse(Value, frozen=True):
    """The user's decision about the patch."""

    decision: ReviewDecision


class AcceptWithExecpolicyAmendment(SnakeValue, frozen=True):
    """Accept, and run commands with the same prefix without approval from now on."""

    execpolicy_amendment: list[str]


class ApplyNetworkPolicyAmendment(SnakeValue, frozen=True):
    """Store a rule that allows or denies the host from now on."""

    network_policy_amendment: NetworkPolicyAmendment


class CommandExecutionApprovalDecisionDetail(OneOf, frozen=True):
    """A decision that also changes the rules for later commands."""

    accept_with_execpolicy_amendment: AcceptWithExecpolicyAmendment | None = None
    apply_network_policy_amendment: ApplyNetworkPolicyAmendment | None = None


CommandExecutionApprovalDecision = (
    Literal["accept", "acceptForSession", "decline", "cancel"]
    | CommandExecutionApprovalDecisionDetail
)
"""`decline` lets the turn continue without the command, `cancel` ends the turn."""

CommandExecutionApprovalKind = Literal["command", "writeStdin", "humanCommand"]
"""`humanCommand` requires a decision of a person, for this one time."""


@experimental("additional_permissions", "available_decisions")
class CommandExecutionRequestApprovalParams(Params, frozen=True):
    """Request approval to run a command, reach a host or write input; the turn waits."""

    item_id: str
    started_at_ms: Int64
    thread_id: str
    turn_id: str
    additional_permissions: AdditionalPermissionProfile | None = None
    # Set when one item may need several approvals: subcommands and terminal input.
    approval_id: str | None = None
    available_decisions: list[CommandExecutionApprovalDecision] | None = None
    # Absent when the approval is only about the network.
    command: str | None = None
    command_actions: list[CommandAction] | None = None
    cwd: LegacyAppPathString | None = None
    environment_id: str | None = None
    # A default from a factory is always encoded: clients distinguish the kinds by it.
    kind: CommandExecutionApprovalKind = field(default_factory=lambda: "command")
    network_approval_context: NetworkApprovalContext | None = None
    proposed_execpolicy_amendment: list[str] | None = None
    proposed_network_policy_amendments: list[NetworkPolicyAmendment] | None = None
    reason: str | None = None


class CommandExecutionRequestApprovalResponse(Value, frozen=True):
    """The user's decision about the command."""

    decision: CommandExecutionApprovalDecision


class ListFilesParsedCommand(Value, tag="list_files", frozen=True):
    """A part of a command that lists files."""

    cmd: str
    path: str | None = None


class ReadParsedCommand(Value, tag="read", frozen=True):
    """A part of a command that shows a file."""

    cmd: str
    name: str
    path: str


class SearchParsedCommand(Value, tag="search", frozen=True):
    """A part of a command that searches text or files."""

    cmd: str
    path: str | None = None
    query: str | None = None


class UnknownParsedCommand(Value, tag="unknown", frozen=True):
    """A part of a command whose purpose is not recognised."""

    cmd: str


ParsedCommand = (
    ReadParsedCommand | ListFilesParsedCommand | SearchParsedCommand | UnknownParsedCommand
)


class ExecCommandApprovalParams(Value, frozen=True):
    """Older form of the request to approve a command."""

    call_id: str
    command: list[str]
    conversation_id: ThreadId
    cwd: str
    parsed_cmd: list[ParsedCommand]
    approval_id: str | None = None
    reason: str | None = None


class ExecCommandApprovalResponse(Value, frozen=True):
    """The user's decision about the command."""

    decision: ReviewDecision


FileChangeApprovalDecision = Literal["accept", "acceptForSession", "decline", "cancel"]
"""`decline` lets the turn continue without the edits, `cancel` ends the turn."""


class FileChangeRequestApprovalParams(Value, frozen=True):
    """Request approval for the edits of a `fileChange` item; the turn waits."""

    item_id: str
    started_at_ms: Int64
    thread_id: str
    turn_id: str
    grant_root: str | None = None
    reason: str | None = None


class FileChangeRequestApprovalResponse(Value, frozen=True):
    """The user's decision about the edits."""

    decision: FileChangeApprovalDecision


AutoReviewDecisionSource = Literal["agent"]

GuardianApprovalReviewStatus = Literal["inProgress", "approved", "denied", "timedOut", "aborted"]

GuardianRiskLevel = Literal["low", "medium", "high", "critical"]

GuardianUserAuthorization = Literal["unknown", "low", "medium", "high"]
"""How clearly the user requested the action under review."""


class GuardianApprovalReview(Value, frozen=True):
    """The automatic reviewer's assessment of an action; the shape may still change."""

    status: GuardianApprovalReviewStatus
    rationale: str | None = None
    risk_level: GuardianRiskLevel | None = None
    user_authorization: GuardianUserAuthorization | None = None
    risk_score: UInt8 | None = None


GuardianCommandSource = Literal["shell", "unifiedExec"]


class CommandGuardianApprovalReviewAction(Value, tag="command", frozen=True):
    """A shell command under review."""

    command: str
    cwd: LegacyAppPathString
    source: GuardianCommandSource


class ExecveGuardianApprovalReviewAction(Value, tag="execve", frozen=True):
    """A program under review that a running command starts."""

    argv: list[str]
    cwd: AbsolutePathBuf
    program: str
    source: GuardianCommandSource


class WriteStdinGuardianApprovalReviewAction(Value, tag="writeStdin", frozen=True):
    """Input under review for a command that is already running."""

    approval_id: str
    cwd: LegacyAppPathString
    process_id: str
    stdin: str


class ApplyPatchGuardianApprovalReviewAction(Value, tag="applyPatch", frozen=True):
    """A patch under review, by the files it touches."""

    cwd: LegacyAppPathString
    files: list[LegacyAppPathString]


class NetworkAccessGuardianApprovalReviewAction(Value, tag="networkAccess", frozen=True):
    """A network connection under review; it does not belong to an item."""

    host: str
    port: UInt16
    protocol: NetworkApprovalProtocol
    target: str


class McpToolCallGuardianApprovalReviewAction(Value, tag="mcpToolCall", frozen=True):
    """A call of an MCP tool under review."""

    server: str
    tool_name: str
    connector_id: str | None = None
    connector_name: str | None = None
    tool_title: str | None = None


class RequestPermissionsGuardianApprovalReviewAction(Value, tag="requestPermissions", frozen=True):
    """A request for additional permissions under review."""

    permissions: RequestPermissionProfile
    reason: str | None = None


GuardianApprovalReviewAction = (
    CommandGuardianApprovalReviewAction
    | ExecveGuardianApprovalReviewAction
    | WriteStdinGuardianApprovalReviewAction
    | ApplyPatchGuardianApprovalReviewAction
    | NetworkAccessGuardianApprovalReviewAction
    | McpToolCallGuardianApprovalReviewAction
    | RequestPermissionsGuardianApprovalReviewAction
)


class ItemGuardianApprovalReviewCompletedNotification(Value, frozen=True):
    """The automatic reviewer has decided about an action."""

    action: GuardianApprovalReviewAction
    completed_at_ms: Int64
    decision_source: AutoReviewDecisionSource
    review: GuardianApprovalReview
    review_id: str
    started_at_ms: Int64
    thread_id: str
    turn_id: str
    # Null for network access, which has no item.
    target_item_id: str | None = None


class ItemGuardianApprovalReviewStartedNotification(Value, frozen=True):
    """The automatic reviewer examines an action on the user's behalf."""

    action: GuardianApprovalReviewAction
    review: GuardianApprovalReview
    review_id: str
    started_at_ms: Int64
    thread_id: str
    turn_id: str
    target_item_id: str | None = None


class StrictReviewRequiredNotification(Value, frozen=True):
    """Each further command of the turn is reviewed before it runs."""

    started_at_ms: Int64
    thread_id: str
    turn_id: str


class ThreadApproveGuardianDeniedActionParams(Params, frozen=True):
    """Override the automatic reviewer for an action that it denied."""

    event: JsonValue
    thread_id: str


class ThreadApproveGuardianDeniedActionResponse(Value, frozen=True):
    """The user's approval was delivered to the thread."""
