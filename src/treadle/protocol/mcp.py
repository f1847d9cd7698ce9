"""MCP servers: status, resources, tools, sign-in, event streams."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType, field

from treadle.protocol.base import AnyOf, Int64, JsonValue, Params, Sparse, UInt32, Value

McpServerStatusDetail = Literal["full", "toolsAndAuthOnly"]


class ListMcpServerStatusParams(Params, frozen=True):
    """Page through the configured MCP servers and their tools and resources."""

    cursor: str | None = None
    detail: McpServerStatusDetail | None = None
    limit: UInt32 | None = None
    server_name: str | None = None
    thread_id: str | None = None


McpAuthStatus = Literal["unknown", "unsupported", "notLoggedIn", "bearerToken", "oAuth"]

McpServerConnectionStatus = Literal[
    "notStarted",
    "starting",
    "connected",
    "authenticationRequired",
    "failed",
    "cancelled",
    "disabled",
]


class McpServerInfo(Value, frozen=True):
    """An MCP server's description of itself."""

    name: str
    version: str
    description: str | None = None
    icons: list[JsonValue] | None = None
    title: str | None = None
    website_url: str | None = None


class Resource(Sparse, frozen=True):
    """A document that an MCP server provides."""

    name: str
    uri: str
    meta: JsonValue = field(name="_meta", default=None)
    annotations: JsonValue = None
    description: str | None = None
    icons: list[JsonValue] | None = None
    mime_type: str | None = None
    size: Int64 | None = None
    title: str | None = None


class ResourceTemplate(Sparse, frozen=True):
    """A URI pattern for documents that an MCP server provides."""

    name: str
    uri_template: str
    annotations: JsonValue = None
    description: str | None = None
    mime_type: str | None = None
    title: str | None = None


class Tool(Sparse, frozen=True):
    """A tool of an MCP server, as the server describes it."""

    input_schema: JsonValue
    name: str
    meta: JsonValue = field(name="_meta", default=None)
    annotations: JsonValue = None
    description: str | None = None
    icons: list[JsonValue] | None = None
    output_schema: JsonValue = None
    title: str | None = None


class McpServerStatus(Value, frozen=True):
    """A configured MCP server: its sign-in, its connection, its tools and resources."""

    auth_status: McpAuthStatus
    name: str
    resource_templates: list[ResourceTemplate]
    resources: list[Resource]
    tools: dict[str, Tool]
    # Only scheme, host and port; null for servers that are not reached over HTTP.
    http_origin: str | None = None
    plugin_id: str | None = None
    runtime_status: McpServerConnectionStatus | None = None
    server_capabilities: JsonValue = None
    server_info: McpServerInfo | None = None
    tool_list_meta: JsonValue | UnsetType = UNSET
    tools_error: str | None = None


class ListMcpServerStatusResponse(Value, frozen=True):
    """One page of MCP servers."""

    data: list[McpServerStatus]
    next_cursor: str | None = None


McpAppDisplayMode = Literal["inline", "fullscreen"]


class McpAppUi(Value, frozen=True):
    """The view that a tool provides for its result, and its preferred size."""

    preferred_model_display_mode: McpAppDisplayMode
    resource_uri: str


class McpResourceReadTarget(Value, frozen=True):
    """The app and linked account to read from; a null link reads without signing in."""

    connector_id: str
    link_id: str | None


class McpResourceReadParams(Params, frozen=True):
    """Read a document from an MCP server."""

    server: str
    uri: str
    connector_id: str | None = None
    meta: dict[str, JsonValue] | None = field(name="_meta", default=None)
    origin_call_id: str | None = None
    target: McpResourceReadTarget | None = None
    thread_id: str | None = None


class TextResourceContent(Sparse, frozen=True):
    """A document, or a part of one, as text."""

    text: str
    uri: str
    meta: JsonValue = field(name="_meta", default=None)
    mime_type: str | None = None


class BlobResourceContent(Sparse, frozen=True):
    """A document, or a part of one, as bytes in base64."""

    blob: str
    uri: str
    meta: JsonValue = field(name="_meta", default=None)
    mime_type: str | None = None


