"""Writes items for other programs: as events for older ones, as items for newer ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from treadle.protocol.base import JsonValue
from treadle.protocol.item import (
    AgentMessageThreadItem,
    CommandAction,
    CommandExecutionThreadItem,
    ContextCompactionThreadItem,
    EnteredReviewModeThreadItem,
    ExitedReviewModeThreadItem,
    FileChangeThreadItem,
    ImageViewThreadItem,
    ItemCompletedNotification,
    McpToolCallThreadItem,
    PlanThreadItem,
    ReasoningThreadItem,
    ThreadItem,
    UserMessageThreadItem,
    WebSearchThreadItem,
    times_of,
)
from treadle.store.rollout.foreign.items import Json, moved_to
from treadle.store.rollout.foreign.settings import snake

# How a displayed command is quoted.
_BARE, _SINGLE, _DOUBLE = r"[^\s'\"\\]+", r"'[^']*'", r'"[^"\\]*(?:\\.[^"\\]*)*"'
_SHOWN: Final = re.compile(rf"(?:[^\s'\"\\]|{_SINGLE}|{_DOUBLE}| )*", re.DOTALL)
# Only for text that matches `_SHOWN`: otherwise searching for closing quotes is quadratic.
_WORD: Final = re.compile(f"(?:{_BARE}|{_SINGLE}|{_DOUBLE})+", re.DOTALL)
_PART: Final = re.compile(f"{_BARE}|{_SINGLE}|{_DOUBLE}", re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(["\\$`])')


def _place(done: ItemCompletedNotification) -> Json:
    started, count = times_of(done.item)[0], done.content_token_count
    place: Json = {
        "thread_id": done.thread_id,
        "turn_id": done.turn_id,
        "started_at_ms": done.completed_at_ms if started is None else started,
        "completed_at_ms": done.completed_at_ms,
    }
    return place if count is UNSET or count is None else {**place, "content_token_count": count}


def legacy_item(done: ItemCompletedNotification) -> list[Json]:
    """Return the events of an item for older programs; there may be none."""
    match done.item:
        case UserMessageThreadItem(content=content):
            return [_user_message(msgspec.to_builtins(content))]
        case AgentMessageThreadItem(text=text, phase=phase):
            return [{"type": "agent_message", "message": text, "phase": phase}]
        case ReasoningThreadItem(summary=summary):
            return [{"type": "agent_reasoning", "text": part} for part in summary]
        case PlanThreadItem() as plan:
            return [{"type": "item_completed", **_place(done), "item": _write_plan(plan)}]
        case ContextCompactionThreadItem():
            return [{"type": "context_compacted"}]
        case EnteredReviewModeThreadItem(review=review):
            target = {"type": "custom", "instructions": review}
            return [{"type": "entered_review_mode", "target": target, "user_facing_hint": review}]
        case ExitedReviewModeThreadItem(review=review):
            return [{"type": "exited_review_mode", "review_output": _review(review)}]
        case _:
            event = _tool_end(done.item)
            return [] if event is None else [{**event, "turn_id": done.turn_id}]


def _tool_end(item: ThreadItem) -> Json | None:
    match item:
        case CommandExecutionThreadItem():
            return _command_end(item)
        case FileChangeThreadItem():
            outcome = {"success": item.status == "completed", "status": snake(item.status)}
            body = {"type": "patch_apply_end", "call_id": item.id, "stdout": "", "stderr": ""}
            return {**body, **outcome, "changes": _changes(item)}
        case McpToolCallThreadItem():
            return _mcp_end(item)
        case WebSearchThreadItem(id=id_, query=query, action=action):
            return {"type": "web_search_end", "call_id": id_, "query": query, **_action(action)}
        case ImageViewThreadItem(id=id_, path=path):
            return {"type": "view_image_tool_call", "call_id": id_, "path": path}
        case _:
            return None


def _command_end(item: CommandExecutionThreadItem) -> Json:
    fields, output = _write_command(item), item.aggregated_output or ""
    return {
        **fields,
        "type": "exec_command_end",
        "call_id": fields.pop("id"),
        # The streams are not stored separately.
        "stdout": "",
        "stderr": "",
        "formatted_output": output,
        # These two are required, even without a process.
        "aggregated_output": output,
        "exit_code": -1 if item.exit_code is None else item.exit_code,
    }


def _mcp_end(item: McpToolCallThreadItem) -> Json:
    failure = item.error.message if item.error else None
    outcome = {"Err": failure} if failure is not None else {"Ok": msgspec.to_builtins(item.result)}
    app = item.app_context
    about: Json = (
        {}
        if app is None
        else {
            "connector_id": app.connector_id,
            "link_id": app.link_id,
            "app_name": app.app_name,
            "action_name": app.action_name,
            "mcp_app_resource_uri": app.resource_uri,
        }
    )
    return {
        "type": "mcp_tool_call_end",
        **about,
        "call_id": item.id,
        "invocation": {"server": item.server, "tool": item.tool, "arguments": item.arguments},
        "duration": _duration(item.duration_ms),
        "result": outcome,
    }


def _review(text: str) -> Json:
    return {
        "findings": [],
        "overall_correctness": "",
        "overall_explanation": text,
        "overall_confidence_score": 0.0,
    }


def _user_message(content: Sequence[Json]) -> Json:
    texts = [part for part in content if part["type"] == "text"]
    # Ranges count bytes of their own text; in the joined text only the first keeps its offsets.
    elements = texts[0]["text_elements"] if len(texts) == 1 else []
    return {
        "type": "user_message",
        "message": "\n".join(part["text"] for part in texts),
        "images": [part["url"] for part in content if part["type"] == "image" and "url" in part],
        "local_images": [part["path"] for part in content if part["type"] == "localImage"],
        "text_elements": [
            {"byte_range": part["byteRange"], "placeholder": part["placeholder"]}
            for part in elements
        ],
    }


def _changes(item: FileChangeThreadItem) -> Json:
    changes: Json = {}
    for change in item.changes:
        kind, diff = msgspec.to_builtins(change.kind), change.diff
        if kind.get("move_path"):
            # Other programs add this text themselves.
            diff = diff.removesuffix(moved_to(kind["move_path"]))
        key = "unified_diff" if kind["type"] == "update" else "content"
        changes[change.path] = {**kind, key: diff}
    return changes


def _action(action: object) -> Json:
    fields = msgspec.to_builtins(action)
    if not isinstance(fields, dict):
        return {"action": {"type": "other"}}
    return {"action": {**fields, "type": snake(fields["type"])}}


def paginated_item(done: ItemCompletedNotification) -> list[Json]:
    """Return an item for newer programs, or `None` if they do not have its type."""
    write = _WRITERS.get(type(done.item))
    if write is None:
        return []
    return [{"type": "item_completed", **_place(done), "item": write(done.item)}]


def _write_user(item: UserMessageThreadItem) -> Json:
    parts = [
        {"type": "image", "image_url": part.get("url")}
        if part["type"] == "image"
        else {**part, "type": snake(part["type"])}
        for part in msgspec.to_builtins(item.content)
    ]
    return {"type": "UserMessage", "id": item.id, "content": parts}


def _write_agent(item: AgentMessageThreadItem) -> Json:
    parts = [{"type": "Text", "text": item.text}]
    body: Json = {"type": "AgentMessage", "id": item.id, "content": parts}
    return body if item.phase is None else {**body, "phase": item.phase}


def _write_reasoning(item: ReasoningThreadItem) -> Json:
    body = {"summary_text": item.summary, "raw_content": item.content}
    return {"type": "Reasoning", "id": item.id, **body}


def _write_command(item: CommandExecutionThreadItem) -> Json:
    return {
        "type": "CommandExecution",
        "id": item.id,
        "process_id": item.process_id,
        "command": _words(item.command),
        "cwd": item.cwd,
        "parsed_cmd": [_parsed(action) for action in item.command_actions],
        "source": snake(item.source),
        "status": snake(item.status),
        "aggregated_output": item.aggregated_output,
        "exit_code": item.exit_code,
        "duration": _duration(item.duration_ms),
    }


def _parsed(action: CommandAction) -> Json:
    fields = msgspec.to_builtins(action)
    return {"cmd": fields.pop("command"), **fields, "type": snake(fields["type"])}


def _duration(millis: int | None) -> Json:
    millis = millis or 0
    return {"secs": millis // 1000, "nanos": millis % 1000 * 1_000_000}


def _words(command: str) -> list[str]:
    """Split a displayed command into words; `shlex` takes minutes for long ones."""
    shown = _WORD.findall(command) if _SHOWN.fullmatch(command) else []
    if " ".join(shown) != command:
        return [command]
    return ["".join(_unquoted(part) for part in _PART.findall(word)) for word in shown]


def _unquoted(part: str) -> str:
    if part[0] == '"':
        return _ESCAPED.sub(r"\1", part[1:-1])
    return part[1:-1] if part[0] == "'" else part


def _write_change(item: FileChangeThreadItem) -> Json:
    body = {"changes": _changes(item), "status": snake(item.status)}
    return {"type": "FileChange", "id": item.id, **body, "stdout": "", "stderr": ""}


def _write_search(item: WebSearchThreadItem) -> Json:
    return {"type": "WebSearch", "id": item.id, "query": item.query, **_action(item.action)}


def _write_plan(item: PlanThreadItem) -> Json:
    return {"type": "Plan", "id": item.id, "text": item.text}


def _write_compaction(item: ContextCompactionThreadItem) -> Json:
    return {"type": "ContextCompaction", "id": item.id}


_WRITERS: Final[dict[type, Callable[[JsonValue], Json]]] = {
    UserMessageThreadItem: _write_user,
    AgentMessageThreadItem: _write_agent,
    ReasoningThreadItem: _write_reasoning,
    CommandExecutionThreadItem: _write_command,
    FileChangeThreadItem: _write_change,
    WebSearchThreadItem: _write_search,
    PlanThreadItem: _write_plan,
    ContextCompactionThreadItem: _write_compaction,
}
