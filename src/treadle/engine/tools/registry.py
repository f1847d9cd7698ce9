"""The tools of a thread: what the model is offered, and what happens when it calls one.

A call always gets an output: an unknown tool, arguments that cannot be read and a tool that fails
are answers to the model, never the end of a turn.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from treadle.engine.errors import TurnCancelled
from treadle.engine.turn import ActiveTurn
from treadle.model.base import ModelItem, ModelTool
from treadle.protocol.base import JsonValue
from treadle.support.concurrency.shared_lock import SharedLock
from treadle.support.files.descriptors import is_shortage
from treadle.support.text.json_text import MAX_NESTING, is_nested_deeper

logger = logging.getLogger(__name__)

Output: TypeAlias = str | list[JsonValue]
"""What goes back to the model: text, or content parts when there are pictures."""

ToolName: TypeAlias = tuple[str | None, str]
"""The namespace of a tool, if it has one, and its name there."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of the model; `input` is JSON for a function, free text for a custom tool."""

    id: str
    name: str
    input: str
    is_custom: bool = False
    namespace: str | None = None
    # A search for tools in the form of its own that some models have for it.
    is_search: bool = False

    @property
    def flat_name(self) -> str:
        """The name as providers without namespaces have it."""
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


class ToolRefused(Exception):
    """The call cannot be carried out; the text is for the model."""


class ToolHandler(Protocol):
    """Something the model can call.

    A tool may also have `is_exclusive` (it runs alone among the calls of one answer), `namespace`
    and `namespace_description`, `is_deferred` (the model has to look for it first), and `is_hidden`
    (the model is not offered it, but understood if it calls it).
    """

    @property
    def name(self) -> str:
        """What the model calls it by."""
        ...

    def spec(self) -> ModelTool:
        """How the model is offered it."""
        ...

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Carry out a call.

        Raises:
            ToolRefused: it cannot be done; the model is told why.
        """
        ...


class Finder(Protocol):
    """Lets the model look for the tools that it is not offered from the start."""

    def found(self) -> Container[ToolName]:
        """The tools that the model has found and has to be offered from now on."""
        ...

    def tool(self, deferred: Sequence[ToolHandler]) -> ToolHandler:
        """The tool by which it looks for them."""
        ...


class ToolRegistry:
    """The tools that one thread has.

    `changing` gives those that come and go; they cannot take the name of one that stays, unless
    the model is not offered that one. `arriving` waits for the one of a name if it is on its way.
    """

    def __init__(
        self,
        tools: Iterable[ToolHandler] = (),
        *,
        changing: Callable[[], Iterable[ToolHandler]] = tuple,
        arriving: Callable[[str], Awaitable[None]] | None = None,
        finder: Finder | None = None,
    ) -> None:
        self._tools = {name_of(tool): tool for tool in tools}
        self._changing = changing
        self._arriving = arriving
        self._finder = finder
        self._gate = SharedLock()

    def specs(self) -> Sequence[ModelTool]:
        """How the model is offered them."""
        known = self._known()
        known = {name: tool for name, tool in known.items() if not is_hidden(tool)}
        deferred = {name for name, tool in known.items() if is_deferred(tool)}
        found = self._finder.found() if deferred and self._finder is not None else ()
        return _offer(tool for name, tool in known.items() if name not in deferred or name in found)

    def _known(self) -> dict[ToolName, ToolHandler]:
        known = dict(self._tools)
        for tool in self._changing():
            name = name_of(tool)
            if name not in known or is_hidden(known[name]):
                known[name] = tool
        deferred = [tool for tool in known.values() if is_deferred(tool)]
        if deferred and self._finder is not None:
            search = self._finder.tool(deferred)
            known.setdefault(name_of(search), search)
        return known

    def only(self, names: Container[str]) -> ToolRegistry:
        """A box with the tools of these names, as far as there are any that stay."""
        return ToolRegistry(tool for tool in self._tools.values() if tool.name in names)

    def find(self, call: ToolCall) -> ToolHandler | None:
        """The tool that a call is for, if there is one."""
        known = self._known()
        # In a history that Codex has written, tools of MCP servers are called in a namespace.
        return known.get((call.namespace, call.name)) or known.get((None, call.flat_name))

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Carry out a call, whatever comes of it."""
        tool = self.find(call)
        if tool is None and self._arriving is not None:
            await self._arriving(call.flat_name)
            tool = self.find(call)
        if tool is None:
            return f"unsupported call: {call.name}"
        try:
            async with self._gate.enter(alone=getattr(tool, "is_exclusive", False)):
                turn.check_storable()
                return await tool.run(call, turn)
        except ToolRefused as refusal:
            return str(refusal)
        except TurnCancelled:
            raise
        except Exception as error:
            if is_shortage(error):
                logger.warning("tool failed", extra={"tool": call.name, "reason": str(error)})
                return f"the tool {call.name} failed: {error}; the server is short of resources"
            logger.exception("tool failed", extra={"tool": call.name})
            turn.fail_item(call.id)
            return f"the tool {call.name} failed"


def name_of(tool: ToolHandler) -> ToolName:
    """What a tool is known by."""
    return getattr(tool, "namespace", None), tool.name


def is_deferred(tool: ToolHandler) -> bool:
    """Whether the model has to look for it before it is offered."""
    return bool(getattr(tool, "is_deferred", False))


def is_hidden(tool: ToolHandler) -> bool:
    """Whether it is carried out but not offered."""
    return bool(getattr(tool, "is_hidden", False))


def _offer(tools: Iterable[ToolHandler]) -> list[ModelTool]:
    """How the model is offered tools: those of one namespace together, where its first one is."""
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
    """The namespace of a tool, with these of its tools."""
    space, _ = name_of(tool)
    description = getattr(tool, "namespace_description", "")
    return {"type": "namespace", "name": space, "description": description, "tools": specs}


def read_call(item: ModelItem) -> ToolCall | None:
    """The call in an item of the model, if it is one that we carry out."""
    match item.get("type"):
        case "function_call":
            text = str(item.get("arguments") or "")
        case "custom_tool_call":
            text = str(item.get("input") or "")
        # A search that the provider runs by itself has no need of us.
        case "tool_search_call" if item.get("call_id") and item.get("execution") == "client":
            text = msgspec.json.encode(item.get("arguments")).decode()
            return ToolCall(str(item["call_id"]), "tool_search", text, is_search=True)
        case _:
            return None
    return ToolCall(
        id=str(item["call_id"]),
        name=str(item.get("name")),
        input=text,
        is_custom=item["type"] == "custom_tool_call",
        namespace=item.get("namespace"),
    )


def output_item(call: ToolCall, output: Output) -> ModelItem:
    """The output of a call as the model reads it."""
    if call.is_search:
        found = output if isinstance(output, list) else []
        about = {"call_id": call.id, "status": "completed", "execution": "client"}
        return {"type": "tool_search_output", **about, "tools": found}
    kind = "custom_tool_call_output" if call.is_custom else "function_call_output"
    return {"type": kind, "call_id": call.id, "output": output}


A = TypeVar("A")


def read_arguments(call: ToolCall, kind: type[A]) -> A:
    """Read the arguments of a call as the type that the tool declares.

    Raises:
        ToolRefused: they do not fit; the text says where.
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
    """A tool with named arguments, as the model is offered it."""
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
