"""Records: what a journal keeps besides the events that clients are told."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from treadle.protocol.base import GitInfo, JsonValue
from treadle.protocol.collaboration import CollaborationMode
from treadle.protocol.extension import Budget
from treadle.protocol.goal import ThreadGoal
from treadle.protocol.input import UserInput
from treadle.protocol.item import FunctionCallOutputThreadItem
from treadle.protocol.model import Personality, ReasoningEffort, ReasoningSummary
from treadle.protocol.permission import AdditionalPermissionProfile, PermissionGrantScope
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxPolicy
from treadle.protocol.tool import DynamicToolSpec
from treadle.protocol.usage import TokenUsageBreakdown

ModelItem: TypeAlias = dict[str, JsonValue]
"""An item as the Responses API spells it, kept whole with fields that we do not know."""


class Record(Struct, frozen=True, tag_field="record", omit_defaults=True):
    """Something durable that no client is told in this form."""


class HistoryItem(Record, tag="historyItem", frozen=True):
    """One item of what the model sees."""

    item: ModelItem


class Compacted(Record, tag="compacted", frozen=True):
    """The model's view was replaced by a shorter one; `message` is the summary."""

    message: str
    replacement: list[ModelItem]


class TurnContext(Record, tag="turnContext", frozen=True):
    """What a turn runs with, and what the next one starts from."""

    turn_id: str
    cwd: str
    model: str
    provider: str
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    approvals_reviewer: ApprovalsReviewer = "user"
    collaboration_mode: CollaborationMode | None = None
    personality: Personality | None = None
    service_tier: str | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None
    runtime_workspace_roots: list[str] = []
    disabled_plugin_ids: list[str] = []
    permissions: str | None = None
    output_schema: JsonValue = None
    budget: Budget | None = None


class SettingsGiven(Record, tag="settingsGiven", frozen=True):
    """What a thread was given between turns; no turn has run under it, and no model knows it."""

    settings: TurnContext


class TurnAdjusted(Record, tag="turnAdjusted", frozen=True):
    """What a running turn does otherwise than its thread, as it stands now."""

    turn_id: str
    changes: dict[str, JsonValue]


class UsageRecord(Record, tag="usage", frozen=True):
    """What one model response cost, and the thread's total with it; one per response id."""

    turn_id: str
    response_id: str
    usage: TokenUsageBreakdown
    total: TokenUsageBreakdown
    context_window: int | None = None


class RolledBack(Record, tag="rolledBack", frozen=True):
    """The last turns were dropped: so many, or all from the named one on."""

    num_turns: int | None = None
    before_turn_id: str | None = None


class Named(Record, tag="named", frozen=True):
    """The thread got a title; null takes it away."""

    name: str | None


class MetadataChanged(Record, tag="metadata", frozen=True):
    """The git facts stored with the thread were replaced."""

    git_info: GitInfo | None


class GoalChanged(Record, tag="goal", frozen=True):
    """The thread's goal as it stands now; null if it has none."""

    goal: ThreadGoal | None


class ToolsGiven(Record, tag="tools", frozen=True):
    """A client brought other tools than those that the thread had from its clients."""

    dynamic_tools: list[DynamicToolSpec]


class RequestOpened(Record, tag="askOpened", frozen=True):
    """A question to the client is open until it is answered; `method` asks it on the wire."""

    id: str
    kind: str
    method: str
    params: JsonValue
    turn_id: str | None = None
    call_id: str | None = None
    opened_at_ms: int | None = None
    deadline_ms: int | None = None
    default: JsonValue = None


class RequestAnswered(Record, tag="askAnswered", frozen=True):
    """A question is settled: who answered, when, and what; a null answer is a refusal."""

    id: str
    by: str
    at_ms: int
    answer: JsonValue = None


class Decided(Record, tag="decided", frozen=True):
    """An action was allowed or refused without a question: by which rule, and when."""

    call_id: str
    turn_id: str
    action: str
    decision: str
    # "policy", "rule default.rules:3", "session", "reviewer".
    by: str
    at_ms: int


class Granted(Record, tag="granted", frozen=True):
    """The user allowed something for more than once: for the turn, or for the session."""

    turn_id: str
    scope: PermissionGrantScope
    # Its words, its folder, whether it leaves the sandbox, and the permissions that it wants.
    command: tuple[tuple[str, ...], str, bool, bytes] | None = None
    files: list[str] = []
    permissions: AdditionalPermissionProfile | None = None
    reviews_all: bool = False
    # An MCP server and its tool.
    tool: tuple[str, str] | None = None


class GrantsDropped(Record, tag="grantsDropped", frozen=True):
    """Another session has begun: nothing that was granted before holds any more."""


class ClientMessage(Record, tag="clientMessage", frozen=True):
    """An id that a client gave its message: the same id and digest mean the same turn."""

    client_id: str
    digest: str
    turn_id: str
    kind: str


class InputGiven(Record, tag="input", frozen=True):
    """Input that waits to be taken up: by the turn that it was given to, or by the next request."""

    id: str
    # As the model is to read it.
    items: list[ModelItem]
    turn_id: str | None = None
    # As clients are to see it; empty if it is for the model alone.
    content: list[UserInput] = []
    client_id: str | None = None
    output: FunctionCallOutputThreadItem | None = None
    # The number of the next event. It is on the disk with the input, the events of the turn are
    # not: after a power cut their numbers, which clients have seen, must not come again.
    next_seq: int = 0


class InputTaken(Record, tag="inputTaken", frozen=True):
    """Input is in the model's view now, and waits no more."""

    id: str


class CallDone(Record, tag="callDone", frozen=True):
    """The output of a call that has ended while the model still spoke: it reads it afterwards."""

    item: ModelItem


class AgentClosed(Record, tag="agentClosed", frozen=True):
    """An agent that works for the thread was closed, or opened again."""

    id: str
    is_closed: bool


AnyRecord: TypeAlias = (
    HistoryItem
    | Compacted
    | TurnContext
    | SettingsGiven
    | TurnAdjusted
    | UsageRecord
    | RolledBack
    | Named
    | MetadataChanged
    | GoalChanged
    | ToolsGiven
    | RequestOpened
    | RequestAnswered
    | Decided
    | ClientMessage
    | InputGiven
    | InputTaken
    | CallDone
    | AgentClosed
    | Granted
    | GrantsDropped
)
