"""Server requests other than approvals (client tools, user input, time), and tool definitions."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, JsonValue, Params, UInt64, Value
from treadle.protocol.response_item import FunctionCallOutputBody


class AttestationGenerateParams(Params, frozen=True):
    """The server requests an attestation from the client for a request to the model service."""


class AttestationGenerateResponse(Value, frozen=True):
    """The attestation, which the server forwards without reading it."""

    token: str


class CurrentTimeReadParams(Params, frozen=True):
    """The server requests the client's time, for a thread whose clock is the client's."""

    thread_id: str


class CurrentTimeReadResponse(Value, frozen=True):
    """The client's time, in whole Unix seconds."""

    current_time_at: Int64


class DynamicToolCallParams(Value, frozen=True):
    """The model calls a client tool; the turn waits for the result."""

    arguments: JsonValue
    call_id: str
    thread_id: str
    tool: str
    turn_id: str
    namespace: str | None = None


class InputAudioDynamicToolCallOutputContentItem(Value, tag="inputAudio", frozen=True):
    """Audio in a tool result, usually as a data URL."""

    audio_url: str


class InputImageDynamicToolCallOutputContentItem(Value, tag="inputImage", frozen=True):
    """An image in a tool result, usually as a data URL."""

    image_url: str


class InputTextDynamicToolCallOutputContentItem(Value, tag="inputText", frozen=True):
    """Text in a tool result."""

    text: str


DynamicToolCallOutputContentItem = (
    InputTextDynamicToolCallOutputContentItem
    | InputImageDynamicToolCallOutputContentItem
    | InputAudioDynamicToolCallOutputContentItem
)


class DynamicToolCallResponse(Value, frozen=True):
    """The result of the client tool for the model, and whether it succeeded."""

    content_items: list[DynamicToolCallOutputContentItem]
    success: bool


class ToolRequestUserInputAnswer(Value, frozen=True):
    """The user's answer to one question: labels of options, or free text."""

    answers: list[str]


class ToolRequestUserInputOption(Value, frozen=True):
    """An answer that the user may select, and its description."""

    description: str
    label: str


class ToolRequestUserInputQuestion(Value, frozen=True):
    """One question of the model, with suggested answers."""

    header: str
    id: str
    question: str
    is_other: bool = False
    is_secret: bool = False
    options: list[ToolRequestUserInputOption] | None = None


class ToolRequestUserInputParams(Value, frozen=True):
    """The model asks the user a few short questions."""

    is_blocking: bool
    item_id: str
    questions: list[ToolRequestUserInputQuestion]
    thread_id: str
    turn_id: str
    # Older peers only; replaced by is_blocking.
    auto_resolution_ms: UInt64 | None = None


class ToolRequestUserInputResponse(Value, frozen=True):
    """The user's answers, by the id of the question."""

    answers: dict[str, ToolRequestUserInputAnswer]


class AsyncUserInputQuestion(Value, frozen=True):
    """A question attached to an agent message, which the user may answer later or never."""

    title: str
    options: list[str] | None = None


DynamicToolCallStatus = Literal["inProgress", "completed", "failed"]


class FunctionDynamicToolNamespaceTool(Value, tag="function", frozen=True):
    """A client tool that the model calls by the names of its namespace and the tool."""

    description: str
    input_schema: JsonValue
    name: str
    defer_loading: bool = False
    # Ours: how long a call waits for its result before the model gets an error.
    deadline_ms: UInt64 | None = None


DynamicToolNamespaceTool = FunctionDynamicToolNamespaceTool


class FunctionDynamicToolSpec(Value, tag="function", frozen=True):
    """A client tool that the model may call: its name, description and arguments."""

    description: str
    input_schema: JsonValue
    name: str
    # Registered, but omitted from the list of tools that the model sees.
    defer_loading: bool = False
    # Ours: how long a call waits for its result before the model gets an error.
    deadline_ms: UInt64 | None = None


class NamespaceDynamicToolSpec(Value, tag="namespace", frozen=True):
    """Client tools grouped under one name."""

    description: str
    name: str
    tools: list[DynamicToolNamespaceTool]


DynamicToolSpec = FunctionDynamicToolSpec | NamespaceDynamicToolSpec


class TurnToolOutput(Value, frozen=True):
    """The result of a tool that the client ran itself, supplied with a turn."""

    name: str
    output: FunctionCallOutputBody
    namespace: str | None = None
    retain: bool = False
