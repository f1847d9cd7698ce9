"""The answers of an unattended session to server requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias

import msgspec

from treadle.client._runtime.callbacks import call
from treadle.client.approvals import (
    ApprovalPolicy,
    CannotDecide,
    CommandApproval,
    CommandDecision,
    ElicitationDecision,
    FileChangeApproval,
    FileChangeDecision,
    OnElicitation,
    OnUserInput,
    PermissionsDecision,
    UserAnswers,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.elicitation import (
    McpServerElicitationRequestParams,
    McpServerElicitationRequestResponse,
)
from treadle.protocol.permission import PermissionsRequestApprovalParams
from treadle.protocol.tool import ToolRequestUserInputParams, ToolRequestUserInputQuestion
from treadle.unattended.errors import SessionApprovalRequired, SessionError, TurnInputRequired

if TYPE_CHECKING:
    from treadle.client.async_client import AsyncClient

Questions: TypeAlias = Literal["answer", "block", "ask"]
"""How to handle a question to the user: canned answer, fail the turn, or call the handler."""

UNAVAILABLE: Final = "This is a non-interactive session. Operator input is unavailable."
TOOL_APPROVAL: Final = "mcp_tool_call_approval_"
_BEST: Final = ("Approve this Session", "Approve Once")
_GOOD: Final = ("approve", "allow")
_NEEDS_INPUT: Final = frozenset(
    {
        "turn/input_required",
        "turn/needs_input",
        "turn/need_input",
        "turn/request_input",
        "turn/request_response",
        "turn/provide_input",
        "turn/approval_required",
    }
)
_NEEDS_FIELDS: Final = ("requiresInput", "needsInput", "input_required", "inputRequired")
_NEEDS_TYPES: Final = ("input_required", "needs_input")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers each kind of server request by the session's policies; `block` ends the turn."""

    is_auto: bool
    """Whether to accept approval requests: the thread has the approval policy `never`."""
    approvals: ApprovalPolicy | None
    """Decides first, where it has a decision."""
    questions: Questions
    on_question: OnUserInput | None
    on_elicitation: OnElicitation | None
    block: Callable[[SessionError], None]

    def serve(self, client: AsyncClient) -> None:
        """Register the handlers with a client."""
        client.on_command_approval(self.command)
        client.on_file_change(self.file_change)
        client.on_permissions(self.permissions)
        client.on_user_input(self.user_input)
        client.on_elicitation(self.elicitation)

    async def command(self, request: CommandApproval) -> CommandDecision:
        """Accept the command for the session, or end the turn."""
        if self.approvals is not None and self.approvals.command is not None:
            decision: CommandDecision = await self._decide(
                self.approvals.command, request, request.params
            )
            return decision
        return "acceptForSession" if self.is_auto else self._require_approval(request.params)

    async def file_change(self, request: FileChangeApproval) -> FileChangeDecision:
        """Accept the change for the session, or end the turn."""
        policy = self.approvals
        if policy is not None and policy.file_change is not None:
            decision: FileChangeDecision = await self._decide(
                policy.file_change, request, request.params
            )
            return decision
        return "acceptForSession" if self.is_auto else self._require_approval(request.params)

    async def permissions(self, request: PermissionsRequestApprovalParams) -> PermissionsDecision:
        """Grant the requested permissions, or end the turn."""
        policy = self.approvals
        if policy is not None and policy.permissions is not None:
            decision: PermissionsDecision = await self._decide(policy.permissions, request, request)
            return decision
        return True if self.is_auto else self._require_approval(request)

    async def user_input(self, request: ToolRequestUserInputParams) -> UserAnswers:
        """Approve tools if approvals are automatic, otherwise apply the policy for questions."""
        if self.approvals is not None and self.approvals.user_input is not None:
            answers: UserAnswers = await self._decide(self.approvals.user_input, request, request)
            return answers
        questions = request.questions or []
        if self.is_auto and (approved := _approving(questions)) is not None:
            return approved
        if self.questions == "ask" and self.on_question is not None:
            reply: UserAnswers = await self._decide(self.on_question, request, request)
            return reply
        if self.questions != "answer":
            self._require_input(request)
        return {question.id: UNAVAILABLE for question in questions}

    async def elicitation(self, request: McpServerElicitationRequestParams) -> ElicitationDecision:
        """Approve tools if approvals are automatic; forms are never filled in."""
        if self.approvals is not None and self.approvals.elicitation is not None:
            decision: ElicitationDecision = await self._decide(
                self.approvals.elicitation, request, request
            )
            return decision
        meta = getattr(request, "meta", None)
        if isinstance(meta, Mapping) and meta.get("codex_approval_kind") is not None:
            return _persisting(meta) if self.is_auto else self._require_approval(request)
        if self.questions == "ask" and self.on_elicitation is not None:
            reply: ElicitationDecision = await self._decide(self.on_elicitation, request, request)
            return reply
        return False if self.questions == "answer" else self._require_input(request)

    async def _decide(
        self,
        handler: Callable[..., object | Awaitable[object]],
        request: object,
        params: msgspec.Struct,
    ) -> JsonValue:
        try:
            return await call(handler, request)
        except CannotDecide:
            kind = ToolRequestUserInputParams | McpServerElicitationRequestParams
            if isinstance(params, kind):
                self._require_input(params)
            self._require_approval(params)

    def _require_approval(self, params: object) -> NoReturn:
        self.block(SessionApprovalRequired(msgspec.to_builtins(params)))
        raise CannotDecide

    def _require_input(self, params: object) -> NoReturn:
        self.block(TurnInputRequired(msgspec.to_builtins(params)))
        raise CannotDecide


def _approving(questions: Sequence[ToolRequestUserInputQuestion]) -> dict[str, str] | None:
    """Return answers that approve tools, if every question asks for that."""
    answers: dict[str, str] = {}
    for question in questions:
        label = _approval(question)
        if label is None or not str(question.id).startswith(TOOL_APPROVAL):
            return None
        answers[question.id] = label
    return answers or None


def _approval(question: ToolRequestUserInputQuestion) -> str | None:
    labels = [option.label for option in question.options or ()]
    for best in _BEST:
        if best in labels:
            return best
    return next((label for label in labels if label.strip().lower().startswith(_GOOD)), None)


def _persisting(meta: Mapping[str, JsonValue]) -> McpServerElicitationRequestResponse:
    """Return an acceptance, for the rest of the session where the request offers it."""
    offered = meta.get("persist")
    lasts = isinstance(offered, list) and "session" in offered
    chosen = {"persist": "session"} if lasts else None
    return McpServerElicitationRequestResponse("accept", meta=chosen, content={})


def needs_input(method: str, params: JsonValue) -> bool:
    """Return whether an older server notifies that a turn waits for user input."""
    if not method.startswith("turn/"):
        return False
    fields = params if isinstance(params, Mapping) else {}
    return (
        method in _NEEDS_INPUT
        or any(fields.get(name) is True for name in _NEEDS_FIELDS)
        or fields.get("type") in _NEEDS_TYPES
    )
