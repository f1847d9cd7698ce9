"""Translates tools and calls for providers that only support functions.

Free-text tools become functions with one string, namespaces become name prefixes, the tool search
becomes a function, and tools that the Responses service runs itself are omitted. Returned calls are
translated back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from treadle.model.base import ModelItem, ModelTool
from treadle.protocol.base import JsonValue

SEPARATOR: Final = "__"
TOOL_SEARCH: Final = "tool_search"
_MAX_NAME: Final = 64
_INPUT_SCHEMA: Final = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class Function(Struct, frozen=True):
    """A function for a provider, and the tool that it represents."""

    name: str
    description: str
    parameters: JsonValue
    tool: str
    namespace: str | None = None
    is_custom: bool = False
    strict: bool = False


class Functions:
    """The functions of one request, by the provider's names."""

    def __init__(self, tools: Sequence[ModelTool]) -> None:
        self.all = list(_functions_of(tools))
        self._by_name = {function.name: function for function in self.all}
        self._by_tool = {(made.namespace, made.tool): made.name for made in self.all}

    def name_of(self, item: ModelItem) -> str:
        """Return the provider's name for the tool of a call in the history."""
        namespace, tool = item.get("namespace"), str(item.get("name"))
        return self._by_tool.get((namespace, tool)) or _name(namespace, tool)

    def begin_call(self, name: str, call_id: str) -> ModelItem:
        """Return the item of a call whose arguments are still to come."""
        function = self._by_name.get(name)
        if function is not None and function.is_custom:
            kind: ModelItem = {"type": "custom_tool_call", "id": new_id("ctc"), "input": ""}
        else:
            kind = {"type": "function_call", "id": new_id("fc"), "arguments": ""}
        item = {**kind, "call_id": call_id, "name": function.tool if function else name}
        if function is not None and function.namespace is not None:
            item["namespace"] = function.namespace
        return {**item, "status": "in_progress"}

    def end_call(self, item: ModelItem, arguments: str) -> ModelItem:
        """Return the same item with its arguments."""
        if item["type"] == "custom_tool_call":
            return {**item, "input": _input_of(arguments), "status": "completed"}
        # A function without parameters is often called with no arguments at all.
        return {**item, "arguments": arguments.strip() or "{}", "status": "completed"}


def arguments_of(item: ModelItem) -> str:
    """Return the JSON arguments of a call in the history, for the function of its tool."""
    if item.get("type") == "custom_tool_call":
        return msgspec.json.encode({"input": item.get("input")}).decode()
    if item.get("type") == "local_shell_call":
        return msgspec.json.encode(item.get("action")).decode()
    arguments = item.get("arguments")
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def new_id(prefix: str) -> str:
    """Return an id for a call without one."""
    return f"{prefix}_{uuid.uuid4().hex}"


def _functions_of(tools: Iterable[ModelTool], namespace: str | None = None) -> Iterable[Function]:
    for tool in tools:
        kind, name = tool.get("type"), tool.get("name")
        if kind == "namespace" and isinstance(tool.get("tools"), list):
            yield from _functions_of(tool["tools"], str(name))
            continue
        if kind == TOOL_SEARCH and tool.get("execution") == "client":
            kind, name = "function", TOOL_SEARCH
        if kind == "function" and isinstance(name, str):
            yield Function(
                name=_name(namespace, name),
                description=str(tool.get("description") or ""),
                parameters=tool.get("parameters") or {"type": "object", "properties": {}},
                tool=name,
                namespace=namespace,
                strict=tool.get("strict") is True,
            )
        elif kind == "custom" and isinstance(name, str):
            yield Function(
                name=_name(namespace, name),
                description=_described(tool),
                parameters=_INPUT_SCHEMA,
                tool=name,
                namespace=namespace,
                is_custom=True,
            )


def _described(tool: ModelTool) -> str:
    description = str(tool.get("description") or "")
    layout = tool.get("format")
    if isinstance(layout, dict) and isinstance(layout.get("definition"), str):
        syntax = layout.get("syntax") or "grammar"
        description += f"\n\n`input` follows this {syntax} grammar:\n{layout['definition']}"
    return description


def _name(namespace: JsonValue, tool: str) -> str:
    name = f"{namespace}{SEPARATOR}{tool}" if namespace else tool
    return name[-_MAX_NAME:]


def _input_of(arguments: str) -> str:
    """Return the free text in the arguments, or the arguments if the model did not wrap it."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    if isinstance(value, dict) and isinstance(value.get("input"), str):
        return str(value["input"])
    return value if isinstance(value, str) else arguments
