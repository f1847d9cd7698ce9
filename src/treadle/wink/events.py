"""What the agent did by itself, as WINK's events."""

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
    """Something that the agent did: its name, what it was about, what came of it."""

    name: str
    params: dict[str, JsonValue]
    output: str = ""
    success: bool = True


def deed_of(item: Item) -> ToolActivity | None:
    """Read an item as a deed; `None` for words and thoughts."""
    match item:
        case CommandExecutionThreadItem():
            about = {"command": item.command, "cwd": item.cwd, "exit_code": item.exit_code}
            is_good = item.status == "completed" and not item.exit_code
            return ToolActivity("codex:command", about, item.aggregated_output or "", is_good)
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
    about = {"paths": paths, "changes": changes}
    return ToolActivity("codex:file_change", about, diffs, item.status == "completed")


def _mcp_call(item: McpToolCallThreadItem) -> ToolActivity:
    about = {"server": item.server, "tool": item.tool, "arguments": item.arguments}
    if item.error is not None:
        text = item.error.message
    else:
        parts = item.result.content if item.result is not None else []
        texts = (part.get("text") for part in parts if isinstance(part, dict))
        text = "\n".join(each for each in texts if isinstance(each, str))
    return ToolActivity(f"codex:mcp:{item.tool}", about, text, item.status == "completed")


def _other(item: Item) -> ToolActivity | None:
    match item:
        case WebSearchThreadItem():
            return ToolActivity("codex:web_search", {"query": item.query})
        case ImageViewThreadItem():
            return ToolActivity("codex:image_view", {"path": item.path})
        case ImageGenerationThreadItem():
            about = {"prompt": item.revised_prompt, "path": item.saved_path}
            return ToolActivity("codex:image_generation", about, success=item.failure is None)
        case CollabAgentToolCallThreadItem():
            agents = {"threads": item.receiver_thread_ids, "prompt": item.prompt}
            is_good = item.status != "failed"
            return ToolActivity(f"codex:agent:{item.tool}", agents, success=is_good)
        case _:
            return None


def tool_invoked(scene: EvaluationContext, deed: ToolActivity, item_id: str) -> ToolInvoked:
    """Tell the session of a deed."""
    failure = deed.output or f"{deed.name} failed"
    result = ToolResult(deed.output, None) if deed.success else ToolResult.error(failure)
    return ToolInvoked(
        prompt_name=scene.prompt_name,
        adapter=scene.adapter_name,
        name=deed.name,
        params=deed.params,
        result=cast("ToolResult[object]", result),
        session_id=scene.session_id,
        created_at=SYSTEM_CLOCK.utcnow(),
        rendered_output=deed.output,
        call_id=item_id,
        run_context=scene.run_context,
    )


def token_usage(used: Usage) -> TokenUsage:
    """Counts in WINK's words."""
    return TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cached_input_tokens,
    )
