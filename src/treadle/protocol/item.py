"""Items: what turns are made of."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import (
    AbsolutePathBuf,
    Int32,
    Int64,
    JsonValue,
    LegacyAppPathString,
    SnakeValue,
    UInt64,
    Value,
)
from treadle.protocol.hook import HookPromptFragment
from treadle.protocol.input import UserInput
from treadle.protocol.mcp import (
    McpAppUi,
    McpToolCallAppContext,
    McpToolCallError,
    McpToolCallResult,
    McpToolCallStatus,
)
from treadle.protocol.memory import MemoryCitation
from treadle.protocol.model import ReasoningEffort
from treadle.protocol.response_item import FunctionCallOutputBody, MessagePhase
from treadle.protocol.tool import (
    AsyncUserInputQuestion,
    DynamicToolCallOutputContentItem,
    DynamicToolCallStatus,
)
from treadle.protocol.web_search import WebSearchAction

AgentMessageDelivery = Literal["async"]

CollabAgentStatus = Literal[
    "pendingInit", "running", "interrupted", "completed", "errored", "shutdown", "notFound"
]


class CollabAgentState(Value, frozen=True):
    """How another agent is doing, and its last word."""

    status: CollabAgentStatus
    message: str | None = None


CollabAgentTool = Literal[
    "spawnAgent",
    "sendInput",
    "resumeAgent",
    "wait",
    "closeAgent",
    "sendMessage",
    "followupTask",
    "interruptAgent",
    "listAgents",
]

CollabAgentToolCallStatus = Literal["inProgress", "completed", "failed", "interrupted"]


class ReadCommandAction(Value, tag="read", frozen=True):
    """A part of a command that shows a file."""

    command: str
    name: str
    path: LegacyAppPathString


class ListFilesCommandAction(Value, tag="listFiles", frozen=True):
    """A part of a command that lists files."""

    command: str
    path: str | None = None


class SearchCommandAction(Value, tag="search", frozen=True):
    """A part of a command that searches text or files."""

    command: str
    path: str | None = None
    query: str | None = None


class UnknownCommandAction(Value, tag="unknown", frozen=True):
    """A part of a command whose purpose is not recognised."""

    command: str


CommandAction = (
    ReadCommandAction | ListFilesCommandAction | SearchCommandAction | UnknownCommandAction
)

CommandExecutionSource = Literal[
    "agent", "userShell", "unifiedExecStartup", "unifiedExecInteraction"
]

CommandExecutionStatus = Literal["inProgress", "completed", "failed", "declined"]


class AddPatchChangeKind(Value, tag="add", frozen=True):
    """The file is new."""


class DeletePatchChangeKind(Value, tag="delete", frozen=True):
    """The file goes away."""


class UpdatePatchChangeKind(SnakeValue, tag="update", frozen=True):
    """The file is edited, and moved if a path is given."""

    move_path: str | None = None


PatchChangeKind = AddPatchChangeKind | DeletePatchChangeKind | UpdatePatchChangeKind


class FileUpdateChange(Value, frozen=True):
    """What happens to one file, as a diff."""

    diff: str
    kind: PatchChangeKind
    path: str


class UsageLimitExceededImageGenerationFailure(Value, tag="usageLimitExceeded", frozen=True):
    """No picture, as the user's allowance is used up."""

    limit_id: str
    resets_at: Int64 | None = None


ImageGenerationFailure = UsageLimitExceededImageGenerationFailure


class AgentMessageThreadItem(Value, tag="agentMessage", frozen=True):
    """What the agent said."""

    id: str
    text: str
    delivery: AgentMessageDelivery | None = None
    memory_citation: MemoryCitation | None = None
    # Not every provider tells it.
    phase: MessagePhase | None = None
    questions: list[AsyncUserInputQuestion] | None = None


class CollabAgentToolCallThreadItem(Value, tag="collabAgentToolCall", frozen=True):
    """The agent deals with other agents: starts them, writes to them, waits for them."""

    agents_states: dict[str, CollabAgentState]
    id: str
    receiver_thread_ids: list[str]
    sender_thread_id: str
    status: CollabAgentToolCallStatus
    tool: CollabAgentTool
    model: str | None = None
    prompt: str | None = None
    reasoning_effort: ReasoningEffort | None = None


class CommandExecutionThreadItem(Value, tag="commandExecution", frozen=True):
    """A command that the agent, or the user by hand, runs."""

    command: str
    command_actions: list[CommandAction]
    cwd: LegacyAppPathString
    id: str
    status: CommandExecutionStatus
    aggregated_output: str | None = None
    duration_ms: Int64 | None = None
    exit_code: Int32 | None = None
    plugin_id: str | None = None
    process_id: str | None = None
    script_path: str | None = None
    source: CommandExecutionSource = "agent"


class ContextCompactionThreadItem(Value, tag="contextCompaction", frozen=True):
    """The point at which the history was shortened."""

    id: str


