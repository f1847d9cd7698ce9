"""Questions that an MCP server asks the user, and the forms it may use."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from treadle.protocol.base import (
    AnyOf,
    Int64,
    JsonValue,
    Params,
    Sparse,
    UInt32,
    UInt64,
    Value,
    experimental,
)

McpElicitationArrayType = Literal["array"]

McpElicitationBooleanType = Literal["boolean"]


class McpElicitationBooleanSchema(Sparse, frozen=True):
    """A form field with a yes-or-no answer."""

    type: McpElicitationBooleanType
    default: bool | None = None
    description: str | None = None
    title: str | None = None


class McpElicitationConstOption(Value, frozen=True):
    """A selectable value and its label."""

    const: str
    title: str


McpElicitationStringType = Literal["string"]


class McpElicitationUntitledSingleSelectEnumSchema(Sparse, frozen=True):
    """A form field that takes one of several values, shown as they are."""

    enum: list[str]
    type: McpElicitationStringType
    default: str | None = None
    description: str | None = None
    title: str | None = None


class McpElicitationTitledSingleSelectEnumSchema(Sparse, frozen=True):
    """A form field that takes one of several values, each with a label."""

    one_of: list[McpElicitationConstOption]
    type: McpElicitationStringType
    default: str | None = None
    description: str | None = None
    title: str | None = None


McpElicitationSingleSelectEnumSchema = Annotated[
    dict[str, JsonValue],
    AnyOf(
        "McpElicitationUntitledSingleSelectEnumSchema", "McpElicitationTitledSingleSelectEnumSchema"
    ),
]


class McpElicitationUntitledEnumItems(Value, frozen=True):
    """The selectable values, shown as they are."""

    enum: list[str]
    type: McpElicitationStringType


class McpElicitationUntitledMultiSelectEnumSchema(Sparse, frozen=True):
    """A form field that takes any number of values, shown as they are."""

    items: McpElicitationUntitledEnumItems
    type: McpElicitationArrayType
    default: list[str] | None = None
    description: str | None = None
    max_items: UInt64 | None = None
    min_items: UInt64 | None = None
    title: str | None = None


class McpElicitationTitledEnumItems(Value, frozen=True):
    """The selectable values, each with a label."""

    any_of: list[McpElicitationConstOption]


class McpElicitationTitledMultiSelectEnumSchema(Sparse, frozen=True):
    """A form field that takes any number of values, each with a label."""

    items: McpElicitationTitledEnumItems
    type: McpElicitationArrayType
    default: list[str] | None = None
    description: str | None = None
    max_items: UInt64 | None = None
    min_items: UInt64 | None = None
    title: str | None = None


McpElicitationMultiSelectEnumSchema = Annotated[
    dict[str, JsonValue],
    AnyOf(
        "McpElicitationUntitledMultiSelectEnumSchema", "McpElicitationTitledMultiSelectEnumSchema"
    ),
]


class McpElicitationLegacyTitledEnumSchema(Sparse, frozen=True):
    """A selection with labels in a list beside the values, as in older MCP versions."""

    enum: list[str]
    type: McpElicitationStringType
    default: str | None = None
    description: str | None = None
    enum_names: list[str] | None = None
    title: str | None = None


McpElicitationEnumSchema = Annotated[
    dict[str, JsonValue],
    AnyOf(
        "McpElicitationSingleSelectEnumSchema",
        "McpElicitationMultiSelectEnumSchema",
        "McpElicitationLegacyTitledEnumSchema",
    ),
]

McpElicitationNumberType = Literal["number", "integer"]


class McpElicitationNumberSchema(Sparse, frozen=True):
    """A form field for a number, with optional bounds."""

    type: McpElicitationNumberType
    default: float | None = None
    description: str | None = None
    maximum: float | None = None
    minimum: float | None = None
    title: str | None = None


McpElicitationObjectType = Literal["object"]

McpElicitationStringFormat = Literal["email", "uri", "date", "date-time"]


class McpElicitationStringSchema(Sparse, frozen=True):
    """A form field for text, with optional length and format."""

    type: McpElicitationStringType
    default: str | None = None
    description: str | None = None
    format: McpElicitationStringFormat | None = None
    max_length: UInt32 | None = None
    min_length: UInt32 | None = None
    title: str | None = None


McpElicitationPrimitiveSchema = Annotated[
    dict[str, JsonValue],
    AnyOf(
        "McpElicitationEnumSchema",
        "McpElicitationStringSchema",
        "McpElicitationNumberSchema",
        "McpElicitationBooleanSchema",
    ),
]


class McpElicitationSchema(Sparse, frozen=True):
    """A flat form: fields by name, and the names of the required ones."""

    properties: dict[str, McpElicitationPrimitiveSchema]
    type: McpElicitationObjectType
    schema: str | None = field(name="$schema", default=None)
    required: list[str] | None = None


McpServerElicitationAction = Literal["accept", "decline", "cancel"]


@experimental()
class OpenaiuserVerificationMcpServerElicitationRequestParams(
    Value, tag_field="mode", tag="openai/userVerification", frozen=True
):
    """An MCP server asks the user to confirm on this device; `content` returns the proof."""

    server_name: str
    thread_id: str
    challenge: str
    description: str
    title: str
    turn_id: str | None = None
    meta: JsonValue = field(name="_meta", default=None)


class FormMcpServerElicitationRequestParams(Value, tag_field="mode", tag="form", frozen=True):
    """An MCP server asks the user to fill in a form."""

    server_name: str
    thread_id: str
    message: str
    requested_schema: McpElicitationSchema
    turn_id: str | None = None
    meta: JsonValue = field(name="_meta", default=None)


class OpenaiformMcpServerElicitationRequestParams(
    Value, tag_field="mode", tag="openai/form", frozen=True
):
    """An MCP server asks with a richer form, whose schema is forwarded without validation."""

    server_name: str
    thread_id: str
    message: str
    requested_schema: JsonValue
    turn_id: str | None = None
    meta: JsonValue = field(name="_meta", default=None)


class OpenaiFormMcpServerElicitationRequestParams(
    Value, tag_field="mode", tag="openaiForm", frozen=True
):
    """The richer form under its other tag; treat it as `openai/form`."""

    server_name: str
    thread_id: str
    message: str
    requested_schema: JsonValue
    turn_id: str | None = None
    meta: JsonValue = field(name="_meta", default=None)


class UrlMcpServerElicitationRequestParams(Value, tag_field="mode", tag="url", frozen=True):
    """An MCP server asks the user to open a page and act there."""

    server_name: str
    thread_id: str
    elicitation_id: str
    message: str
    url: str
    turn_id: str | None = None
    meta: JsonValue = field(name="_meta", default=None)


McpServerElicitationRequestParams = (
    OpenaiuserVerificationMcpServerElicitationRequestParams
    | FormMcpServerElicitationRequestParams
    | OpenaiformMcpServerElicitationRequestParams
    | OpenaiFormMcpServerElicitationRequestParams
    | UrlMcpServerElicitationRequestParams
)


class McpServerElicitationRequestResponse(Value, frozen=True):
    """The user's decision, and the completed content if it was accepted."""

    action: McpServerElicitationAction
    meta: JsonValue = field(name="_meta", default=None)
    content: JsonValue = None


class ThreadDecrementElicitationParams(Params, frozen=True):
    """Report that a question outside the protocol has been answered."""

    thread_id: str


class ThreadDecrementElicitationResponse(Value, frozen=True):
    """How many questions are open, and whether timeouts are still paused."""

    count: Int64
    paused: bool


class ThreadIncrementElicitationParams(Params, frozen=True):
    """Report that the user faces a question outside the protocol, which pauses timeouts."""

    thread_id: str


class ThreadIncrementElicitationResponse(Value, frozen=True):
    """How many questions are open; timeouts are paused while there is at least one."""

    count: Int64
    paused: bool
