"""The tools of a thread: what the model is offered, and what happens when it calls one.

A call always gets an output: an unknown tool, arguments that cannot be read and a tool that fails
are answers to the model, never the end of a turn.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from treadle.engine.turn import Turn
from treadle.model.base import ModelItem, ModelTool
from treadle.protocol.base import JsonValue

logger = logging.getLogger(__name__)

Output: TypeAlias = str | list[JsonValue]
"""What goes back to the model: text, or content parts when there are pictures."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of the model; `input` is JSON for a function, free text for a custom tool."""

    id: str
    name: str
    input: str
    is_custom: bool = False
    namespace: str | None = None


class ToolRefused(Exception):
    """The call cannot be carried out; the text is for the model."""


class Tool(Protocol):
    """Something the model can call."""

    @property
    def name(self) -> str:
        """What the model calls it by."""
        ...

    def spec(self) -> ModelTool:
        """How the model is offered it."""
        ...

    async def run(self, call: ToolCall, turn: Turn) -> Output:
        """Carry out a call.

        Raises:
            ToolRefused: it cannot be done; the model is told why.
        """
        ...


class Toolbox:
    """The tools that one thread has."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def specs(self) -> Sequence[ModelTool]:
        """How the model is offered them."""
        return [tool.spec() for tool in self._tools.values()]

    async def run(self, call: ToolCall, turn: Turn) -> Output:
        """Carry out a call, whatever comes of it."""
        tool = self._tools.get(call.name)
        if tool is None:
            return f"unsupported call: {call.name}"
        try:
            return await tool.run(call, turn)
        except ToolRefused as refusal:
            return str(refusal)
        except Exception:
            logger.exception("tool failed", extra={"tool": call.name})
            return f"the tool {call.name} failed"


def read_call(item: ModelItem) -> ToolCall | None:
    """The call in an item of the model, if it is one that we carry out."""
    kind = item.get("type")
    if kind not in ("function_call", "custom_tool_call"):
        return None
    is_custom = kind == "custom_tool_call"
    return ToolCall(
        id=str(item["call_id"]),
        name=str(item.get("name")),
        input=str(item.get("input" if is_custom else "arguments") or ""),
        is_custom=is_custom,
        namespace=item.get("namespace"),
    )


def output_item(call: ToolCall, output: Output) -> ModelItem:
    """The output of a call as the model reads it."""
    kind = "custom_tool_call_output" if call.is_custom else "function_call_output"
    return {"type": kind, "call_id": call.id, "output": output}


A = TypeVar("A", bound=msgspec.Struct)


def read_arguments(call: ToolCall, kind: type[A]) -> A:
    """Read the arguments of a call as the struct that the tool declares.

    Raises:
        ToolRefused: they do not fit; the text says where.
    """
    try:
        return msgspec.json.decode(call.input or "{}", type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ToolRefused(f"failed to parse function arguments: {error}") from error
