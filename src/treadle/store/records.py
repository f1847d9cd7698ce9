"""Records: journal entries that no client receives."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

from treadle.protocol.base import GitInfo, JsonValue
from treadle.protocol.collaboration import CollaborationMode
from treadle.protocol.extension import Budget
from treadle.protocol.goal import ThreadGoal
from treadle.protocol.input import UserInput
from treadle.protocol.item import FunctionCallOutputThreadItem
from treadle.protocol.model import Personality, ReasoningEffort, ReasoningSummary
from treadle.protocol.permission import AdditionalPermissionProfile, PermissionGrantScope
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxPolicy
from treadle.protocol.queue import QueuedSubmission
from treadle.protocol.read_state import ThreadReadState
from treadle.protocol.tool import DynamicToolSpec
from treadle.protocol.usage import TokenUsageBreakdown

ModelItem: TypeAlias = dict[str, JsonValue]
"""An item in the form of the Responses API, including fields unknown to us."""


class Record(Struct, frozen=True, tag_field="record", omit_defaults=True):
    """A durable fact that no client receives in this form."""


class HistoryItem(Record, tag="historyItem", frozen=True):
    """One item of the model context."""

    item: ModelItem


class Compacted(Record, tag="compacted", frozen=True):
    """The model context was replaced by a shorter one; `message` is the summary."""

    message: str
    replacement: list[ModelItem]


class TurnContext(Record, tag="turnContext", frozen=True):
    """The settings of a turn, which are also the defaults of the next one."""

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
    # The hosts that commands can reach; null means all. Absent: unknown, or as configured.
    network: JsonValue | UnsetType = UNSET
    # Whether a client chose the permissions, or the folder, of a sub-agent.
    has_own_permissions: bool = False
    has_own_folder: bool = False
    output_schema: JsonValue = None
    budget: Budget | None = None


class SettingsChanged(Record, tag="settingsGiven", frozen=True):
    """Settings changed between turns; no turn has used them and no model has seen them yet."""

    settings: TurnContext


class TurnAdjusted(Record, tag="turnAdjusted", frozen=True):
    """The current overrides of the running turn over the settings of its thread."""

    turn_id: str
    changes: dict[str, JsonValue]


class UsageRecord(Record, tag="usage", frozen=True):
    """The usage of one model response and the thread's new total; one per response id."""

    turn_id: str
    response_id: str
    usage: TokenUsageBreakdown
    total: TokenUsageBreakdown
    context_window: int | None = None


class RolledBack(Record, tag="rolledBack", frozen=True):
    """The last turns were dropped: a number of them, or all from the named one on."""

    num_turns: int | None = None
    before_turn_id: str | None = None


class Named(Record, tag="named", frozen=True):
    """The thread's name changed; null removes it."""

    name: str | None


class MetadataChanged(Record, tag="metadata", frozen=True):
    """The stored git information of the thread was replaced."""

    git_info: GitInfo | None


class ReadStateChanged(Record, tag="readState", frozen=True):
    """The thread was marked as read or unread, or an unread turn ended in it."""

    read_state: ThreadReadState


class GoalChanged(Record, tag="goal", frozen=True):
    """The thread's current goal; null if it has none."""

    goal: ThreadGoal | None


class SubmissionQueued(Record, tag="queued", frozen=True):
    """Input was added to the queue of the thread, or replaced there."""

    submission: QueuedSubmission


class QueueOrder(Record, tag="queueOrder", frozen=True):
    """What is left in the queue of the thread, in this order."""

    ids: list[str]


class ToolsChanged(Record, tag="tools", frozen=True):
    """A client replaced the client tools of the thread."""

    dynamic_tools: list[DynamicToolSpec]


class RequestOpened(Record, tag="askOpened", frozen=True):
    """A server request is open until it is answered; `method` is its method on the wire."""

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
    """A server request was resolved: by which client, when and how; a null answer is a denial."""

    id: str
    by: str
    at_ms: int
    answer: JsonValue = None


class Decided(Record, tag="decided", frozen=True):
    """An action was allowed or denied without a server request: by which rule, and when."""

    call_id: str
    turn_id: str
    action: str
    decision: str
    # "policy", "rule default.rules:3", "session", "reviewer".
    by: str
    at_ms: int


class Granted(Record, tag="granted", frozen=True):
    """The user allowed more than one action: for the turn, or for the session."""

    turn_id: str
    scope: PermissionGrantScope
    # The command's words, its folder, whether it leaves the sandbox, whether it has a terminal, and
    # its extra permissions.
    command: tuple[tuple[str, ...], str, bool, bool, bytes] | None = None
    files: list[str] = []
    permissions: AdditionalPermissionProfile | None = None
    reviews_all: bool = False
    # An MCP server and its tool.
    tool: tuple[str, str] | None = None


class GrantsDropped(Record, tag="grantsDropped", frozen=True):
    """A new session started: earlier grants no longer apply."""


class ClientMessage(Record, tag="clientMessage", frozen=True):
    """An id that a client assigned to its message: same id and digest mean the same turn."""

    client_id: str
    digest: str
    turn_id: str
    kind: str


class InputQueued(Record, tag="input", frozen=True):
    """Input that waits for the turn that it was sent to, or for the next model request."""

    id: str
    # The form for the model.
    items: list[ModelItem]
    turn_id: str | None = None
    # The form for clients; empty if the input is for the model alone.
    content: list[UserInput] = []
    client_id: str | None = None
    output: FunctionCallOutputThreadItem | None = None
    # The number of the next event. The input is synced to disk, the events of the turn are not:
    # after a power failure, numbers that clients have seen must not be used again.
    next_seq: int = 0


class InputConsumed(Record, tag="inputTaken", frozen=True):
    """The input is part of the model context now, and no longer waits."""

    id: str


class CallCompleted(Record, tag="callDone", frozen=True):
    """The output of a call that ended while the model still streamed; the model reads it later."""

    item: ModelItem


class AgentClosed(Record, tag="agentClosed", frozen=True):
    """A sub-agent of the thread was closed, or opened again."""

    id: str
    is_closed: bool


AnyRecord: TypeAlias = (
    HistoryItem
    | Compacted
    | TurnContext
    | SettingsChanged
    | TurnAdjusted
    | UsageRecord
    | RolledBack
    | Named
    | MetadataChanged
    | ReadStateChanged
    | GoalChanged
    | SubmissionQueued
    | QueueOrder
    | ToolsChanged
    | RequestOpened
    | RequestAnswered
    | Decided
    | ClientMessage
    | InputQueued
    | InputConsumed
    | CallCompleted
    | AgentClosed
    | Granted
    | GrantsDropped
)
