"""The model's items, as the Responses API spells them."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import JsonValue, SnakeSparse, SnakeValue, Sparse, UInt64, Value
from treadle.protocol.input import ImageDetail
from treadle.protocol.model import ReasoningEffort
from treadle.protocol.usage import TokenUsageBreakdown
from treadle.protocol.web_search import ResponsesApiWebSearchAction


class InputTextAgentMessageInputContent(Sparse, tag="input_text", frozen=True):
    """Text that one agent sends to another."""

    text: str


class EncryptedContentAgentMessageInputContent(SnakeSparse, tag="encrypted_content", frozen=True):
    """A message between agents that only the model service can decrypt."""

    encrypted_content: str


AgentMessageInputContent = (
    InputTextAgentMessageInputContent | EncryptedContentAgentMessageInputContent
)


class ConfigurationReasoning(Value, frozen=True):
    """The reasoning effort of the model from here on."""

    effort: ReasoningEffort


class InputTextContentItem(Sparse, tag="input_text", frozen=True):
    """Text input of the model."""

    text: str


class InputImageContentItem(SnakeSparse, tag="input_image", frozen=True):
    """Image input of the model, by URL or by the id of an uploaded file."""

    detail: ImageDetail | None = None
    image_url: str | None = None
    file_id: str | None = None


class InputAudioContentItem(SnakeSparse, tag="input_audio", frozen=True):
    """Audio input of the model, by URL or by the id of an uploaded file."""

    audio_url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET


class OutputTextContentItem(Sparse, tag="output_text", frozen=True):
    """Text that the model wrote."""

    text: str
    annotations: list[JsonValue] | None = None
    logprobs: list[JsonValue] | None = None


ContentItem = (
    InputTextContentItem | InputImageContentItem | InputAudioContentItem | OutputTextContentItem
)


class EncryptedContentFunctionCallOutputContentItem(
    SnakeSparse, tag="encrypted_content", frozen=True
):
    """A tool result that only the model service can decrypt."""

    encrypted_content: str


class InputAudioFunctionCallOutputContentItem(SnakeSparse, tag="input_audio", frozen=True):
    """Audio in a tool result, by URL or by the id of an uploaded file."""

    audio_url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET


class InputImageFunctionCallOutputContentItem(SnakeSparse, tag="input_image", frozen=True):
    """An image in a tool result, by URL or by the id of an uploaded file."""

    detail: ImageDetail | None = None
    image_url: str | None = None
    file_id: str | None = None


class InputTextFunctionCallOutputContentItem(Sparse, tag="input_text", frozen=True):
    """Text in a tool result."""

    text: str


FunctionCallOutputContentItem = (
    InputTextFunctionCallOutputContentItem
    | InputImageFunctionCallOutputContentItem
    | InputAudioFunctionCallOutputContentItem
    | EncryptedContentFunctionCallOutputContentItem
)

FunctionCallOutputBody = str | list[FunctionCallOutputContentItem]
"""Plain text, or parts of several kinds."""


class InternalChatMessageMetadataPassthrough(SnakeSparse, frozen=True):
    """Metadata that the model service copies to the message."""

    turn_id: str | None = None


class ExecLocalShellAction(SnakeSparse, tag="exec", frozen=True):
    """A command for the built-in shell tool, as an argument vector."""

    command: list[str]
    env: dict[str, str] | None = None
    timeout_ms: UInt64 | None = None
    user: str | None = None
    working_directory: str | None = None


LocalShellAction = ExecLocalShellAction

LocalShellStatus = Literal["completed", "in_progress", "incomplete"]

MessagePhase = Literal["commentary", "partial_answer", "final_answer"]
"""Commentary during the turn, an answer that is not final, or the final message of a turn."""


class ResponseUsageMetadata(Value, frozen=True):
    """Price information that the service added to a response."""

    amount: str | None = None
    metadata: JsonValue = None


class RawResponseCompletedNotification(Value, frozen=True):
    """The model service completed a response; its exact usage, for internal clients."""

    response_id: str
    thread_id: str
    turn_id: str
    usage: TokenUsageBreakdown | None = None
    usage_metadata: ResponseUsageMetadata | None = None


class AdditionalToolsResponseItem(Sparse, tag="additional_tools", frozen=True):
    """Tools that become available in the middle of the history."""

    role: str
    tools: list[JsonValue]
    id: str | None = None


class AgentMessageResponseItem(SnakeSparse, tag="agent_message", frozen=True):
    """A message from one agent to another."""

    author: str
    content: list[AgentMessageInputContent]
    recipient: str
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class CompactionResponseItem(SnakeSparse, tag="compaction", frozen=True):
    """A compacted history that only the model service can decrypt."""

    encrypted_content: str
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class CompactionTriggerResponseItem(Sparse, tag="compaction_trigger", frozen=True):
    """Makes the model service compact the history at this point."""


class ConfigurationUpdateResponseItem(Sparse, tag="configuration_update", frozen=True):
    """Changes the model's settings from this point of the history on."""

    reasoning: ConfigurationReasoning


