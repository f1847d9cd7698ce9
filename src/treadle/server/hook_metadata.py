"""Describes a configured hook to clients."""

from __future__ import annotations

from treadle.engine.hooks.hook import Hook
from treadle.protocol.base import JsonValue
from treadle.protocol.hook import (
    CommandConfiguredHookHandler,
    CommandHookMetadata,
    HookMetadata,
    McpToolHookMetadata,
)


def metadata_of(hook: Hook) -> HookMetadata:
    """Return a hook as clients see it."""
    common: dict[str, JsonValue] = {
        "current_hash": hook.current_hash,
        "display_order": hook.display_order,
        "enabled": hook.is_enabled,
        "event_name": hook.event_name,
        "is_managed": hook.is_managed,
        "key": hook.key,
        "source": hook.source,
        "source_path": hook.source_path,
        "timeout_sec": hook.timeout_s,
        "trust_status": hook.trust,
        "matcher": hook.matcher,
        "plugin_id": hook.plugin_id,
        "status_message": hook.handler.status_message,
    }
    if isinstance(hook.handler, CommandConfiguredHookHandler):
        return CommandHookMetadata(
            command=hook.handler.command,
            additional_context_limit=hook.handler.additional_context_limit,
            async_=hook.is_async,
            **common,
        )
    return McpToolHookMetadata(server=hook.handler.server, tool=hook.handler.tool, **common)