class DynamicToolCallThreadItem(Value, tag="dynamicToolCall", frozen=True):
    """A call of a tool that the client brought."""

    arguments: JsonValue
    id: str
    status: DynamicToolCallStatus
    tool: str
    content_items: list[DynamicToolCallOutputContentItem] | None = None
    duration_ms: Int64 | None = None
    namespace: str | None = None
    success: bool | None = None


class EnteredReviewModeThreadItem(Value, tag="enteredReviewMode", frozen=True):
    """A code review began; `review` says in short of what."""

    id: str
    review: str


class ExitedReviewModeThreadItem(Value, tag="exitedReviewMode", frozen=True):
    """A code review ended; `review` is the whole text."""

    id: str
    review: str


PatchApplyStatus = Literal["inProgress", "completed", "failed", "declined"]


class FileChangeThreadItem(Value, tag="fileChange", frozen=True):
    """Edits to files, proposed and then made, failed or declined."""

    changes: list[FileUpdateChange]
    id: str
    status: PatchApplyStatus


class FunctionCallOutputThreadItem(Value, tag="functionCallOutput", frozen=True):
    """A tool result that the client handed in with a turn."""

    id: str
    name: str
    output: FunctionCallOutputBody
    namespace: str | None = None


class HookPromptThreadItem(Value, tag="hookPrompt", frozen=True):
    """Text that hooks put into the conversation."""

    fragments: list[HookPromptFragment]
    id: str


class ImageGenerationThreadItem(Value, tag="imageGeneration", frozen=True):
    """A picture the model draws, and where it was saved."""

    id: str
    # The picture in base64.
    result: str
    status: str
    failure: ImageGenerationFailure | None = None
    revised_prompt: str | None = None
    saved_path: AbsolutePathBuf | None = None
    transparent_background: bool | None = None


class ImageViewThreadItem(Value, tag="imageView", frozen=True):
    """The agent looked at a picture on disk."""

    id: str
    path: LegacyAppPathString


class McpToolCallThreadItem(Value, tag="mcpToolCall", frozen=True):
    """A call of a tool of an MCP server."""

    arguments: JsonValue
    id: str
    server: str
    status: McpToolCallStatus
    tool: str
    app_context: McpToolCallAppContext | None = None
    duration_ms: Int64 | None = None
    error: McpToolCallError | None = None
    # Older spelling of mcp_app_ui.resource_uri.
    mcp_app_resource_uri: str | UnsetType | None = UNSET
    mcp_app_ui: McpAppUi | None = None
    plugin_id: str | None = None
    read_only_hint: bool | None = None
    result: McpToolCallResult | None = None


class PlanThreadItem(Value, tag="plan", frozen=True):
    """A plan that the agent proposes; its final text wins over the deltas."""

    id: str
    text: str


class ReasoningThreadItem(Value, tag="reasoning", frozen=True):
    """What the model thought: summaries, and the raw text where a model gives it away."""

    id: str
    content: list[str] = []
    summary: list[str] = []


class SleepThreadItem(Value, tag="sleep", frozen=True):
    """The agent waits a while, which input may cut short."""

    duration_ms: UInt64
    id: str


SubAgentActivityKind = Literal["started", "interacted", "interrupted", "completed"]


class SubAgentActivityThreadItem(Value, tag="subAgentActivity", frozen=True):
    """Something that happened to an agent working for this one."""

    agent_path: str
    agent_thread_id: str
    id: str
    kind: SubAgentActivityKind
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None


class UserMessageThreadItem(Value, tag="userMessage", frozen=True):
    """What the user said, with pictures and mentions."""

    content: list[UserInput]
    id: str
    client_id: str | None = None


class WebSearchThreadItem(Value, tag="webSearch", frozen=True):
    """A use of the web search tool; what it did may be known only at the end."""

    id: str
    query: str
    action: WebSearchAction | None = None
    results: list[JsonValue] | None = None


ThreadItem = (
    UserMessageThreadItem
    | HookPromptThreadItem
    | AgentMessageThreadItem
    | FunctionCallOutputThreadItem
    | PlanThreadItem
    | ReasoningThreadItem
    | CommandExecutionThreadItem
    | FileChangeThreadItem
    | McpToolCallThreadItem
    | DynamicToolCallThreadItem
    | CollabAgentToolCallThreadItem
    | SubAgentActivityThreadItem
    | WebSearchThreadItem
    | ImageViewThreadItem
    | SleepThreadItem
    | ImageGenerationThreadItem
    | EnteredReviewModeThreadItem
    | ExitedReviewModeThreadItem
    | ContextCompactionThreadItem
)


class ItemCompletedNotification(Value, frozen=True):
    """An item is in its final state, which outweighs all deltas before."""

    completed_at_ms: Int64
    item: ThreadItem
    thread_id: str
    turn_id: str


class ItemStartedNotification(Value, frozen=True):
    """Work on an item has begun; its id is the one that deltas refer to."""

    item: ThreadItem
    started_at_ms: Int64
    thread_id: str
    turn_id: str
