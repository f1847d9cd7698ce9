"""Tools that the client provides, and questions that the model asks the user."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, JsonValue, Params, UInt64, Value
from treadle.protocol.response_item import FunctionCallOutputBody


class AttestationGenerateParams(Params, frozen=True):
    """The server wants proof from the client application for a request to the model service."""


class AttestationGenerateResponse(Value, frozen=True):
    """The proof, which the server passes on without looking into it."""

    token: str


class CurrentTimeReadParams(Params, frozen=True):
    """The server asks the client what time it is, for a thread whose clock is the client's."""

    thread_id: str


class CurrentTimeReadResponse(Value, frozen=True):
    """The client's time, in whole Unix seconds."""

    current_time_at: Int64


class DynamicToolCallParams(Value, frozen=True):
    """The model calls a tool that the client brought; the turn waits for the answer."""

    arguments: JsonValue
    call_id: str
    thread_id: str
    tool: str
    turn_id: str
    namespace: str | None = None


class InputAudioDynamicToolCallOutputContentItem(Value, tag="inputAudio", frozen=True):
    """Sound in a tool's answer, usually as a data URL."""

    audio_url: str


class InputImageDynamicToolCallOutputContentItem(Value, tag="inputImage", frozen=True):
    """A picture in a tool's answer, usually as a data URL."""

    image_url: str


class InputTextDynamicToolCallOutputContentItem(Value, tag="inputText", frozen=True):
    """Text in a tool's answer."""

    text: str


DynamicToolCallOutputContentItem = (
    InputTextDynamicToolCallOutputContentItem
    | InputImageDynamicToolCallOutputContentItem
    | InputAudioDynamicToolCallOutputContentItem
)


class DynamicToolCallResponse(Value, frozen=True):
    """What the client's tool gave back for the model, and whether it worked."""

    content_items: list[DynamicToolCallOutputContentItem]
    success: bool


class ToolRequestUserInputAnswer(Value, frozen=True):
    """What the user replied to one question: labels of options, or free text."""

    answers: list[str]


class ToolRequestUserInputOption(Value, frozen=True):
    """A reply that the user may pick, and what picking it means."""

    description: str
    label: str


class ToolRequestUserInputQuestion(Value, frozen=True):
    """One thing the model wants to know, with the replies it suggests."""

    header: str
    id: str
    question: str
    is_other: bool = False
    is_secret: bool = False
    options: list[ToolRequestUserInputOption] | None = None


class ToolRequestUserInputParams(Value, frozen=True):
    """The model puts a few short questions to the user."""

    is_blocking: bool
    item_id: str
    questions: list[ToolRequestUserInputQuestion]
    thread_id: str
    turn_id: str
    # Older peers only; is_blocking took its place.
    auto_resolution_ms: UInt64 | None = None


class ToolRequestUserInputResponse(Value, frozen=True):
    """The user's answers, by the id of the question."""

    answers: dict[str, ToolRequestUserInputAnswer]


class AsyncUserInputQuestion(Value, frozen=True):
    """A question that rides on an agent message, which the user may answer later or never."""

    title: str
    options: list[str] | None = None


DynamicToolCallStatus = Literal["inProgress", "completed", "failed"]


class FunctionDynamicToolNamespaceTool(Value, tag="function", frozen=True):
    """A client tool that the model calls by the name of its namespace and its own."""

    description: str
    input_schema: JsonValue
    name: str
    defer_loading: bool = False
    # Ours: how long a call may wait for its answer before the model is told that none came.
    deadline_ms: UInt64 | None = None


DynamicToolNamespaceTool = FunctionDynamicToolNamespaceTool


class FunctionDynamicToolSpec(Value, tag="function", frozen=True):
    """A client tool that the model may call: its name, its purpose, its arguments."""

    description: str
    input_schema: JsonValue
    name: str
    # Registered, but left out of the list of tools that the model is shown.
    defer_loading: bool = False
    # Ours: how long a call may wait for its answer before the model is told that none came.
    deadline_ms: UInt64 | None = None


class NamespaceDynamicToolSpec(Value, tag="namespace", frozen=True):
    """Client tools that belong together under one name."""

    description: str
    name: str
    tools: list[DynamicToolNamespaceTool]


DynamicToolSpec = FunctionDynamicToolSpec | NamespaceDynamicToolSpec


class TurnToolOutput(Value, frozen=True):
    """The result of a tool that the client ran by itself, handed in with a turn."""

    name: str
    output: FunctionCallOutputBody
    namespace: str | None = None
    retain: bool = False
