"""Client tools: Python functions that the model can call."""

from __future__ import annotations

import base64
import inspect
import logging
import mimetypes
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, get_type_hints, overload

import msgspec
from msgspec import NODEFAULT

from treadle.client._runtime.callbacks import call
from treadle.client._runtime.schema import read_as, schema_of, to_json
from treadle.protocol.base import JsonValue
from treadle.protocol.tool import (
    DynamicToolCallOutputContentItem,
    DynamicToolCallParams,
    DynamicToolCallResponse,
    FunctionDynamicToolSpec,
    InputAudioDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
)

Function: TypeAlias = Callable[..., object]

_PARAMETER: Final = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*+(.*)$")
_SECTION: Final = re.compile(r"^\s*(Args|Arguments|Parameters):\s*$")
_OTHER_SECTION: Final = re.compile(r"^\s*(Returns|Raises|Yields|Examples?|Notes?):\s*$")

logger = logging.getLogger(__name__)


class ToolError(Exception):
    """Raise this in a tool to report an error to the model without logging a traceback."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The ids of a tool call; a parameter of this type receives them, hidden from the model."""

    thread_id: str
    turn_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a tool's result: bytes, a file, or a URL."""

    source: bytes | Path | str
    media_type: str | None = None

    @property
    def url(self) -> str:
        """The image as a URL: a given URL, else a `data:` URL."""
        if isinstance(self.source, str):
            return self.source
        kind = self.media_type
        data = self.source
        if isinstance(data, Path):
            kind = kind or mimetypes.guess_type(data.name)[0]
            data = data.read_bytes()
        return f"data:{kind or 'image/png'};base64,{base64.b64encode(data).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A client tool; without an `arguments` type its function receives one JSON document."""

    name: str
    description: str
    input_schema: JsonValue
    function: Function
    arguments: type[msgspec.Struct] | None = None
    context_name: str | None = None

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def spec(self) -> FunctionDynamicToolSpec:
        """Return the specification that is sent to the server."""
        return FunctionDynamicToolSpec(
            description=self.description, input_schema=self.input_schema, name=self.name
        )

    async def run(self, params: DynamicToolCallParams) -> object:
        """Call the function with the model's arguments.

        Raises:
            ValueError: the arguments do not match the schema.
        """
        if self.arguments is None:
            return await call(self.function, params.arguments)
        arguments = read_as(self.arguments, params.arguments or {})
        values = {name: getattr(arguments, name) for name in arguments.__struct_fields__}
        if self.context_name is not None:
            context = ToolContext(params.thread_id, params.turn_id, params.call_id)
            values[self.context_name] = context
        return await call(self.function, **values)


ToolLike: TypeAlias = Tool | Function


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None
) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Make a tool from a function: schema from the signature, descriptions from the docstring."""

    def make(function: Function) -> Tool:
        return make_tool(function, name=name, description=description)

    return make if function is None else make(function)


def make_tool(
    function: ToolLike, *, name: str | None = None, description: str | None = None
) -> Tool:
    """Make a tool from a function; return a `Tool` unchanged.

    Raises:
        TypeError: a parameter has no type annotation, or its type has no JSON form.
    """
    if isinstance(function, Tool):
        return function
    if not callable(function):
        raise TypeError(f"a tool is a function, not {function!r}")
    summary, descriptions = _read_docstring(inspect.getdoc(function) or "")
    tool_name: str = name or getattr(function, "__name__", None) or type(function).__name__
    fields, context_name = _fields(function, tool_name, descriptions)
    arguments = msgspec.defstruct(tool_name, fields, kw_only=True, forbid_unknown_fields=True)
    schema = {key: value for key, value in schema_of(arguments).items() if key != "title"}
    return Tool(
        name=tool_name,
        description=description or summary,
        input_schema=schema,
        function=function,
        arguments=arguments,
        context_name=context_name,
    )


def _fields(
    function: Function, name: str, descriptions: Mapping[str, str]
) -> tuple[list[tuple[str, Any, Any]], str | None]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"tool {name!r}: the type {error.name!r} is not known here") from error
    fields: list[tuple[str, Any, Any]] = []
    context_name = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"tool {name!r}: a tool cannot take {parameter}")
        if parameter.name not in hints:
            raise TypeError(f"tool {name!r}: parameter {parameter.name!r} has no type")
        kind = hints[parameter.name]
        if kind is ToolContext:
            context_name = parameter.name
            continue
        if parameter.name in descriptions and not _is_described(kind):
            kind = Annotated[kind, msgspec.Meta(description=descriptions[parameter.name])]
        has_default = parameter.default is not parameter.empty
        fields.append((parameter.name, kind, parameter.default if has_default else NODEFAULT))
    return fields, context_name


def _is_described(kind: object) -> bool:
    return any(getattr(each, "description", None) for each in getattr(kind, "__metadata__", ()))


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the summary and the parameter descriptions of a docstring in Google style."""
    summary: list[str] = []
    descriptions: dict[str, str] = {}
    section, current = "summary", ""
    for line in text.splitlines():
        if _SECTION.match(line):
            section = "parameters"
        elif _OTHER_SECTION.match(line):
            section = "other"
        elif section == "summary":
            summary.append(line)
        elif section == "parameters" and (match := _PARAMETER.match(line)):
            current = match[1]
            descriptions[current] = match[2].strip()
        elif section == "parameters" and current and line.strip():
            descriptions[current] = f"{descriptions[current]} {line.strip()}"
    return "\n".join(summary).strip(), descriptions


