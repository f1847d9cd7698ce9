"""The tool search: a deferred tool is offered only after the model has found it.

The tools found are read from the model context. So they survive a restart, and a compaction that
removes a tool from the context hides it again.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.apps.tools import App
from treadle.engine.tools.registry import (
    Output,
    ToolCall,
    ToolHandler,
    ToolName,
    ToolRefused,
    in_namespace,
    name_of,
    read_arguments,
)
from treadle.model.base import ModelItem, ModelTool
from treadle.model.catalog import traits_of
from treadle.protocol.base import JsonValue
from treadle.support.concurrency.workers import Workers

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

NAME: Final = "tool_search"
DEFAULT_LIMIT: Final = 8
MAX_SHOWN: Final = 100
"""The most MCP tools that are offered without a search."""

ALWAYS_DEFER: Final = "tool_search_always_defer_mcp_tools"
"""The feature that defers all MCP tools."""

MCP_PREFIX: Final = "mcp__"

MAX_SEARCHED: Final = 4096
"""How many characters of a tool's name and description are searched."""

MAX_QUERY: Final = 4096
"""The most characters of a query."""

# The usual constants of BM25: saturation of repeated words, and weight of the length.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75
_STOP_WORDS: Final = frozenset("a an and by for from in is it of on or the to with".split())
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]+")


class _Arguments(msgspec.Struct):
    query: str
    limit: int = DEFAULT_LIMIT


class ToolFinder:
    """Searches the deferred tools of one thread."""

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    @property
    def is_enabled(self) -> bool:
        """Whether the feature is on."""
        return self._thread.settings.is_enabled("tool_search")

    def found_tools(self) -> set[ToolName]:
        """The tools to offer because the model has found them.

        A model with native tool search reads the definitions from the output of the search.
        """
        items = self._thread.context.history.items
        found = set(_found_by_function(items))
        return found if self.is_native else found | set(_found_natively(items))

    def tool(self, deferred: Sequence[ToolHandler]) -> ToolHandler:
        """The tool that searches the deferred tools."""
        return ToolSearch(deferred, self._thread.services.text_workers, is_native=self.is_native)

    @property
    def is_native(self) -> bool:
        """Whether the model has native tool search."""
        return traits_of(self._thread.settings.model).is_modern


class ToolSearch:
    """Finds deferred tools by the words of a query."""

    name = NAME

    def __init__(
        self, deferred: Sequence[ToolHandler], workers: Workers, *, is_native: bool
    ) -> None:
        self._deferred = deferred
        self._workers = workers
        self._is_native = is_native

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        spaces = sorted({space for space, _ in map(name_of, self._deferred) if space})
        sources = f" in {', '.join(spaces)}" if spaces else ""
        spec: ModelTool = {
            "description": f"Search the names and descriptions of {len(self._deferred)} more "
            f"tools{sources} that are not listed. You can call the tools that a search returns.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {
                        "type": "string",
                        "description": "What the tool should do, in keywords.",
                    },
                    "limit": {
                        "type": "number",
                        "description": f"Maximum number of results (default {DEFAULT_LIMIT}).",
                    },
                },
                "required": ["query"],
                "additionalProperties": False,
            },
        }
        if self._is_native:
            return {"type": NAME, "execution": "client", **spec}
        return {"type": "function", "name": NAME, "strict": False, **spec}

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:  # noqa: ARG002 - a tool's signature
        """Return the tools that match best, the best first."""
        arguments = read_arguments(call, _Arguments)
        if not arguments.query.strip():
            raise ToolRefused("query must not be empty")
        if len(arguments.query) > MAX_QUERY:
            length = len(arguments.query)
            raise ToolRefused(f"query must have at most {MAX_QUERY} characters, not {length}")
        if arguments.limit <= 0:
            raise ToolRefused("limit must be greater than zero")
        # Off the event loop: servers may have thousands of tools with long descriptions.
        return await self._workers.run(self._search, arguments, is_native=call.is_search)

    def _search(self, arguments: _Arguments, *, is_native: bool) -> Output:
        matches = rank(arguments.query, self._deferred)[: arguments.limit]
        if is_native:
            return _as_specs(matches)
        tools = [
            {"namespace": space, "name": name, "description": tool.spec().get("description", "")}
            for tool in matches
            for space, name in [name_of(tool)]
        ]
        return msgspec.json.encode({"tools": tools}).decode()


class Deferred:
    """A tool that the model must search for, because there are too many to offer."""

    is_deferred = True

    def __init__(self, tool: ToolHandler) -> None:
        self._tool = tool
        self.namespace, self.name = name_of(tool)
        self.namespace_description = getattr(tool, "namespace_description", "")
        self.is_exclusive = getattr(tool, "is_exclusive", False)
        self.spec = tool.spec
        self.run = tool.run


