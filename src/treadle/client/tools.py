"""Python functions as tools of the model: their schemas, their calls, their results."""

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

_NAMED: Final = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*+(.*)$")
_SECTION: Final = re.compile(r"^\s*(Args|Arguments|Parameters):\s*$")
_OTHER_SECTION: Final = re.compile(r"^\s*(Returns|Raises|Yields|Examples?|Notes?):\s*$")

logger = logging.getLogger(__name__)


class ToolError(Exception):
    """Raise this in a tool to tell the model what went wrong, without a traceback in the log."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The call that a tool serves: a parameter of this type is filled in, hidden from the model."""

    thread_id: str
    turn_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a tool's result: bytes, a file, or a URL."""

    source: bytes | Path | str
    media_type: str | None = None

    @property
    def url(self) -> str:
        """The picture as a URL that carries its data, unless it is one already."""
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
    """A tool that the client brings; without `arguments` its function gets them as one document."""

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
        """The tool as the server is told of it."""
        return FunctionDynamicToolSpec(
            description=self.description, input_schema=self.input_schema, name=self.name
        )

    async def run(self, params: DynamicToolCallParams) -> object:
        """Call the function with the model's arguments.

        Raises:
            ValueError: the arguments do not fit.
        """
        if self.arguments is None:
            return await call(self.function, params.arguments)
        given = read_as(self.arguments, params.arguments or {})
        values = {name: getattr(given, name) for name in given.__struct_fields__}
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
    """Make a tool of a function: its schema from the signature, its words from the docstring."""

    def make(function: Function) -> Tool:
        return make_tool(function, name=name, description=description)

    return make if function is None else make(function)


def make_tool(
    function: ToolLike, *, name: str | None = None, description: str | None = None
) -> Tool:
    """Make a tool of a function; a tool stays what it is.

    Raises:
        TypeError: a parameter has no type, or one that JSON cannot carry.
    """
    if isinstance(function, Tool):
        return function
    if not callable(function):
        raise TypeError(f"a tool is a function, not {function!r}")
    about, words = _read_docstring(inspect.getdoc(function) or "")
    called: str = name or getattr(function, "__name__", None) or type(function).__name__
    fields, context_name = _fields(function, called, words)
    arguments = msgspec.defstruct(called, fields, kw_only=True, forbid_unknown_fields=True)
    schema = {key: value for key, value in schema_of(arguments).items() if key != "title"}
    return Tool(
        name=called,
        description=description or about,
        input_schema=schema,
        function=function,
        arguments=arguments,
        context_name=context_name,
    )


def _fields(
    function: Function, name: str, words: Mapping[str, str]
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
        if parameter.name in words and not _is_described(kind):
            kind = Annotated[kind, msgspec.Meta(description=words[parameter.name])]
        has_default = parameter.default is not parameter.empty
        fields.append((parameter.name, kind, parameter.default if has_default else NODEFAULT))
    return fields, context_name


def _is_described(kind: object) -> bool:
    return any(getattr(each, "description", None) for each in getattr(kind, "__metadata__", ()))


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What a function does, and what its parameters mean, from a docstring in Google's style."""
    about: list[str] = []
    words: dict[str, str] = {}
    section, current = "about", ""
    for line in text.splitlines():
        if _SECTION.match(line):
            section = "parameters"
        elif _OTHER_SECTION.match(line):
            section = "other"
        elif section == "about":
            about.append(line)
        elif section == "parameters" and (named := _NAMED.match(line)):
            current = named[1]
            words[current] = named[2].strip()
        elif section == "parameters" and current and line.strip():
            words[current] = f"{words[current]} {line.strip()}"
    return "\n".join(about).strip(), words


class ClientTools:
    """The tools of one client: some for all its threads, some for one."""

    def __init__(self) -> None:
        self._shared: dict[str, Tool] = {}
        self._by_thread: dict[str, dict[str, Tool]] = {}

    def add(self, tool: Tool) -> None:
        """Offer a tool to every thread that is started from now on."""
        self._shared[tool.name] = tool

    def specs(self, tools: Iterable[Tool]) -> list[FunctionDynamicToolSpec]:
        """What the server is told: the shared tools and these."""
        return [tool.spec() for tool in {**self._shared, **_by_name(tools)}.values()]

    def bind(self, thread_id: str, tools: Iterable[Tool]) -> None:
        """Let these serve one thread."""
        self._by_thread.setdefault(thread_id, {}).update(_by_name(tools))

    def unbind(self, thread_id: str) -> None:
        """Let nothing but the shared tools serve a thread any more."""
        self._by_thread.pop(thread_id, None)

    async def call(self, params: DynamicToolCallParams) -> DynamicToolCallResponse:
        """Serve a call; whatever goes wrong is told to the model."""
        own = self._by_thread.get(params.thread_id, {})
        found = own.get(params.tool) or self._shared.get(params.tool)
        if found is None:
            return _failure(f"Unsupported dynamic tool {params.tool!r}.")
        try:
            return response_of(await found.run(params))
        except ToolError as error:
            return _failure(str(error))
        except Exception as error:
            logger.exception("tool failed", extra={"tool": params.tool})
            return _failure(f"{type(error).__name__}: {error}")


def _by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools}


def _failure(text: str) -> DynamicToolCallResponse:
    return DynamicToolCallResponse([_text(text)], success=False)


def response_of(value: object) -> DynamicToolCallResponse:
    """What a tool returned, as the model gets it."""
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
    # Names of files may hold halves of characters, which no message can carry.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return InputTextDynamicToolCallOutputContentItem(whole)


_ITEMS: Final = (
    InputTextDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputAudioDynamicToolCallOutputContentItem,
)
_RICH: Final = (Image, *_ITEMS)