class ContextCompactionResponseItem(SnakeSparse, tag="context_compaction", frozen=True):
    """The point at which the service compacted the history, with the retained content."""

    encrypted_content: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class CustomToolCallOutputResponseItem(SnakeSparse, tag="custom_tool_call_output", frozen=True):
    """The result of a call of a free-form tool."""

    call_id: str
    output: FunctionCallOutputBody
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None
    name: str | None = None


class CustomToolCallResponseItem(SnakeSparse, tag="custom_tool_call", frozen=True):
    """The model calls a tool whose input is free text."""

    call_id: str
    input: str
    name: str
    encrypted_content: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None
    namespace: str | None = None
    status: str | None = None


class FunctionCallOutputResponseItem(SnakeSparse, tag="function_call_output", frozen=True):
    """The result of a function call."""

    output: FunctionCallOutputBody
    call_id: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None
    name: str | None = None
    namespace: str | None = None


class FunctionCallResponseItem(SnakeSparse, tag="function_call", frozen=True):
    """The model calls a function; its arguments are JSON in a string."""

    arguments: str
    call_id: str
    name: str
    encrypted_content: str | None = None
    encrypted_function_args: list[str] | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None
    namespace: str | None = None
    status: str | None = None


class GhostCommit(SnakeValue, frozen=True):
    """A hidden commit that stores the work tree, and the files untracked before it."""

    id: str
    preexisting_untracked_dirs: list[str]
    preexisting_untracked_files: list[str]
    parent: str | None = None


class GhostSnapshotResponseItem(SnakeSparse, tag="ghost_snapshot", frozen=True):
    """The point at which the work tree was saved; only in older histories."""

    ghost_commit: GhostCommit


class ImageGenerationCallResponseItem(SnakeSparse, tag="image_generation_call", frozen=True):
    """An image that the model generated, in base64."""

    result: str
    status: str
    encrypted_content: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None
    revised_prompt: str | None = None


class LocalShellCallResponseItem(SnakeSparse, tag="local_shell_call", frozen=True):
    """The model calls the built-in shell tool."""

    action: LocalShellAction
    status: LocalShellStatus
    call_id: str | None = None
    encrypted_content: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class MessageResponseItem(SnakeSparse, tag="message", frozen=True):
    """A message from the user, the developer or the assistant."""

    content: list[ContentItem]
    role: str
    encrypted_content: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None
    phase: MessagePhase | None = None
    status: str | None = None


class OtherResponseItem(Sparse, tag="other", frozen=True):
    """An item of an unknown type."""


class ReasoningTextReasoningItemContent(Sparse, tag="reasoning_text", frozen=True):
    """A part of the model's raw reasoning."""

    text: str


class TextReasoningItemContent(Sparse, tag="text", frozen=True):
    """A part of the model's raw reasoning, under its other tag."""

    text: str


ReasoningItemContent = ReasoningTextReasoningItemContent | TextReasoningItemContent


class SummaryTextReasoningItemReasoningSummary(Sparse, tag="summary_text", frozen=True):
    """A paragraph of the model's reasoning summary."""

    text: str


ReasoningItemReasoningSummary = SummaryTextReasoningItemReasoningSummary


class ReasoningResponseItem(SnakeSparse, tag="reasoning", frozen=True):
    """The model's reasoning: summarized, raw or encrypted."""

    summary: list[ReasoningItemReasoningSummary]
    content: list[ReasoningItemContent] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class ToolSearchCallResponseItem(SnakeSparse, tag="tool_search_call", frozen=True):
    """The model searches for tools that are not in its list."""

    arguments: JsonValue
    execution: str
    call_id: str | None = None
    encrypted_content: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None
    status: str | None = None


class ToolSearchOutputResponseItem(SnakeSparse, tag="tool_search_output", frozen=True):
    """The tools that a search found."""

    execution: str
    status: str
    tools: list[JsonValue]
    call_id: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class WebSearchCallResponseItem(SnakeSparse, tag="web_search_call", frozen=True):
    """The model service searched the web itself."""

    action: ResponsesApiWebSearchAction | None = None
    encrypted_content: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None
    status: str | None = None


ResponseItem = (
    AdditionalToolsResponseItem
    | MessageResponseItem
    | AgentMessageResponseItem
    | ReasoningResponseItem
    | LocalShellCallResponseItem
    | FunctionCallResponseItem
    | ToolSearchCallResponseItem
    | FunctionCallOutputResponseItem
    | CustomToolCallResponseItem
    | CustomToolCallOutputResponseItem
    | ToolSearchOutputResponseItem
    | WebSearchCallResponseItem
    | ImageGenerationCallResponseItem
    | CompactionResponseItem
    | ConfigurationUpdateResponseItem
    | CompactionTriggerResponseItem
    | ContextCompactionResponseItem
    | OtherResponseItem
    | GhostSnapshotResponseItem
)


class RawResponseItemCompletedNotification(Value, frozen=True):
    """An item exactly as the model returned it, for clients that opted in to raw events."""

    item: ResponseItem
    thread_id: str
    turn_id: str
