"""The handling matrix: what an unattended session answers when the server asks."""

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
"""What becomes of a question to the user: the standing answers, the end of the turn, or a call."""

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
    """Answers each kind of question by the session's policies; `block` ends the turn instead."""

    is_auto: bool
    """Whether approvals are given: the thread was started with the policy `never`."""
    approvals: ApprovalPolicy | None
    """Decides before all else, where it has a decision."""
    questions: Questions
    on_question: OnUserInput | None
    on_elicitation: OnElicitation | None
    block: Callable[[SessionError], None]

    def serve(self, client: AsyncClient) -> None:
        """Answer for this client from now on."""
        client.on_command_approval(self.command)
        client.on_file_change(self.file_change)
        client.on_permissions(self.permissions)
        client.on_user_input(self.user_input)
        client.on_elicitation(self.elicitation)

    async def command(self, ask: CommandApproval) -> CommandDecision:
        """Run it for the whole session, or stop."""
        if self.approvals is not None and self.approvals.command is not None:
            decision: CommandDecision = await self._decided(self.approvals.command, ask, ask.params)
            return decision
        return "acceptForSession" if self.is_auto else self._require_approval(ask.params)

    async def file_change(self, ask: FileChangeApproval) -> FileChangeDecision:
        """Make it, or stop."""
        policy = self.approvals
        if policy is not None and policy.file_change is not None:
            decision: FileChangeDecision = await self._decided(policy.file_change, ask, ask.params)
            return decision
        return "acceptForSession" if self.is_auto else self._require_approval(ask.params)

    async def permissions(self, ask: PermissionsRequestApprovalParams) -> PermissionsDecision:
        """Grant what is asked for, or stop."""
        policy = self.approvals
        if policy is not None and policy.permissions is not None:
            decision: PermissionsDecision = await self._decided(policy.permissions, ask, ask)
            return decision
        return True if self.is_auto else self._require_approval(ask)

    async def user_input(self, ask: ToolRequestUserInputParams) -> UserAnswers:
        """Approve tools where approvals are given, else what the policy for questions says."""
        if self.approvals is not None and self.approvals.user_input is not None:
            answers: UserAnswers = await self._decided(self.approvals.user_input, ask, ask)
            return answers
        questions = ask.questions or []
        if self.is_auto and (approved := _approving(questions)) is not None:
            return approved
        if self.questions == "ask" and self.on_question is not None:
            given: UserAnswers = await self._decided(self.on_question, ask, ask)
            return given
        if self.questions != "answer":
            self._require_input(ask)
        return {question.id: UNAVAILABLE for question in questions}

    async def elicitation(self, ask: McpServerElicitationRequestParams) -> ElicitationDecision:
        """Approve tools where approvals are given; nobody fills in forms."""
        if self.approvals is not None and self.approvals.elicitation is not None:
            decision: ElicitationDecision = await self._decided(
                self.approvals.elicitation, ask, ask
            )
            return decision
        meta = getattr(ask, "meta", None)
        if isinstance(meta, Mapping) and meta.get("codex_approval_kind") is not None:
            return _persisting(meta) if self.is_auto else self._require_approval(ask)
        if self.questions == "ask" and self.on_elicitation is not None:
            given: ElicitationDecision = await self._decided(self.on_elicitation, ask, ask)
            return given
        return False if self.questions == "answer" else self._require_input(ask)

    async def _decided(
        self,
        handler: Callable[..., object | Awaitable[object]],
        ask: object,
        params: msgspec.Struct,
    ) -> JsonValue:
        try:
            return await call(handler, ask)
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
    """Answers that let tools run, if that is all that is asked."""
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
    """Yes, and for the rest of the session where that can be said."""
    offered = meta.get("persist")
    lasts = isinstance(offered, list) and "session" in offered
    chosen = {"persist": "session"} if lasts else None
    return McpServerElicitationRequestResponse("accept", meta=chosen, content={})


def needs_input(method: str, params: JsonValue) -> bool:
    """Whether an older server tells, rather than asks, that a turn waits for somebody."""
    if not method.startswith("turn/"):
        return False
    fields = params if isinstance(params, Mapping) else {}
    return (
        method in _NEEDS_INPUT
        or any(fields.get(name) is True for name in _NEEDS_FIELDS)
        or fields.get("type") in _NEEDS_TYPES
    )
