"""Translates items that other programs stored to those of the protocol.

Reads `item_completed` (0.163.0) and the older events with one item each (0.118.0). What cannot be
translated is skipped with a warning, never an exception.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from treadle.protocol.base import JsonValue
from treadle.protocol.item import ThreadItem

logger = logging.getLogger(__name__)

Json = dict[str, JsonValue]

_word: Final = re.compile(r"_([a-z0-9])")


def camel(text: str) -> str:
    """Convert a snake_case word to camelCase."""
    return _word.sub(lambda match: match[1].upper(), text)


def read_item(stored: Mapping[str, JsonValue]) -> ThreadItem | None:
    """Translate the item of an `item_completed` event."""
    kind = str(stored.get("type", ""))
    fields = {camel(key): value for key, value in stored.items() if key != "type"}
    fields["type"] = kind[:1].lower() + kind[1:]
    translate = _READERS.get(kind)
    return _convert(fields["type"], lambda: translate(fields) if translate else fields)


def read_legacy(event: Mapping[str, JsonValue], new_id: Callable[[], str]) -> ThreadItem | None:
    """Translate an event that represents one item; `new_id` creates missing ids."""
    kind = str(event.get("type"))
    return _convert(kind, lambda: _LEGACY[kind](event, new_id))


def is_legacy_item(kind: str) -> bool:
    """Return whether an event of this type represents one item."""
    return kind in _LEGACY


def _convert(kind: str, translate: Callable[[], Json]) -> ThreadItem | None:
    try:
        item: ThreadItem = msgspec.convert(translate(), ThreadItem, strict=False)
    except (msgspec.ValidationError, AttributeError, KeyError, TypeError, ValueError) as error:
        # Another program's data: any part may have an unexpected shape.
        logger.warning("stored item skipped", extra={"type": kind, "reason": str(error)})
        return None
    return item


def _user_message(fields: Json) -> Json:
    return {**fields, "content": [_user_input(part) for part in fields.get("content") or ()]}


def _user_input(part: Json) -> Json:
    kind = camel(str(part.get("type", "")))
    if kind == "image":
        return {"type": kind, "url": part.get("image_url", part.get("url"))}
    return {**part, "type": kind}


def _agent_message(fields: Json) -> Json:
    parts = fields.pop("content", None) or ()
    return {**fields, "text": "".join(str(part.get("text", "")) for part in parts)}


def _reasoning(fields: Json) -> Json:
    return {
        "type": "reasoning",
        "id": fields["id"],
        "summary": fields.get("summaryText") or [],
        "content": fields.get("rawContent") or [],
    }


def _command(fields: Json) -> Json:
    words = fields.get("command")
    return {
        **fields,
        "command": shlex.join(words) if isinstance(words, list) else words,
        "commandActions": [_action(part) for part in fields.get("parsedCmd") or ()],
        "cwd": _path(fields.get("cwd")),
        "source": camel(str(fields.get("source") or "agent")),
        "status": camel(str(fields.get("status") or "completed")),
        "durationMs": _milliseconds(fields.get("duration")),
    }


def _action(part: Json) -> Json:
    fields = {camel(key): value for key, value in part.items()}
    return {**fields, "type": camel(str(part.get("type"))), "command": part.get("cmd", "")}


def _path(value: JsonValue) -> JsonValue:
    if isinstance(value, str) and value.startswith("file://"):
        return unquote(urlsplit(value).path)
    return value


def _milliseconds(value: JsonValue) -> int | None:
    if not isinstance(value, Mapping):
        return None
    return int(value.get("secs", 0)) * 1000 + int(value.get("nanos", 0)) // 1_000_000


def _file_change(fields: Json) -> Json:
    changes = fields.get("changes") or {}
    return {
        "type": "fileChange",
        "id": fields["id"],
        "status": camel(str(fields.get("status") or "completed")),
        "changes": [_change(path, change) for path, change in changes.items()],
    }


def _change(path: str, change: Json) -> Json:
    kind: Json = {"type": change.get("type")}
    diff = change.get("unified_diff", change.get("content"))
    if kind["type"] == "update":
        kind["move_path"] = change.get("move_path")
        if kind["move_path"] and isinstance(diff, str):
            diff += moved_to(kind["move_path"])
    return {"path": path, "kind": kind, "diff": diff}


def moved_to(path: str) -> str:
    """Return the line that ends the diff of a moved file, as clients see it."""
    return f"\n\nMoved to: {path}"


def _web_search(fields: Json) -> Json:
    action = fields.get("action")
    if isinstance(action, Mapping):
        fields["action"] = {**action, "type": camel(str(action.get("type")))}
    return {**fields, "query": fields.get("query") or ""}


def _tool_call(fields: Json) -> Json:
    status = camel(str(fields.get("status") or "completed"))
    return {**fields, "status": status, "durationMs": _milliseconds(fields.get("duration"))}


def _mcp_call(fields: Json) -> Json:
    return {**_tool_call(fields), "appContext": _app(fields)}


def _app(fields: Mapping[str, JsonValue]) -> Json | None:
    """Return the app of a call, whose parts are fields of the call in a rollout of Codex."""
    if fields.get("connectorId") is None:
        return None
    names = ("connectorId", "linkId", "appName", "actionName")
    return {
        **{name: fields.get(name) for name in names},
        "resourceUri": fields.get("mcpAppResourceUri"),
    }


def _image_view(fields: Json) -> Json:
    return {**fields, "path": _path(fields.get("path"))}


_READERS: Final[dict[str, Callable[[Json], Json]]] = {
    "UserMessage": _user_message,
    "AgentMessage": _agent_message,
    "Reasoning": _reasoning,
    "CommandExecution": _command,
    "FileChange": _file_change,
    "WebSearch": _web_search,
    "McpToolCall": _mcp_call,
    "DynamicToolCall": _tool_call,
    "ImageView": _image_view,
}

Event = Mapping[str, JsonValue]
NewId = Callable[[], str]


def _legacy_user_message(event: Event, new_id: NewId) -> Json:
    content: list[Json] = []
    if event.get("message"):
        elements = [
            {"byteRange": part.get("byte_range"), "placeholder": part.get("placeholder")}
            for part in event.get("text_elements") or ()
        ]
        content.append({"type": "text", "text": event["message"], "text_elements": elements})
    content += [{"type": "image", "url": url} for url in event.get("images") or ()]
    content += [{"type": "localImage", "path": path} for path in event.get("local_images") or ()]
    return {"type": "userMessage", "id": new_id(), "content": content}


def _legacy_agent_message(event: Event, new_id: NewId) -> Json:
    return {
        "type": "agentMessage",
        "id": new_id(),
        "text": event.get("message") or "",
        "phase": event.get("phase"),
    }


def _legacy_command(event: Event, _new_id: NewId) -> Json:
    fields = {camel(key): value for key, value in event.items()}
    return _command({**fields, "type": "commandExecution", "id": event.get("call_id")})


def _legacy_patch(event: Event, _new_id: NewId) -> Json:
    status = event.get("status") or ("completed" if event.get("success") else "failed")
    return _file_change(
        {"id": event.get("call_id"), "status": status, "changes": event.get("changes")}
    )


_MCP: Final = ("mcpAppResourceUri", "pluginId", "readOnlyHint")


def _legacy_mcp(event: Event, _new_id: NewId) -> Json:
    call, outcome = event.get("invocation") or {}, event.get("result") or {}
    error = outcome.get("Err")
    fields = {camel(key): value for key, value in event.items()}
    return {
        "type": "mcpToolCall",
        "appContext": _app(fields),
        **{name: fields[name] for name in _MCP if name in fields},
        "id": event.get("call_id"),
        "server": call.get("server"),
        "tool": call.get("tool"),
        "arguments": call.get("arguments"),
        "status": "completed" if error is None else "failed",
        "result": outcome.get("Ok"),
        "error": None if error is None else {"message": str(error)},
        "durationMs": _milliseconds(event.get("duration")),
    }


def _legacy_web_search(event: Event, _new_id: NewId) -> Json:
    fields = {"id": event.get("call_id"), "query": event.get("query")}
    return _web_search({"type": "webSearch", **fields, "action": event.get("action")})


def _legacy_image_view(event: Event, _new_id: NewId) -> Json:
    return {"type": "imageView", "id": event.get("call_id"), "path": event.get("path")}


def _legacy_compaction(_event: Event, new_id: NewId) -> Json:
    return {"type": "contextCompaction", "id": new_id()}


def _legacy_review_entered(event: Event, new_id: NewId) -> Json:
    review = event.get("user_facing_hint") or ""
    return {"type": "enteredReviewMode", "id": new_id(), "review": review}


def _legacy_review_exited(event: Event, new_id: NewId) -> Json:
    output = event.get("review_output") or {}
    review = output.get("overall_explanation") or ""
    return {"type": "exitedReviewMode", "id": new_id(), "review": review}


_LEGACY: Final[dict[str, Callable[[Event, NewId], Json]]] = {
    "user_message": _legacy_user_message,
    "agent_message": _legacy_agent_message,
    "exec_command_end": _legacy_command,
    "patch_apply_end": _legacy_patch,
    "mcp_tool_call_end": _legacy_mcp,
    "web_search_end": _legacy_web_search,
    "view_image_tool_call": _legacy_image_view,
    "context_compacted": _legacy_compaction,
    "entered_review_mode": _legacy_review_entered,
    "exited_review_mode": _legacy_review_exited,
}