class ClientTools:
    """The tools of one client: shared by its threads, or bound to one thread."""

    def __init__(self) -> None:
        self._shared: dict[str, Tool] = {}
        self._by_thread: dict[str, dict[str, Tool]] = {}

    def add(self, tool: Tool) -> None:
        """Add a tool to every thread that starts from now on."""
        self._shared[tool.name] = tool

    def specs(self, tools: Iterable[Tool]) -> list[FunctionDynamicToolSpec]:
        """Return the specifications of the shared tools and of these."""
        return [tool.spec() for tool in {**self._shared, **_by_name(tools)}.values()]

    def bind(self, thread_id: str, tools: Iterable[Tool]) -> None:
        """Bind tools to one thread."""
        self._by_thread.setdefault(thread_id, {}).update(_by_name(tools))

    def unbind(self, thread_id: str) -> None:
        """Remove the tools that are bound to a thread."""
        self._by_thread.pop(thread_id, None)

    async def call(self, params: DynamicToolCallParams) -> DynamicToolCallResponse:
        """Run a tool call; errors are reported to the model."""
        bound = self._by_thread.get(params.thread_id, {})
        tool = bound.get(params.tool) or self._shared.get(params.tool)
        if tool is None:
            return _failure(f"Unsupported dynamic tool {params.tool!r}.")
        try:
            return response_of(await tool.run(params))
        except ToolError as error:
            return _failure(str(error))
        except Exception as error:  # user callback: the model receives the error
            logger.exception("tool failed", extra={"tool": params.tool})
            return _failure(f"{type(error).__name__}: {error}")


def _by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools}


def _failure(text: str) -> DynamicToolCallResponse:
    return DynamicToolCallResponse([_text(text)], success=False)


def response_of(value: object) -> DynamicToolCallResponse:
    """Convert the return value of a tool to the protocol's response."""
    if isinstance(value, DynamicToolCallResponse):
        return value
    is_mixed = isinstance(value, list | tuple) and any(isinstance(each, _RICH) for each in value)
    parts = value if isinstance(value, list | tuple) and is_mixed else [value]
    return DynamicToolCallResponse([_content(part) for part in parts], success=True)


def _content(value: object) -> DynamicToolCallOutputContentItem:
    if isinstance(value, Image):
        return InputImageDynamicToolCallOutputContentItem(value.url)
    if isinstance(value, _ITEMS):
        return value
    if value is None:
        return _text("")
    return _text(value if isinstance(value, str) else to_json(value))


def _text(text: str) -> InputTextDynamicToolCallOutputContentItem:
    # File names may contain lone surrogates, which cannot be encoded as UTF-8.
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return InputTextDynamicToolCallOutputContentItem(valid)


_ITEMS: Final = (
    InputTextDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputAudioDynamicToolCallOutputContentItem,
)
_RICH: Final = (Image, *_ITEMS)
