"""Runs a hook that is a tool of an MCP server: its text is read like the stdout of a command."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.hooks.outputs import HookAnswer
from treadle.engine.mcp.server import McpError
from treadle.protocol.base import JsonValue
from treadle.protocol.hook import McpToolConfiguredHookHandler

if TYPE_CHECKING:
    from treadle.engine.mcp.servers import McpServers

MAX_TEXT: Final = 1024 * 1024
_PLACEHOLDER: Final = re.compile(r"\$\{([A-Za-z0-9_.]{1,200})\}")


class _NotFound(Exception):
    """The event has no value for a placeholder."""


async def run_tool(
    servers: McpServers,
    handler: McpToolConfiguredHookHandler,
    event: dict[str, JsonValue],
    timeout_s: int,
) -> HookAnswer:
    """Call the tool with the configured input, in which placeholders stand for the event's values.

    It needs no approval: the user trusted the hook.
    """
    try:
        arguments = filled(handler.input, event)
        async with asyncio.timeout(timeout_s):
            server = servers.get(handler.server)
            await server.settled()
            meta = {"threadId": event.get("session_id"), "hookEvent": event["hook_event_name"]}
            raw = await server.call(handler.tool, arguments, meta, lambda _progress: None)
    except _NotFound as error:
        return HookAnswer(error=str(error))
    except TimeoutError:
        return HookAnswer(error=f"hook timed out after {timeout_s}s")
    except McpError as error:
        return HookAnswer(error=f"MCP tool call failed: {error}")
    text = _text(raw)
    if len(text) > MAX_TEXT:
        return HookAnswer(error=f"hook returned more than {MAX_TEXT} characters")
    if raw.get("isError") is True:
        return HookAnswer(error=f"MCP tool returned an error: {text[:500]}")
    return HookAnswer(0, text)


def _text(raw: dict[str, JsonValue]) -> str:
    parts = raw.get("content")
    texts = [
        part["text"]
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]
    if not texts and raw.get("structuredContent") is not None:
        return msgspec.json.encode(raw["structuredContent"]).decode()
    return "\n".join(texts)


def filled(value: JsonValue, event: dict[str, JsonValue]) -> JsonValue:
    """Replace placeholders such as `${tool_input.command}` in the texts of a value."""
    match value:
        case dict():
            return {name: filled(each, event) for name, each in value.items()}
        case list():
            return [filled(each, event) for each in value]
        case str():
            whole = _PLACEHOLDER.fullmatch(value)
            if whole is not None:
                return _look_up(whole[1], event)
            return _PLACEHOLDER.sub(lambda found: _as_text(_look_up(found[1], event)), value)
        case _:
            return value


def _look_up(path: str, event: JsonValue) -> JsonValue:
    value = event
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            raise _NotFound(f"hook input placeholder `${{{path}}}` was not found")
        value = value[name]
    return value


def _as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
