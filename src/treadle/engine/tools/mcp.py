"""The tools of MCP servers, and the tools that read their resources."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Final, Self

import msgspec
from msgspec import UNSET

from treadle.engine.apps.tools import DETAILS, context_of, details_of, page_of
from treadle.engine.mcp.approval import McpRefused, ToolUse, approve
from treadle.engine.mcp.content import failure_of, output_of, result_of
from treadle.engine.mcp.names import NamedMcpTool, plain_names
from treadle.engine.mcp.server import McpError, McpServer, Raw, ResourceKind
from treadle.engine.mcp.servers import McpServers
from treadle.engine.terminals.output_deltas import OutputBudget
from treadle.engine.tools.output import DEFAULT_TOKENS, truncate
from treadle.engine.tools.registry import (
    Output,
    ToolCall,
    ToolRefused,
    function_tool,
    read_arguments,
)
from treadle.model.base import ModelTool
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.item import McpToolCallThreadItem
from treadle.protocol.mcp import (
    McpToolCallError,
    McpToolCallProgressNotification,
    McpToolCallResult,
)

if TYPE_CHECKING:
    from treadle.engine.approvals.approvals import Approvals
    from treadle.engine.thread import LoadedThread
    from treadle.engine.tools.registry import ToolHandler
    from treadle.engine.turn import ActiveTurn

MAX_PROGRESS_CHARACTERS: Final = 4096
"""A longer progress message is cut."""

_MIN_PROGRESS_COST: Final = 1024
"""What even a short message takes from the budget, which so limits their number too."""

INTERRUPTED: Final = "MCP tool call was interrupted"
# The server name in the item of a list of all resources, as in the reference.
ALL_SERVERS: Final = "codex"
_ORDER: Final = ("uri", "uriTemplate", "name", "title", "description", "mimeType")
_NO_PARAMETERS: Final[Raw] = {"type": "object", "properties": {}}


class McpTool:
    """One tool of one server, in one thread."""

    def __init__(self, servers: McpServers, approvals: Approvals, named: NamedMcpTool) -> None:
        self._approvals = approvals
        self.name = named.name
        self.namespace = named.namespace
        self.app = named.app
        self._servers = servers
        self._server = named.server
        self._tool = named.tool

    @property
    def namespace_description(self) -> str:
        """Describes the app, for the model."""
        if self.app is None:
            return ""
        return self.app.description or f"Tools for working with {self.app.title}."

    @property
    def is_exclusive(self) -> bool:
        """Whether its calls must not run in parallel with others: unless known to be safe."""
        return not (self._server.config.supports_parallel_tool_calls or self._hint is True)

    @property
    def plain_names(self) -> tuple[str, ...]:
        """The names by which hooks know it: that for the model may be shortened or have a hash."""
        return plain_names(self._server.name, str(self._tool["name"]))

    @property
    def _hint(self) -> bool | None:
        hints = self._tool.get("annotations")
        hint = hints.get("readOnlyHint") if isinstance(hints, dict) else None
        return hint if isinstance(hint, bool) else None

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        schema = self._tool.get("inputSchema")
        parameters = {**_NO_PARAMETERS, **schema} if isinstance(schema, dict) else _NO_PARAMETERS
        return {
            "type": "function",
            "name": self.name,
            "description": str(self._tool.get("description") or ""),
            "strict": False,
            "parameters": parameters,
        }

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Request approval if needed, call the tool, and publish the result."""
        arguments = _arguments(call)
        item = McpToolCallThreadItem(
            arguments=arguments,
            id=call.id,
            server=self._server.name,
            status="inProgress",
            tool=str(self._tool["name"]),
            read_only_hint=self._hint,
            plugin_id=self._server.plugin_id,
            app_context=context_of(self._tool) if self.app is not None else None,
            mcp_app_resource_uri=page_of(self._tool) or (UNSET if self.app is None else None),
        )
        use = ToolUse(turn, call.id, self._server, self._tool, arguments, call.flat_name)
        began = perf_counter()
        with _CallItem(turn, item) as activity:
            try:
                await approve(self._servers, self._approvals, use)
                activity.restart()
                raw = await self._call(turn, call.id, arguments)
            except McpRefused as refusal:
                activity.fail(str(refusal))
                return failure_of(str(refusal), perf_counter() - began)
            except McpError as error:
                activity.fail(f"tool call error: {self._describe(error)}")
                return failure_of(activity.error, perf_counter() - began)
            activity.complete(result_of(raw), is_error=raw.get("isError") is True)
        return output_of(raw, perf_counter() - began)

    async def _call(self, turn: ActiveTurn, call_id: str, arguments: Raw) -> Raw:
        # One call publishes no more of it than a command publishes of its output.
        budget = OutputBudget()

        def on_progress(message: str) -> None:
            message = message[:MAX_PROGRESS_CHARACTERS]
            cost = max(len(message), _MIN_PROGRESS_COST)
            if not budget.take(cost, perf_counter(), least=cost):
                return
            params = McpToolCallProgressNotification(call_id, message, turn.thread_id, turn.id)
            turn.log.publish(n.ITEM_MCP_TOOL_CALL_PROGRESS, params)

        meta: Raw = {"callId": call_id, "threadId": turn.thread_id, "turnId": turn.id}
        if self.app is not None:
            known = {"call_id": call_id, "root_turn_id": turn.root_id or turn.id}
            meta[DETAILS] = {**details_of(self._tool), **known}
        with self._servers.calling(self._server, call_id):
            return await self._server.call(str(self._tool["name"]), arguments, meta, on_progress)

    def _describe(self, error: McpError) -> str:
        where = f"tool call failed for `{self._server.name}/{self._tool['name']}`"
        code = "" if error.code is None else f"Mcp error: {error.code}: "
        return f"{where}\n\nCaused by:\n    {code}{error}"


