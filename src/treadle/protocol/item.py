"""Items: the parts of a turn."""

from __future__ import annotations

from typing import Literal

import msgspec
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
    """The state of another agent, and its last message."""

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
    """The file is deleted."""


class UpdatePatchChangeKind(SnakeValue, tag="update", frozen=True):
    """The file is edited, and moved if a path is given."""

    move_path: str | None = None


PatchChangeKind = AddPatchChangeKind | DeletePatchChangeKind | UpdatePatchChangeKind


class FileUpdateChange(Value, frozen=True):
    """The change to one file, as a diff."""

    diff: str
    kind: PatchChangeKind
    path: str


class UsageLimitExceededImageGenerationFailure(Value, tag="usageLimitExceeded", frozen=True):
    """No image was generated because the user's limit is exhausted."""

    limit_id: str
    resets_at: Int64 | None = None


ImageGenerationFailure = UsageLimitExceededImageGenerationFailure


class AgentMessageDisplay(Value, frozen=True):
    """How a client should present a message; clients leave unknown actions alone."""

    action: str
    block_type: str | None = None
    check_trusted_contacts: bool | None = None
    cyber_trusted_access: bool | None = None


class AgentMessageModeration(Value, frozen=True):
    """Whether a message was moderated."""

    moderated: bool
    display: AgentMessageDisplay | None = None


class ImageGenerationInputImage(Value, frozen=True):
    """A local file that was an input of a generated image."""

    path: AbsolutePathBuf
    sha256: str


class AgentMessageThreadItem(Value, tag="agentMessage", frozen=True):
    """A message of the agent."""

    id: str
    text: str
    delivery: AgentMessageDelivery | None = None
    memory_citation: MemoryCitation | None = None
    moderation: AgentMessageModeration | UnsetType | None = UNSET
    # Not every provider reports it.
    phase: MessagePhase | None = None
    questions: list[AsyncUserInputQuestion] | None = None
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class CollabAgentToolCallThreadItem(Value, tag="collabAgentToolCall", frozen=True):
    """The agent works with other agents: starts them, messages them, waits for them."""

    agents_states: dict[str, CollabAgentState]
    id: str
    receiver_thread_ids: list[str]
    sender_thread_id: str
    status: CollabAgentToolCallStatus
    tool: CollabAgentTool
    model: str | None = None
    prompt: str | None = None
    reasoning_effort: ReasoningEffort | None = None
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class CommandExecutionThreadItem(Value, tag="commandExecution", frozen=True):
    """A command run by the agent or directly by the user."""

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
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class ContextCompactionThreadItem(Value, tag="contextCompaction", frozen=True):
    """The point at which the history was compacted."""

    id: str
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class DynamicToolCallThreadItem(Value, tag="dynamicToolCall", frozen=True):
    """A call of a client tool."""

    arguments: JsonValue
    id: str
    status: DynamicToolCallStatus
    tool: str
    content_items: list[DynamicToolCallOutputContentItem] | None = None
    duration_ms: Int64 | None = None
    namespace: str | None = None
    success: bool | None = None
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class EnteredReviewModeThreadItem(Value, tag="enteredReviewMode", frozen=True):
    """A code review began; `review` summarizes its target."""

    id: str
    review: str
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class ExitedReviewModeThreadItem(Value, tag="exitedReviewMode", frozen=True):
    """A code review ended; `review` is the complete text."""

    id: str
    review: str
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


PatchApplyStatus = Literal["inProgress", "completed", "failed", "declined"]


class FileChangeThreadItem(Value, tag="fileChange", frozen=True):
    """Edits to files: proposed, then applied, failed or declined."""

    changes: list[FileUpdateChange]
    id: str
    status: PatchApplyStatus
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class FunctionCallOutputThreadItem(Value, tag="functionCallOutput", frozen=True):
    """A tool result that the client supplied with a turn."""

    id: str
    name: str
    output: FunctionCallOutputBody
    namespace: str | None = None
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class HookPromptThreadItem(Value, tag="hookPrompt", frozen=True):
    """Text that hooks added to the conversation."""

    fragments: list[HookPromptFragment]
    id: str
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class ImageGenerationThreadItem(Value, tag="imageGeneration", frozen=True):
    """An image that the model generates, and where it was saved."""

    id: str
    status: str
    failure: ImageGenerationFailure | None = None
    # The id of the image at the provider, in place of `result`.
    file_id: str | UnsetType = UNSET
    generation_id: str | UnsetType | None = UNSET
    input_images: list[ImageGenerationInputImage] | UnsetType = UNSET
    # The image in base64.
    result: str | UnsetType = UNSET
    revised_prompt: str | None = None
    saved_path: AbsolutePathBuf | None = None
    transparent_background: bool | None = None
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class ImageViewThreadItem(Value, tag="imageView", frozen=True):
    """The agent viewed an image on disk."""

    id: str
    path: LegacyAppPathString
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


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
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class PlanThreadItem(Value, tag="plan", frozen=True):
    """A plan that the agent proposes; its final text overrides the deltas."""

    id: str
    text: str
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class ReasoningThreadItem(Value, tag="reasoning", frozen=True):
    """The model's reasoning: summaries, and the raw text if the model exposes it."""

    id: str
    content: list[str] = []
    summary: list[str] = []
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class SleepThreadItem(Value, tag="sleep", frozen=True):
    """The agent waits for a while; input may end the wait early."""

    duration_ms: UInt64
    id: str
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


SubAgentActivityKind = Literal["started", "interacted", "interrupted", "completed"]


class SubAgentActivityThreadItem(Value, tag="subAgentActivity", frozen=True):
    """An event of a sub-agent of this agent."""

    agent_path: str
    agent_thread_id: str
    id: str
    kind: SubAgentActivityKind
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class UserMessageThreadItem(Value, tag="userMessage", frozen=True):
    """A message of the user, with images and mentions."""

    content: list[UserInput]
    id: str
    client_id: str | None = None
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


class WebSearchThreadItem(Value, tag="webSearch", frozen=True):
    """A use of the web search tool; its action may be known only at the end."""

    id: str
    query: str
    action: WebSearchAction | None = None
    results: list[JsonValue] | None = None
    started_at_ms: Int64 | UnsetType | None = UNSET
    completed_at_ms: Int64 | UnsetType | None = UNSET


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


def with_times(
    item: ThreadItem, started_at_ms: int | None, completed_at_ms: int | None
) -> ThreadItem:
    """Return an item with the times of its start and its completion, null if unknown."""
    times = {"started_at_ms": started_at_ms, "completed_at_ms": completed_at_ms}
    timed: ThreadItem = msgspec.structs.replace(item, **times)
    return timed


def times_of(item: ThreadItem) -> tuple[int | None, int | None]:
    """Return when an item started and when it was completed, null if unknown."""
    started, completed = item.started_at_ms, item.completed_at_ms
    return (
        None if started is UNSET else started,
        None if completed is UNSET else completed,
    )


class ItemCompletedNotification(Value, frozen=True):
    """An item is in its final state, which overrides all earlier deltas."""

    completed_at_ms: Int64
    item: ThreadItem
    thread_id: str
    turn_id: str
    # Of a message of the agent, if the provider reports it.
    content_token_count: UInt64 | UnsetType | None = UNSET


class ItemStartedNotification(Value, frozen=True):
    """Work on an item has begun; deltas refer to its id."""

    item: ThreadItem
    started_at_ms: Int64
    thread_id: str
    turn_id: str