def defer_mcp_tools(thread: LoadedThread, tools: Sequence[ToolHandler]) -> list[ToolHandler]:
    """Defer the tools of MCP servers if there are too many to offer.

    Those of apps are also deferred if the model has native tool search, but not those of apps that
    the user mentions in this turn.
    """
    settings = thread.settings
    if not settings.is_enabled("tool_search"):
        return list(tools)
    of_servers = sum(_is_of_server(tool) for tool in tools)
    is_many = of_servers > MAX_SHOWN or settings.is_enabled(ALWAYS_DEFER)
    defers_apps = is_many or traits_of(settings.model).is_modern
    apps = {app for tool in tools if (app := app_behind(tool)) is not None}
    mentioned = thread.context.mentions.apps_among(apps) if defers_apps else ()

    def defers(tool: ToolHandler) -> bool:
        app = app_behind(tool)
        if app is not None:
            return defers_apps and app.id not in mentioned
        return is_many and _is_of_server(tool)

    return [Deferred(tool) if defers(tool) else tool for tool in tools]


def app_behind(tool: ToolHandler) -> App | None:
    """Return the app that a tool is part of."""
    app = getattr(tool, "app", None)
    return app if isinstance(app, App) else None


def _is_of_server(tool: ToolHandler) -> bool:
    space, name = name_of(tool)
    return (space or name).startswith(MCP_PREFIX)


def rank(query: str, tools: Sequence[ToolHandler]) -> list[ToolHandler]:
    """The tools that contain words of the query, ranked by BM25."""
    documents = [Counter(_words(_text(tool))) for tool in tools]
    lengths = [document.total() for document in documents]
    average = sum(lengths) / len(lengths) if lengths else 1
    scores = [0.0] * len(tools)
    for word in set(_words(query)):
        holders = sum(word in document for document in documents)
        weight = math.log(1 + (len(tools) - holders + 0.5) / (holders + 0.5))
        for place, document in enumerate(documents):
            count = document[word]
            norm = 1 - _LENGTH + _LENGTH * lengths[place] / average
            scores[place] += weight * count * (_SATURATION + 1) / (count + _SATURATION * norm)
    order = sorted(range(len(tools)), key=lambda place: -scores[place])
    return [tools[place] for place in order if scores[place] > 0]


def _text(tool: ToolHandler) -> str:
    """The searchable text of a tool, limited because a server may send long descriptions."""
    space, name = name_of(tool)
    about = tool.spec()
    parameters = about.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    fields = [
        f"{field} {schema.get('description', '') if isinstance(schema, dict) else ''}"
        for field, schema in (properties if isinstance(properties, dict) else {}).items()
    ]
    described = (about.get("description"), getattr(tool, "namespace_description", ""))
    return " ".join([space or "", name, *map(str, described), *fields])[:MAX_SEARCHED]


def _words(text: str) -> list[str]:
    words = (word.lower() for word in _WORD.findall(text))
    return [_stem(word) for word in words if word not in _STOP_WORDS]


def _stem(word: str) -> str:
    """Remove a plural s."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _as_specs(tools: Iterable[ToolHandler]) -> list[JsonValue]:
    """The definitions in the format of native search, grouped by namespace."""
    specs: list[JsonValue] = []
    spaces: dict[str, list[ModelTool]] = {}
    for tool in tools:
        space, _ = name_of(tool)
        spec = {**tool.spec(), "defer_loading": True}
        if space is None:
            specs.append(spec)
            continue
        if space not in spaces:
            spaces[space] = []
            specs.append(in_namespace(tool, spaces[space]))
        spaces[space].append(spec)
    return specs


def _found_natively(items: Sequence[ModelItem]) -> Iterator[ToolName]:
    for item in items:
        if item.get("type") != "tool_search_output":
            continue
        for spec in item.get("tools") or ():
            if spec.get("type") == "namespace":
                yield from ((spec["name"], tool["name"]) for tool in spec.get("tools") or ())
            elif "name" in spec:
                yield None, spec["name"]


class _Found(msgspec.Struct):
    name: str
    namespace: str | None = None


class _FoundTools(msgspec.Struct):
    tools: list[_Found]


def _found_by_function(items: Sequence[ModelItem]) -> Iterator[ToolName]:
    searches: set[str] = set()
    for item in items:
        call_id = str(item.get("call_id"))
        if item.get("type") == "function_call" and item.get("name") == NAME:
            searches.add(call_id)
        elif item.get("type") == "function_call_output" and call_id in searches:
            try:
                output = msgspec.json.decode(str(item.get("output")), type=_FoundTools)
            except msgspec.MsgspecError:
                continue  # a search that was refused or interrupted
            yield from ((tool.namespace, tool.name) for tool in output.tools)
