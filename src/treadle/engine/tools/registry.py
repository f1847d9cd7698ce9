"""The tools of a thread: their definitions for the model, and the dispatch of calls.

A call always gets an output: an unknown tool, invalid arguments or a tool that fails do not end
the turn.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from treadle.engine.errors import TurnCancelled
from treadle.engine.step_logs import log_tool
from treadle.engine.turn import ActiveTurn
from treadle.model.base import ModelItem, ModelTool
from treadle.protocol.base import JsonValue
from treadle.support.concurrency.shared_lock import SharedLock
from treadle.support.files.descriptors import is_shortage
from treadle.support.text.json_text import MAX_NESTING, is_nested_deeper

logger = logging.getLogger(__name__)

Output: TypeAlias = str | list[JsonValue]
"""The output of a tool: text, or content parts if there are images."""

ToolName: TypeAlias = tuple[str | None, str]
"""The namespace of a tool, if it has one, and its name."""


class ToolCall(Struct, frozen=True):
    """One tool call; `input` is JSON for a function, free text for a custom tool."""

    id: str
    name: str
    input: str
    is_custom: bool = False
    namespace: str | None = None
    # A tool search in the native format of some models.
    is_search: bool = False

    @property
    def flat_name(self) -> str:
        """The name for providers without namespaces."""
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


class ToolRefused(Exception):
    """The call cannot be run; the text is for the model."""


class ToolHandler(Protocol):
    """A tool that the model can call.

    A tool may also have `is_exclusive` (not run in parallel with other calls), `namespace` and
    `namespace_description`, `is_deferred` (the model must search for it first), and `is_hidden`
    (not offered to the model, but run if the model calls it).
    """

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        ...

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        ...

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Run a call.

        Raises:
            ToolRefused: the call cannot be run; the model receives the text.
        """
        ...


class Finder(Protocol):
    """Lets the model search for tools that are not offered from the start."""

    @property
    def is_enabled(self) -> bool:
        """Whether the model may search."""
        ...

    def found_tools(self) -> Container[ToolName]:
        """The tools that the model has found, which are offered from now on."""
        ...

    def tool(self, deferred: Sequence[ToolHandler]) -> ToolHandler:
        """The tool that searches the deferred tools."""
        ...


class ToolRegistry:
    """The tools of one thread.

    `tools` returns the fixed ones, which follow the features in force. `changing` returns the tools
    that may change otherwise; they cannot replace a fixed tool of the same name unless that one is
    hidden. `arriving` waits for a tool that is still loading.
    """

    def __init__(
        self,
        tools: Callable[[], Iterable[ToolHandler]] = tuple,
        *,
        changing: Callable[[], Iterable[ToolHandler]] = tuple,
        arriving: Callable[[str], Awaitable[None]] | None = None,
        finder: Finder | None = None,
    ) -> None:
        self._tools = tools
        self._changing = changing
        self._arriving = arriving
        self._finder = finder
        self._gate = SharedLock()

    def specs(self) -> Sequence[ModelTool]:
        """The definitions that the model sees."""
        known = self._known()
        known = {name: tool for name, tool in known.items() if not is_hidden(tool)}
        deferred = {name for name, tool in known.items() if is_deferred(tool)}
        offered = self._finder.found_tools() if deferred and self._finder is not None else ()
        return _offer(
            tool for name, tool in known.items() if name not in deferred or name in offered
        )

    def _known(self) -> dict[ToolName, ToolHandler]:
        known = {name_of(tool): tool for tool in self._tools()}
        for tool in self._changing():
            name = name_of(tool)
            if name not in known or is_hidden(known[name]):
                known[name] = tool
        deferred = [tool for tool in known.values() if is_deferred(tool)]
        if deferred and self._finder is not None and self._finder.is_enabled:
            search = self._finder.tool(deferred)
            known.setdefault(name_of(search), search)
        return known

    def only(self, names: Container[str]) -> ToolRegistry:
        """A registry with the fixed tools of these names."""
        return ToolRegistry(lambda: (tool for tool in self._tools() if tool.name in names))

    def find(self, call: ToolCall) -> ToolHandler | None:
        """The tool of a call, if there is one."""
        known = self._known()
        # In a history written by Codex, calls of MCP tools have a namespace.
        return known.get((call.namespace, call.name)) or known.get((None, call.flat_name))

    async def resolve(self, call: ToolCall) -> ToolHandler | None:
        """The tool of a call, if there is one; waits for one that is still loading."""
        tool = self.find(call)
        if tool is None and self._arriving is not None:
            await self._arriving(call.flat_name)
            tool = self.find(call)
        return tool

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Run a call; errors and refusals become its output."""
        try:
            return await self.attempt(call, turn)
        except ToolRefused as refusal:
            return str(refusal)

    async def attempt(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Run a call; errors become its output.

        Raises:
            ToolRefused: the call was not run; the text is its output.
        """
        tool = await self.resolve(call)
        log_tool("tool called", turn, call.id, call.name)
        if tool is None:
            return unsupported(call)
        try:
            async with self._gate.enter(alone=getattr(tool, "is_exclusive", False)):
                turn.check_storable()
                output = await tool.run(call, turn)
                log_tool("tool answered", turn, call.id, call.name)
                return output
        except ToolRefused:
            log_tool("tool refused", turn, call.id, call.name)
            raise
        except TurnCancelled:
            raise
        except Exception as error:  # dispatcher: the model receives the error, the turn continues
            if is_shortage(error):
                logger.warning("tool failed", extra={"tool": call.name, "reason": str(error)})
                return f"the tool {call.name} failed: {error}; the server lacks resources"
            logger.exception("tool failed", extra={"tool": call.name})
            turn.fail_item(call.id)
            return f"the tool {call.name} failed"