class _CallItem:
    """The item of a call: publishes its start, and its end once, whatever happens."""

    def __init__(self, turn: ActiveTurn, item: McpToolCallThreadItem) -> None:
        self.error = ""
        self._turn = turn
        self._item = item
        self._began = perf_counter()
        self._is_over = False

    def __enter__(self) -> Self:
        self._turn.start_item(self._item)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if not self._is_over:
            self.fail(INTERRUPTED if kind is asyncio.CancelledError else "internal error")

    def restart(self) -> None:
        """Restart the duration, which excludes the time that the user needs to approve."""
        self._began = perf_counter()

    def fail(self, error: str) -> None:
        """Complete the item of a failed call."""
        self.error = error
        self._end(status="failed", error=McpToolCallError(error))

    def complete(self, result: McpToolCallResult, *, is_error: bool = False) -> None:
        """Complete the item with the result of the tool, which may be an error."""
        self._end(status="failed" if is_error else "completed", result=result)

    def _end(self, **changes: JsonValue) -> None:
        self._is_over = True
        took = int((perf_counter() - self._began) * 1000)
        self._turn.complete_item(msgspec.structs.replace(self._item, duration_ms=took, **changes))


class _Listing(msgspec.Struct):
    server: str | None = None
    cursor: str | None = None


class _Reading(msgspec.Struct):
    server: str
    uri: str


class _ResourceTool:
    """A tool that lists or reads resources of servers."""

    name: ClassVar[str]
    description: ClassVar[str]
    properties: ClassVar[dict[str, str]]
    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        properties = {
            name: {"type": "string", "description": text} for name, text in self.properties.items()
        }
        return function_tool(self.name, self.description, properties, self.required)

    async def _publish(
        self,
        call: ToolCall,
        turn: ActiveTurn,
        server: str | None,
        method: str,
        request: Callable[[], Awaitable[JsonValue]],
    ) -> Output:
        item = McpToolCallThreadItem(
            arguments=_arguments(call),
            id=call.id,
            server=server or ALL_SERVERS,
            status="inProgress",
            tool=self.name,
        )
        with _CallItem(turn, item) as activity:
            try:
                text = msgspec.json.encode(await request()).decode()
            except McpError as error:
                code = "" if error.code is None else f"Mcp error: {error.code}: "
                activity.fail(f"{method} failed: {code}{error}")
                return activity.error
            text = truncate(text, DEFAULT_TOKENS)
            activity.complete(McpToolCallResult(content=[{"type": "text", "text": text}]))
        return text


