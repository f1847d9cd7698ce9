"""The JSON output of `treadle exec --json`: the events of `codex exec --json`, one per line."""

from __future__ import annotations

import re
from itertools import count
from typing import Final

import msgspec

from treadle.cli.exec.output import ExecOutput, Opened, error_text
from treadle.client._compat.lenient import Item
from treadle.client.events import ItemCompleted, ItemStarted, TurnPlanUpdated
from treadle.protocol.base import JsonValue
from treadle.protocol.error import TurnError
from treadle.protocol.item import (
    AgentMessageThreadItem,
    CollabAgentToolCallThreadItem,
    CommandExecutionThreadItem,
    FileChangeThreadItem,
    McpToolCallThreadItem,
    ReasoningThreadItem,
    WebSearchThreadItem,
)
from treadle.protocol.turn import Turn
from treadle.protocol.usage import TokenUsageBreakdown

# Printed only when they are complete.
_WITHOUT_START: Final = (AgentMessageThreadItem, ReasoningThreadItem)


class JsonOutput(ExecOutput):
    """Prints events for programs, on stdout."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()
        # The printed names of items, by their ids.
        self._names: dict[str, str] = {}
        self._todo: JsonValue = None

    def opened(self, opened: Opened) -> None:
        """Print `thread.started`."""
        self._print("thread.started", thread_id=opened.session.thread.id)

    def turn_started(self) -> None:
        """Print `turn.started`."""
        self._print("turn.started")

    def item_started(self, event: ItemStarted) -> None:
        """Print `item.started`, except for messages and reasoning."""
        if not isinstance(event.item, _WITHOUT_START):
            self._print_item("item.started", event.item)

    def item_completed(self, event: ItemCompleted) -> None:
        """Print `item.completed`."""
        self._print_item("item.completed", event.item)
        self._names.pop(event.item.id, None)

    def plan_updated(self, event: TurnPlanUpdated) -> None:
        """Print the plan, which is one item until the turn ends."""
        is_new = self._todo is None
        steps = [
            {"text": each.step, "completed": each.status == "completed"} for each in event.plan
        ]
        name = self._next_name() if is_new else self._todo["id"]
        self._todo = {"id": name, "type": "todo_list", "items": steps}
        self._print("item.started" if is_new else "item.updated", item=self._todo)

    def diff_updated(self, diff: str) -> None:
        """Print nothing: edits are items."""

    def warned(self, text: str) -> None:
        """Print a warning as an item."""
        item = {"id": self._next_name(), "type": "error", "message": text}
        self._print("item.completed", item=item)

    def error_reported(self, error: TurnError) -> None:
        """Print an error; the turn may still continue."""
        self._print("error", message=error_text(error))

    def turn_ended(self, turn: Turn, usage: TokenUsageBreakdown) -> None:
        """Print the end of the turn; there is no event for an interrupted one."""
        if self._todo is not None:
            self._print("item.completed", item=self._todo)
        if turn.status == "completed":
            self._print("turn.completed", usage=_usage(usage))
        elif turn.status == "failed":
            text = turn.error.message if turn.error else "turn failed"
            self._print("turn.failed", error={"message": text})

    def final_message(self, text: str | None) -> None:
        """Print nothing: the message was an item."""

    def _print_item(self, kind: str, item: Item) -> None:
        fields = item_fields(item)
        if fields is not None:
            name = self._names.setdefault(item.id, "") or self._next_name()
            self._names[item.id] = name
            self._print(kind, item={"id": name, **fields})

    def _next_name(self) -> str:
        return f"item_{next(self._numbers)}"

    def _print(self, kind: str, **fields: JsonValue) -> None:
        self.write(msgspec.json.encode({"type": kind, **fields}) + b"\n")


def item_fields(item: Item) -> dict[str, JsonValue] | None:
    """Return an item as event fields; `None` if events do not include its type."""
    match item:
        case AgentMessageThreadItem():
            return {"type": "agent_message", "text": item.text}
        case ReasoningThreadItem():
            text = "\n".join(item.summary)
            return {"type": "reasoning", "text": text} if text else None
        case CommandExecutionThreadItem():
            return _command(item)
        case FileChangeThreadItem():
            return _file_change(item)
        case McpToolCallThreadItem():
            return _mcp_call(item)
        case CollabAgentToolCallThreadItem():
            return _agent_call(item)
        case WebSearchThreadItem():
            action = msgspec.to_builtins(item.action) or {"type": "other"}
            action["type"] = _snake(action["type"])
            return {"type": "web_search", "query": item.query, "action": action}
        case _:
            return None


def _command(item: CommandExecutionThreadItem) -> dict[str, JsonValue]:
    return {
        "type": "command_execution",
        "command": item.command,
        "aggregated_output": item.aggregated_output or "",
        "exit_code": item.exit_code,
        "status": _snake(item.status),
    }


def _file_change(item: FileChangeThreadItem) -> dict[str, JsonValue]:
    changes = [{"path": each.path, "kind": _tag(each.kind)} for each in item.changes]
    # `codex exec --json` has no status for a declined edit.
    status = "failed" if item.status == "declined" else _snake(item.status)
    return {"type": "file_change", "changes": changes, "status": status}


def _mcp_call(item: McpToolCallThreadItem) -> dict[str, JsonValue]:
    result: JsonValue = None
    if item.result is not None:
        meta = {} if item.result.meta is None else {"_meta": item.result.meta}
        structured = item.result.structured_content
        result = {"content": item.result.content, **meta, "structured_content": structured}
    return {
        "type": "mcp_tool_call",
        "server": item.server,
        "tool": item.tool,
        "arguments": item.arguments,
        "result": result,
        "error": None if item.error is None else {"message": item.error.message},
        "status": _snake(item.status),
    }


def _agent_call(item: CollabAgentToolCallThreadItem) -> dict[str, JsonValue]:
    states = {
        thread_id: {"status": _snake(state.status), "message": state.message}
        for thread_id, state in item.agents_states.items()
    }
    return {
        "type": "collab_tool_call",
        "tool": _snake(item.tool),
        "sender_thread_id": item.sender_thread_id,
        "receiver_thread_ids": item.receiver_thread_ids,
        "prompt": item.prompt,
        "agents_states": states,
        "status": _snake(item.status),
    }


def _usage(usage: TokenUsageBreakdown) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_input_tokens": usage.cache_write_input_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_output_tokens": usage.reasoning_output_tokens,
    }


def _tag(value: msgspec.Struct) -> JsonValue:
    return value.__struct_config__.tag


def _snake(word: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", word).lower()