ResourceContent = Annotated[
    dict[str, JsonValue], AnyOf("TextResourceContent", "BlobResourceContent")
]


class McpResourceReadResponse(Value, frozen=True):
    """The document, in one or more parts."""

    contents: list[ResourceContent]
    origin_call_id: str | None = None


class McpServerEventNotification(Value, frozen=True):
    """A message of an MCP server, unchanged."""

    method: str
    params: JsonValue


class McpServerEventStreamNotification(Value, frozen=True):
    """An event on a stream that this client opened."""

    notification: McpServerEventNotification
    subscription_id: str


class McpServerEventStreamStartParams(Params, frozen=True):
    """Open a stream of events from an MCP server, under an id that the client chooses."""

    arguments: JsonValue
    name: str
    server: str
    subscription_id: str
    thread_id: str
    meta: JsonValue = field(name="_meta", default=None)


class McpServerEventStreamStartResponse(Value, frozen=True):
    """The stream is open."""


class McpServerEventStreamStopParams(Params, frozen=True):
    """Close a stream of events."""

    subscription_id: str


class McpServerEventStreamStopResponse(Value, frozen=True):
    """The stream is closed."""


McpServerOauthClientRegistration = Literal["auto", "cimd", "dcr"]
"""`cimd` uses a client metadata document, `dcr` registers dynamically; `auto` picks one."""


class McpServerOauthLoginCompletedNotification(Value, frozen=True):
    """A sign-in to an MCP server has ended, successfully or not."""

    name: str
    success: bool
    error: str | UnsetType | None = UNSET
    login_id: str | None = None
    thread_id: str | None = None


class McpServerOauthLoginParams(Params, frozen=True):
    """Start a sign-in to an MCP server through the browser."""

    name: str
    client_registration: McpServerOauthClientRegistration | None = None
    scopes: list[str] | None = None
    thread_id: str | None = None
    timeout_secs: Int64 | None = None


class McpServerOauthLoginResponse(Sparse, frozen=True):
    """The page to open; a notification reports the result of the sign-in."""

    authorization_url: str
    login_id: str | None = None


class McpServerRefreshResponse(Value, frozen=True):
    """The configuration was reloaded; loaded threads apply it at their next turn."""


McpServerStartupFailureReason = Literal["reauthenticationRequired"]

McpServerStartupState = Literal["starting", "ready", "failed", "cancelled"]


class McpServerStatusUpdatedNotification(Value, frozen=True):
    """An MCP server is starting, is ready, or failed to start."""

    name: str
    status: McpServerStartupState
    error: str | None = None
    failure_reason: McpServerStartupFailureReason | None = None
    thread_id: str | None = None


class McpServerToolCallParams(Params, frozen=True):
    """Call a tool of an MCP server for the client, without the model."""

    server: str
    thread_id: str
    tool: str
    meta: JsonValue = field(name="_meta", default=None)
    arguments: JsonValue = None


class McpServerToolCallResponse(Sparse, frozen=True):
    """The result of the tool, including its own failures, which set `isError`."""

    content: list[JsonValue]
    meta: JsonValue = field(name="_meta", default=None)
    is_error: bool | None = None
    structured_content: JsonValue = None


class McpToolCallAppContext(Value, frozen=True):
    """The app, account and action behind a tool call."""

    connector_id: str
    action_name: str | None = None
    app_name: str | None = None
    link_id: str | None = None
    resource_uri: str | None = None


class McpToolCallError(Value, frozen=True):
    """Why a tool call failed."""

    message: str


class McpToolCallProgressNotification(Value, frozen=True):
    """A progress message of a running tool call."""

    item_id: str
    message: str
    thread_id: str
    turn_id: str


class McpToolCallResult(Value, frozen=True):
    """The result of a tool call, as returned to the model."""

    content: list[JsonValue]
    meta: JsonValue = field(name="_meta", default=None)
    structured_content: JsonValue = None


McpToolCallStatus = Literal["inProgress", "completed", "failed"]

ToolExposureSurface = Literal["code_mode", "deferred", "direct"]
"""Where a tool is available to the model: in scripts, by search, or in its list."""