class _List(_ResourceTool):
    method: ClassVar[str]
    key: ClassVar[ResourceKind]

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """List the resources of one server page by page, or those of all servers."""
        arguments = read_arguments(call, _Listing)
        if arguments.cursor and not arguments.server:
            raise ToolRefused("cursor can only be used when a server is specified")
        request = (lambda: self._of_one(arguments)) if arguments.server else self._of_all
        return await self._publish(call, turn, arguments.server, self.method, request)

    async def _of_one(self, arguments: _Listing) -> JsonValue:
        server = self._servers.get(arguments.server or "")
        page = await server.ask(self.method, {"cursor": arguments.cursor})
        listed = {"server": server.name, self.key: self._label(server, page.get(self.key) or [])}
        following = page.get("nextCursor")
        return {**listed, "nextCursor": following} if following else listed

    async def _of_all(self) -> JsonValue:
        entries: list[JsonValue] = []
        for server in self._servers:
            if server.status == "connected":
                entries += self._label(server, await server.list_resources(self.key))
        return {self.key: entries}

    def _label(self, server: McpServer, entries: list[Raw]) -> list[JsonValue]:
        return [{"server": server.name, **_ordered(entry)} for entry in entries]


class ListResources(_List):
    """Lists resources."""

    name = "list_mcp_resources"
    description = (
        "List the resources that MCP servers offer as context, such as files, schemas or "
        "application data. Prefer resources to a web search."
    )
    properties: ClassVar[dict[str, str]] = {
        "server": "Name of one MCP server. Omit it to list the resources of all servers.",
        "cursor": "Cursor returned with the server's previous page. Omit it for the first page.",
    }
    method = "resources/list"
    key: ClassVar[ResourceKind] = "resources"


class ListResourceTemplates(_List):
    """Lists resource templates."""

    name = "list_mcp_resource_templates"
    description = (
        "List the URI templates of parameterized resources that MCP servers offer. Prefer "
        "resources to a web search."
    )
    properties = ListResources.properties
    method = "resources/templates/list"
    key: ClassVar[ResourceKind] = "resourceTemplates"


class ReadResource(_ResourceTool):
    """Reads a resource."""

    name = "read_mcp_resource"
    description = "Read one resource of an MCP server."
    properties: ClassVar[dict[str, str]] = {
        "server": "Name of the MCP server, as returned by list_mcp_resources.",
        "uri": "URI of the resource, as returned by list_mcp_resources.",
    }
    required: ClassVar[tuple[str, ...]] = ("server", "uri")

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Return the resource with its URI."""
        arguments = read_arguments(call, _Reading)
        for name in self.required:
            if not getattr(arguments, name):
                raise ToolRefused(f"{name} must be provided")
        return await self._publish(
            call, turn, arguments.server, "resources/read", lambda: self._read(arguments)
        )

    async def _read(self, arguments: _Reading) -> JsonValue:
        raw = await self._servers.get(arguments.server).ask(
            "resources/read", {"uri": arguments.uri}
        )
        contents = [_ordered(part) for part in raw.get("contents") or []]
        return {"server": arguments.server, "uri": arguments.uri, **raw, "contents": contents}


def mcp_tools(thread: LoadedThread) -> list[ToolHandler]:
    """The MCP tools of a thread; none if it has no MCP server."""
    servers = thread.mcp
    if not servers.has_any:
        return []
    own: list[ToolHandler] = [McpTool(servers, thread.approvals, tool) for tool in servers.tools()]
    resources = (ListResources, ListResourceTemplates, ReadResource)
    return [*(kind(servers) for kind in resources), *own]


def _ordered(entry: Raw) -> Raw:
    """A resource with its URI first, as in the reference."""

    def place(key: str) -> int:
        return _ORDER.index(key) if key in _ORDER else len(_ORDER)

    return {key: entry[key] for key in sorted(entry, key=place)}


def _arguments(call: ToolCall) -> Raw:
    """The arguments of a call.

    Raises:
        ToolRefused: they are not a JSON object.
    """
    return read_arguments(call, dict[str, JsonValue])
