"""Client tools: their validation, their definition for the model, and their calls.

A call is a server request to all clients; the first answer is the result.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from treadle.engine.errors import InvalidInput
from treadle.engine.events.server_requests import ServerRequestRefused
from treadle.engine.tools.image import IMAGE_OMITTED, IMAGE_UNREADABLE, is_image_url
from treadle.engine.tools.output import DEFAULT_TOKENS, tokens, truncate
from treadle.engine.tools.registry import Output, ToolCall, decode_arguments
from treadle.model.base import ModelTool
from treadle.model.catalog import traits_of
from treadle.protocol.base import JsonValue
from treadle.protocol.item import DynamicToolCallThreadItem
from treadle.protocol.server_requests import ITEM_TOOL_CALL
from treadle.protocol.tool import (
    DynamicToolCallOutputContentItem,
    DynamicToolCallParams,
    DynamicToolCallResponse,
    DynamicToolNamespaceTool,
    DynamicToolSpec,
    FunctionDynamicToolSpec,
    InputAudioDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
    NamespaceDynamicToolSpec,
)
from treadle.store.records import ToolsChanged
from treadle.support.text.json_text import encode_json

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

FAILED: Final = "dynamic tool request failed"
INVALID: Final = "dynamic tool response was invalid"
REMOTE_IMAGE: Final = "remote image URLs are not supported; use an inline data URL instead"
AUDIO_OMITTED: Final = "audio content omitted because you do not support audio input"

MAX_TOOLS_BYTES: Final = 4 * 1024 * 1024
"""The size of a thread's client tools as JSON: they stay in memory as long as the thread."""

_MAX_NAME: Final = 128
_MAX_NAMESPACE: Final = 64
_MAX_NAMESPACE_DESCRIPTION: Final = 1024
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+")
_RESERVED_NAMESPACES: Final = frozenset(
    """
    api_tool browser computer container file_search functions image_gen multi_tool_use python
    submodel_delegator terminal tool_search web
    """.split()
)
_TYPES: Final = frozenset({"object", "string", "number", "integer", "boolean", "array"})


