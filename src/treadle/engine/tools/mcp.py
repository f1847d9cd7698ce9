"""The tools of MCP servers, and those by which the model reads their documents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Final, Self

import msgspec

from treadle.engine.mcp.approval import McpRefused, ToolUse, approve
from treadle.engine.mcp.content import failure_of, output_of, result_of
from treadle.engine.mcp.server import Documents, McpError, McpServer, Raw
from treadle.engine.mcp.servers import McpServers
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
    from treadle.engine.thread import LoadedThread
    from treadle.engine.tools.registry import ToolHandler
    from treadle.engine.turn import ActiveTurn

INTERRUPTED: Final = "MCP tool call was interrupted"
# Whose document a list of all documents is, in the words of the reference.
EVERYBODY: Final = "codex"
_ORDER: Final = ("uri", "uriTemplate", "name", "title", "description", "mimeType")
_NO_PARAMETERS: Final[Raw] = {"type": "object", "properties": {}}


class McpTool:
    """One tool of one server, in one thread."""

    def __init__(self, servers: McpServers, name: str, server: McpServer, tool: Raw) -> None:
        self.name = name
        self._servers = servers
        self._server = server
        self._tool = tool

    @property
    def is_exclusive(self) -> bool:
        """Whether its calls must not run beside others: unless it only reads, nobody knows."""
        return not (self._server.config.supports_parallel_tool_calls or self._hint is True)

    @property
    def _hint(self) -> bool | None:
        hints = self._tool.get("annotations")
        hint = hints.get("readOnlyHint") if isinstance(hints, dict) else None
        return hint if isinstance(hint, bool) else None

    def spec(self) -> ModelTool:
        """How the model is offered it."""
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
        """Ask if need be, call the tool, and tell what came of it."""
        arguments = _arguments(call)
        item = McpToolCallThreadItem(
            arguments=arguments,
            id=call.id,
            server=self._server.name,
            status="inProgress",
            tool=str(self._tool["name"]),
            read_only_hint=self._hint,
        )
        use = ToolUse(turn, call.id, self._server, self._tool, arguments)
        began = perf_counter()
        with _Told(turn, item) as told:
            try:
                await approve(self._servers, use)
                told.restart()
                raw = await self._call(turn, call.id, arguments)
            except McpRefused as refusal:
                told.fail(str(refusal))
                return failure_of(str(refusal), perf_counter() - began)
            except McpError as error:
                told.fail(f"tool call error: {self._describe(error)}")
                return failure_of(told.error, perf_counter() - began)
            told.complete(result_of(raw), is_error=raw.get("isError") is True)
        return output_of(raw, perf_counter() - began)

    async def _call(self, turn: ActiveTurn, call_id: str, arguments: Raw) -> Raw:
        def told(message: str) -> None:
            params = McpToolCallProgressNotification(call_id, message, turn.thread_id, turn.id)
            turn.log.publish(n.ITEM_MCP_TOOL_CALL_PROGRESS, params)

        meta: Raw = {"callId": call_id, "threadId": turn.thread_id, "turnId": turn.id}
        with self._servers.calling(self._server, call_id):
            return await self._server.call(str(self._tool["name"]), arguments, meta, told)

    def _describe(self, error: McpError) -> str:
        where = f"tool call failed for `{self._server.name}/{self._tool['name']}`"
        code = "" if error.code is None else f"Mcp error: {error.code}: "
        return f"{where}\n\nCaused by:\n    {code}{error}"


class _Told:
    """The item of a call: told when it begins, and once how it ended, whatever happens."""

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
        """Count the time from here on: how long the user took is not the tool's doing."""
        self._began = perf_counter()

    def fail(self, error: str) -> None:
        """The call came to nothing."""
        self.error = error
        self._end(status="failed", error=McpToolCallError(error))

    def complete(self, result: McpToolCallResult, *, is_error: bool = False) -> None:
        """The tool has answered, if only to say that it could not do it."""
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


class _DocumentTool:
    """A tool by which the model sees what servers have to read."""

    name: ClassVar[str]
    description: ClassVar[str]
    properties: ClassVar[dict[str, str]]
    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def spec(self) -> ModelTool:
        """How the model is offered it."""
        properties = {
            name: {"type": "string", "description": text} for name, text in self.properties.items()
        }
        return function_tool(self.name, self.description, properties, self.required)

    async def _tell(
        self,
        call: ToolCall,
        turn: ActiveTurn,
        server: str | None,
        method: str,
        ask: Callable[[], Awaitable[JsonValue]],
    ) -> Output:
        item = McpToolCallThreadItem(
            arguments=_arguments(call),
            id=call.id,
            server=server or EVERYBODY,
            status="inProgress",
            tool=self.name,
        )
        with _Told(turn, item) as told:
            try:
                text = msgspec.json.encode(await ask()).decode()
            except McpError as error:
                code = "" if error.code is None else f"Mcp error: {error.code}: "
                told.fail(f"{method} failed: {code}{error}")
                return told.error
            text = truncate(text, DEFAULT_TOKENS)
            told.complete(McpToolCallResult(content=[{"type": "text", "text": text}]))
        return text


