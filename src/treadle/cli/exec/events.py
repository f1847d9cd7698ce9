"""What `treadle exec --json` prints: the events of `codex exec --json`, one line of JSON each."""

from __future__ import annotations

import re
from itertools import count
from typing import Final

import msgspec

from treadle.cli.exec.output import ExecOutput, Opened, error_words
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

# Told when they are whole, and not before.
_TOLD_ONCE: Final = (AgentMessageThreadItem, ReasoningThreadItem)


class JsonOutput(ExecOutput):
    """Prints events for programs, on stdout."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()
        # The names under which items are told, by their ids.
        self._names: dict[str, str] = {}
        self._todo: JsonValue = None

    def opened(self, opened: Opened) -> None:
        """Name the thread."""
        self._print("thread.started", thread_id=opened.session.thread.id)

    def turn_started(self) -> None:
        """Say that the model is being asked."""
        self._print("turn.started")

    def item_started(self, event: ItemStarted) -> None:
        """Tell of an item that takes its time."""
        if not isinstance(event.item, _TOLD_ONCE):
            self._tell_item("item.started", event.item)

    def item_completed(self, event: ItemCompleted) -> None:
        """Tell of an item that is done."""
        self._tell_item("item.completed", event.item)
        self._names.pop(event.item.id, None)

    def plan_updated(self, event: TurnPlanUpdated) -> None:
        """Tell the list of steps; it is one item until the turn ends."""
        is_new = self._todo is None
        steps = [
            {"text": each.step, "completed": each.status == "completed"} for each in event.plan
        ]
        name = self._next_name() if is_new else self._todo["id"]
        self._todo = {"id": name, "type": "todo_list", "items": steps}
        self._print("item.started" if is_new else "item.updated", item=self._todo)

    def diff_updated(self, diff: str) -> None:
        """Nothing: the edits are told as items."""

    def warned(self, words: str) -> None:
        """Tell of something that is no reason to stop."""
        item = {"id": self._next_name(), "type": "error", "message": words}
        self._print("item.completed", item=item)

    def error_reported(self, error: TurnError) -> None:
        """Tell of an error; the turn may go on all the same."""
        self._print("error", message=error_words(error))

    def turn_ended(self, turn: Turn, usage: TokenUsageBreakdown) -> None:
        """Say how it ended; of a turn that was interrupted there is no event."""
        if self._todo is not None:
            self._print("item.completed", item=self._todo)
        if turn.status == "completed":
            self._print("turn.completed", usage=_usage(usage))
        elif turn.status == "failed":
            words = turn.error.message if turn.error else "turn failed"
            self._print("turn.failed", error={"message": words})

    def final_message(self, text: str | None) -> None:
        """Nothing more: it was an event."""

    def _tell_item(self, kind: str, item: Item) -> None:
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
    """An item in the words of the events; `None` for one that they do not tell of."""
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
    # What was declined has not been done either, and programs know no third outcome of edits.
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