class DynamicTool:
    """One tool of a client, in one thread."""

    def __init__(
        self,
        thread: LoadedThread,
        tool: FunctionDynamicToolSpec | DynamicToolNamespaceTool,
        space: NamespaceDynamicToolSpec | None = None,
    ) -> None:
        self._thread = thread
        self._tool = tool
        self.name = tool.name
        self.namespace = space.name if space is not None else None
        self.namespace_description = space.description if space is not None else ""
        self.is_deferred = tool.defer_loading

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        return {
            "type": "function",
            "name": self.name,
            "description": self._tool.description,
            "strict": False,
            "parameters": _parameters(self._tool.input_schema),
        }

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Send the call to the clients and wait for the first answer."""
        item = DynamicToolCallThreadItem(
            arguments=decode_arguments(call.input, object),
            id=call.id,
            status="inProgress",
            tool=self.name,
            namespace=self.namespace,
        )
        try:
            answer = _checked(await self._ask(turn, item))
        except ServerRequestRefused as refusal:
            answer = _failure(_REFUSALS.get(refusal.kind) or refusal.reason)
        except asyncio.CancelledError:
            _complete(turn, item, DynamicToolCallResponse([], success=False))
            raise
        _complete(turn, item, answer)
        settings = self._thread.settings_of(turn)
        takes_images = traits_of(settings.model).takes_images
        # Off the event loop: images are decoded to validate them.
        workers = self._thread.services.file_workers
        parts = await workers.run(_parts, answer.content_items, takes_images=takes_images)
        return _output(parts, settings.shell.max_output_tokens or DEFAULT_TOKENS)

    async def _ask(
        self, turn: ActiveTurn, item: DynamicToolCallThreadItem
    ) -> DynamicToolCallResponse:
        limit = self._tool.deadline_ms
        return await self._thread.server_requests.send(
            ITEM_TOOL_CALL,
            DynamicToolCallParams(
                arguments=item.arguments,
                call_id=item.id,
                thread_id=turn.thread_id,
                tool=self.name,
                turn_id=turn.id,
                namespace=self.namespace,
            ),
            turn=turn,
            key=item.id,
            before=lambda: turn.start_item(item),
            timeout_s=limit / 1000 if limit else None,
        )


_REFUSALS: Final = {"error": FAILED, "nonsense": INVALID}


def dynamic_tools(thread: LoadedThread) -> Iterator[DynamicTool]:
    """The client tools of a thread, in their order."""
    for spec in thread.settings.dynamic_tools:
        if isinstance(spec, NamespaceDynamicToolSpec):
            for tool in spec.tools:
                yield DynamicTool(thread, tool, spec)
        else:
            yield DynamicTool(thread, spec)


def replace_tools(thread: LoadedThread, tools: Sequence[DynamicToolSpec]) -> None:
    """Replace the client tools of a thread.

    Raises:
        StorageFailed: the tools cannot be stored.
    """
    if list(tools) != (thread.meta.dynamic_tools or []):
        thread.log.store(ToolsChanged(list(tools)))
        thread.state.update_meta(dynamic_tools=list(tools))
    thread.state.set_settings(replace(thread.settings, dynamic_tools=tuple(tools)))


# -- calls


def _failure(text: str) -> DynamicToolCallResponse:
    return DynamicToolCallResponse([InputTextDynamicToolCallOutputContentItem(text)], success=False)


def _checked(answer: DynamicToolCallResponse) -> DynamicToolCallResponse:
    """The answer, or a failure if it contains remote URLs, which providers do not fetch."""
    for part in answer.content_items:
        match part:
            case InputImageDynamicToolCallOutputContentItem():
                if not part.image_url.startswith("data:"):
                    return _failure(REMOTE_IMAGE)
            case InputAudioDynamicToolCallOutputContentItem():
                if not part.audio_url.startswith("data:"):
                    return _failure("audio URLs must use an inline data URL")
            case _:
                pass
    return answer


def _complete(
    turn: ActiveTurn, item: DynamicToolCallThreadItem, answer: DynamicToolCallResponse
) -> None:
    done = msgspec.structs.replace(
        item,
        status="completed" if answer.success else "failed",
        content_items=answer.content_items,
        success=answer.success,
        duration_ms=turn.item_ms(item.id),
    )
    turn.complete_item(done)


def _parts(
    items: Sequence[DynamicToolCallOutputContentItem], *, takes_images: bool
) -> list[JsonValue] | str:
    """An answer in a form that the model accepts; a single text needs no parts."""
    if not items:
        return ""
    if len(items) == 1 and isinstance(items[0], InputTextDynamicToolCallOutputContentItem):
        return items[0].text
    return [_part(item, takes_images=takes_images) for item in items]


def _output(parts: list[JsonValue] | str, budget: int) -> Output:
    """An answer truncated to a token budget, which the first texts use first."""
    if isinstance(parts, str):
        return truncate(parts, budget)
    kept: list[JsonValue] = []
    omitted = 0
    for part in parts:
        if part["type"] != "input_text":
            kept.append(part)
        elif budget > 0:
            kept.append(_text(truncate(part["text"], budget)))
            budget -= tokens(len(part["text"].encode("utf-8", "replace")))
        else:
            omitted += 1
    return [*kept, _text(f"[omitted {omitted} text items ...]")] if omitted else kept


def _part(part: DynamicToolCallOutputContentItem, *, takes_images: bool) -> JsonValue:
    """One part of an answer in a form that the model accepts."""
    match part:
        case InputTextDynamicToolCallOutputContentItem():
            return _text(part.text)
        case InputAudioDynamicToolCallOutputContentItem():
            return _text(AUDIO_OMITTED)
        case InputImageDynamicToolCallOutputContentItem():
            if not takes_images:
                return _text(IMAGE_OMITTED)
            if not is_image_url(part.image_url):
                # The provider would reject it, and every later request of the thread.
                return _text(IMAGE_UNREADABLE)
            return {"type": "input_image", "image_url": part.image_url, "detail": "high"}


def _text(text: str) -> JsonValue:
    return {"type": "input_text", "text": text}


# -- validation


def check_tools(tools: Sequence[DynamicToolSpec], field: str = "dynamicTools") -> None:
    """Check that the tools of a client are valid.

    Raises:
        InvalidInput: a tool is invalid; names the field.
    """
    if (size := len(encode_json(list(tools)))) > MAX_TOOLS_BYTES:
        raise InvalidInput(field, f"{field} must have at most {MAX_TOOLS_BYTES} bytes, not {size}")
    names: set[str] = set()
    spaces: set[str] = set()
    for position, tool in enumerate(tools):
        path = f"{field}[{position}]"
        if isinstance(tool, NamespaceDynamicToolSpec):
            _check_namespace(tool, path)
            if tool.name in spaces:
                raise _bad(path, f"duplicate dynamic tool namespace: {tool.name}")
            spaces.add(tool.name)
            continue
        _check_function(tool, path)
        if tool.name in names:
            raise _bad(path, f"duplicate dynamic tool name: {tool.name}")
        names.add(tool.name)
        if tool.defer_loading:
            reason = f"deferred dynamic tool must include a namespace: {tool.name}"
            raise InvalidInput(f"{path}.deferLoading", reason)


def _check_namespace(space: NamespaceDynamicToolSpec, path: str) -> None:
    _check_name(space.name, "dynamic tool namespace", _MAX_NAMESPACE, path)
    if space.name in _RESERVED_NAMESPACES:
        about = "dynamic tool namespace collides with a reserved Responses API namespace"
        raise _bad(path, f"{about}: {space.name}")
    if len(space.description) > _MAX_NAMESPACE_DESCRIPTION:
        about = "dynamic tool namespace description must be at most"
        reason = f"{about} {_MAX_NAMESPACE_DESCRIPTION} characters"
        raise InvalidInput(f"{path}.description", reason)
    if not space.tools:
        reason = f"dynamic tool namespace must contain at least one tool: {space.name}"
        raise InvalidInput(f"{path}.tools", reason)
    names: set[str] = set()
    for position, tool in enumerate(space.tools):
        where = f"{path}.tools[{position}]"
        _check_function(tool, where)
        if tool.name in names:
            reason = f"duplicate dynamic tool name in namespace {space.name}: {tool.name}"
            raise _bad(where, reason)
        names.add(tool.name)


def _check_function(tool: FunctionDynamicToolSpec | DynamicToolNamespaceTool, path: str) -> None:
    _check_name(tool.name, "dynamic tool name", _MAX_NAME, path)
    error = _schema_error(tool.input_schema)
    if error is not None:
        reason = f"dynamic tool input schema is not supported for {tool.name}: {error}"
        raise InvalidInput(f"{path}.inputSchema", reason)


def _check_name(name: str, what: str, limit: int, path: str) -> None:
    if not name:
        raise _bad(path, f"{what} must not be empty")
    if name != name.strip():
        raise _bad(path, f"{what} has leading/trailing whitespace: {name}")
    if not _NAME.fullmatch(name):
        raise _bad(path, f"{what} must match ^[a-zA-Z0-9_-]+$ to match Responses API: {name}")
    if len(name) > limit:
        about = f"{what} must be at most {limit} characters to match Responses API"
        raise _bad(path, f"{about}: {name}")
    if name == "mcp" or name.startswith("mcp__"):
        raise _bad(path, f"{what} is reserved: {name}")


def _bad(path: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{path}.name", reason)


def _schema_error(schema: JsonValue) -> str | None:
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        return "expected an object"
    if schema.get("type") == "null":
        return "tool input schema must not be a singleton null type"
    if not isinstance(schema.get("properties", {}), dict):
        return "`properties` must be an object"
    return None


def _parameters(schema: JsonValue) -> JsonValue:
    """A schema that providers accept: they require a type, and the properties of an object."""
    if not isinstance(schema, dict):
        return {"type": "object", "properties": {}}
    kind = schema.get("type")
    typed = {**schema, "type": kind if kind in _TYPES else "object"}
    return {"properties": {}, **typed} if typed["type"] == "object" else typed