class _List(_DocumentTool):
    method: ClassVar[str]
    key: ClassVar[Documents]

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """List what one server has, page by page, or what all of them have."""
        asked = read_arguments(call, _Listing)
        if asked.cursor and not asked.server:
            raise ToolRefused("cursor can only be used when a server is specified")
        ask = (lambda: self._of_one(asked)) if asked.server else self._of_all
        return await self._tell(call, turn, asked.server, self.method, ask)

    async def _of_one(self, asked: _Listing) -> JsonValue:
        server = self._servers.get(asked.server or "")
        page = await server.ask(self.method, {"cursor": asked.cursor})
        listed = {"server": server.name, self.key: self._label(server, page.get(self.key) or [])}
        following = page.get("nextCursor")
        return {**listed, "nextCursor": following} if following else listed

    async def _of_all(self) -> JsonValue:
        found: list[JsonValue] = []
        for server in self._servers:
            if server.status == "connected":
                found += self._label(server, await server.documents(self.key))
        return {self.key: found}

    def _label(self, server: McpServer, entries: list[Raw]) -> list[JsonValue]:
        return [{"server": server.name, **_ordered(entry)} for entry in entries]


class ListResources(_List):
    """Lists documents."""

    name = "list_mcp_resources"
    description = (
        "List the documents that MCP servers offer as context: files, schemas, records of an "
        "application. Prefer them over a search of the web."
    )
    properties: ClassVar[dict[str, str]] = {
        "server": "The name of one MCP server; leave it out to list those of all.",
        "cursor": "Where the last page of this server ended; leave it out at first.",
    }
    method = "resources/list"
    key: ClassVar[Documents] = "resources"


class ListResourceTemplates(_List):
    """Lists patterns of documents."""

    name = "list_mcp_resource_templates"
    description = (
        "List the patterns of addresses under which MCP servers have documents that take "
        "parameters. Prefer them over a search of the web."
    )
    properties = ListResources.properties
    method = "resources/templates/list"
    key: ClassVar[Documents] = "resourceTemplates"


class ReadResource(_DocumentTool):
    """Reads a document."""

    name = "read_mcp_resource"
    description = "Read one document of an MCP server."
    properties: ClassVar[dict[str, str]] = {
        "server": "The name of the MCP server, as list_mcp_resources gives it.",
        "uri": "The address of the document, as list_mcp_resources gives it.",
    }
    required: ClassVar[tuple[str, ...]] = ("server", "uri")

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Give the document with its address."""
        asked = read_arguments(call, _Reading)
        for name in self.required:
            if not getattr(asked, name):
                raise ToolRefused(f"{name} must be provided")
        return await self._tell(
            call, turn, asked.server, "resources/read", lambda: self._read(asked)
        )

    async def _read(self, asked: _Reading) -> JsonValue:
        raw = await self._servers.get(asked.server).ask("resources/read", {"uri": asked.uri})
        contents = [_ordered(part) for part in raw.get("contents") or []]
        return {"server": asked.server, "uri": asked.uri, **raw, "contents": contents}


def mcp_tools(thread: LoadedThread) -> list[ToolHandler]:
    """All of them, for one thread; none if it has no MCP server."""
    servers = thread.mcp
    if not servers.has_any:
        return []
    own: list[ToolHandler] = [McpTool(servers, *tool) for tool in servers.tools()]
    documents = (ListResources, ListResourceTemplates, ReadResource)
    return [*(kind(servers) for kind in documents), *own]


def _ordered(entry: Raw) -> Raw:
    """A document with its address first, as the reference writes it."""

    def place(key: str) -> int:
        return _ORDER.index(key) if key in _ORDER else len(_ORDER)

    return {key: entry[key] for key in sorted(entry, key=place)}


def _arguments(call: ToolCall) -> Raw:
    """The arguments as the tool's own schema has them.

    Raises:
        ToolRefused: they are no JSON object.
    """
    return read_arguments(call, dict[str, JsonValue])
