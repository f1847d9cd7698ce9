"""Converts the agent's actions to WINK events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgspec
from weakincentives.clock import SYSTEM_CLOCK
from weakincentives.prompt import ToolResult
from weakincentives.runtime import TokenUsage, ToolInvoked

from treadle.client._compat.lenient import Item
from treadle.protocol.base import JsonValue
from treadle.protocol.item import (
    CollabAgentToolCallThreadItem,
    CommandExecutionThreadItem,
    DynamicToolCallThreadItem,
    FileChangeThreadItem,
    ImageGenerationThreadItem,
    ImageViewThreadItem,
    McpToolCallThreadItem,
    WebSearchThreadItem,
)
from treadle.unattended.usage import Usage
from treadle.wink.context import EvaluationContext


@dataclass(frozen=True, slots=True)
class ToolActivity:
    """One action of the agent: its name, parameters and output."""

    name: str
    params: dict[str, JsonValue]
    output: str = ""
    success: bool = True


def activity_of(item: Item) -> ToolActivity | None:
    """Return the action that an item describes; `None` for messages and reasoning."""
    match item:
        case CommandExecutionThreadItem():
            params = {"command": item.command, "cwd": item.cwd, "exit_code": item.exit_code}
            is_good = item.status == "completed" and not item.exit_code
            return ToolActivity("codex:command", params, item.aggregated_output or "", is_good)
        case FileChangeThreadItem():
            return _edits(item)
        case McpToolCallThreadItem():
            return _mcp_call(item)
        case DynamicToolCallThreadItem():
            text = "\n".join(getattr(part, "text", "") for part in item.content_items or ())
            arguments = item.arguments if isinstance(item.arguments, dict) else {}
            return ToolActivity(item.tool, arguments, text, item.success is True)
        case _:
            return _other(item)


def _edits(item: FileChangeThreadItem) -> ToolActivity:
    paths = [change.path for change in item.changes]
    changes = [{"path": each.path, "kind": msgspec.to_builtins(each.kind)} for each in item.changes]
    diffs = "\n".join(change.diff for change in item.changes)
    params = {"paths": paths, "changes": changes}
    return ToolActivity("codex:file_change", params, diffs, item.status == "completed")


def _mcp_call(item: McpToolCallThreadItem) -> ToolActivity:
    params = {"server": item.server, "tool": item.tool, "arguments": item.arguments}
    if item.error is not None:
        text = item.error.message
    else:
        parts = item.result.content if item.result is not None else []
        texts = (part.get("text") for part in parts if isinstance(part, dict))
        text = "\n".join(each for each in texts if isinstance(each, str))
    return ToolActivity(f"codex:mcp:{item.tool}", params, text, item.status == "completed")


def _other(item: Item) -> ToolActivity | None:
    match item:
        case WebSearchThreadItem():
            return ToolActivity("codex:web_search", {"query": item.query})
        case ImageViewThreadItem():
            return ToolActivity("codex:image_view", {"path": item.path})
        case ImageGenerationThreadItem():
            params = {"prompt": item.revised_prompt, "path": item.saved_path}
            return ToolActivity("codex:image_generation", params, success=item.failure is None)
        case CollabAgentToolCallThreadItem():
            agents = {"threads": item.receiver_thread_ids, "prompt": item.prompt}
            is_good = item.status != "failed"
            return ToolActivity(f"codex:agent:{item.tool}", agents, success=is_good)
        case _:
            return None


def tool_invoked(context: EvaluationContext, activity: ToolActivity, item_id: str) -> ToolInvoked:
    """Return the event for an action."""
    failure = activity.output or f"{activity.name} failed"
    result = ToolResult(activity.output, None) if activity.success else ToolResult.error(failure)
    return ToolInvoked(
        prompt_name=context.prompt_name,
        adapter=context.adapter_name,
        name=activity.name,
        params=activity.params,
        result=cast("ToolResult[object]", result),
        session_id=context.session_id,
        created_at=SYSTEM_CLOCK.utcnow(),
        rendered_output=activity.output,
        call_id=item_id,
        run_context=context.run_context,
    )


def token_usage(used: Usage) -> TokenUsage:
    """Return the counts in WINK's form."""
    return TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cached_input_tokens,
    )