def unsupported(call: ToolCall) -> str:
    """The output of a call of an unknown tool."""
    return f"unsupported call: {call.name}"


def name_of(tool: ToolHandler) -> ToolName:
    """The namespace and name of a tool."""
    return getattr(tool, "namespace", None), tool.name


def is_deferred(tool: ToolHandler) -> bool:
    """Whether the model must search for the tool before it is offered."""
    return bool(getattr(tool, "is_deferred", False))


def is_hidden(tool: ToolHandler) -> bool:
    """Whether calls of the tool are run although it is not offered."""
    return bool(getattr(tool, "is_hidden", False))


def _offer(tools: Iterable[ToolHandler]) -> list[ModelTool]:
    """The definitions of tools; those of a namespace are together, in the place of its first."""
    specs: list[ModelTool] = []
    spaces: dict[str, list[ModelTool]] = {}
    for tool in tools:
        space, _ = name_of(tool)
        if space is None:
            specs.append(tool.spec())
            continue
        if space not in spaces:
            spaces[space] = []
            specs.append(in_namespace(tool, spaces[space]))
        spaces[space].append(tool.spec())
    return specs


def in_namespace(tool: ToolHandler, specs: list[ModelTool]) -> ModelTool:
    """The definition of a tool's namespace, with these tools."""
    space, _ = name_of(tool)
    description = getattr(tool, "namespace_description", "")
    return {"type": "namespace", "name": space, "description": description, "tools": specs}


def read_call(item: ModelItem) -> ToolCall | None:
    """The call in an item of the model, if it is a call that the server runs."""
    match item.get("type"):
        case "function_call":
            text = str(item.get("arguments") or "")
        case "custom_tool_call":
            text = str(item.get("input") or "")
        # The provider runs other searches itself.
        case "tool_search_call" if item.get("call_id") and item.get("execution") == "client":
            text = msgspec.json.encode(item.get("arguments")).decode()
            return ToolCall(str(item["call_id"]), "tool_search", text, is_search=True)
        case _:
            return None
    namespace = item.get("namespace")
    return ToolCall(
        id=str(item["call_id"]),
        name=str(item.get("name")),
        input=text,
        is_custom=item["type"] == "custom_tool_call",
        # An empty one is none: it must not set the call apart from others of the same tool.
        namespace=namespace if isinstance(namespace, str) and namespace else None,
    )


def output_item(call: ToolCall, output: Output) -> ModelItem:
    """The output of a call as an item for the model."""
    if call.is_search:
        tools = output if isinstance(output, list) else []
        about = {"call_id": call.id, "status": "completed", "execution": "client"}
        return {"type": "tool_search_output", **about, "tools": tools}
    kind = "custom_tool_call_output" if call.is_custom else "function_call_output"
    return {"type": kind, "call_id": call.id, "output": output}


A = TypeVar("A")


def read_arguments(call: ToolCall, kind: type[A]) -> A:
    """Decode the arguments of a call as the type that the tool declares.

    Raises:
        ToolRefused: they do not match the type; the text says where.
    """
    return decode_arguments(call.input or "{}", kind)


def decode_arguments(text: str, kind: type[A]) -> A:
    """Decode arguments that a model wrote.

    Raises:
        ToolRefused: they are not JSON of this type, or nested too deeply to be stored.
    """
    if is_nested_deeper(text.encode(errors="replace")):
        reason = f"nested deeper than {MAX_NESTING} levels"
        raise ToolRefused(f"failed to parse function arguments: {reason}")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ToolRefused(f"failed to parse function arguments: {error}") from error


def function_tool(
    name: str, description: str, properties: JsonValue, required: Sequence[str] = ()
) -> ModelTool:
    """The definition of a tool with named arguments."""
    return {
        "type": "function",
        "name": name,
        "description": description,
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        },
    }
