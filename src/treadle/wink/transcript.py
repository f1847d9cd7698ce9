"""The conversation as WINK's transcript: one entry for each message and action."""

from __future__ import annotations

import json
from typing import Final

import msgspec
from weakincentives.runtime import TranscriptEmitter

from treadle.client.events import Event, UnknownNotification
from treadle.protocol.base import JsonValue
from treadle.protocol.notifications import SERVER_NOTIFICATIONS
from treadle.protocol.tool import DynamicToolCallParams, DynamicToolCallResponse
from treadle.wink.config import CodexAppServerClientConfig
from treadle.wink.context import EvaluationContext

_METHODS: Final = {each.params: method for method, each in SERVER_NOTIFICATIONS.items()}
_ACTIVITIES: Final = frozenset(
    {
        "collabAgentToolCall",
        "commandExecution",
        "fileChange",
        "imageGeneration",
        "imageView",
        "mcpToolCall",
        "webSearch",
    }
)
_COMPLETED: Final = {
    "agentMessage": "assistant_message",
    "reasoning": "thinking",
    "contextCompaction": "system_event",
    **dict.fromkeys(_ACTIVITIES, "tool_result"),
}
_PLAIN: Final = {
    "turn/started": "system_event",
    "thread/tokenUsage/updated": "token_usage",
    "error": "error",
}
# Covered by the entries of items, or not part of the conversation.
_SILENT: Final = ("elta", "/summaryPartAdded", "/progress", "/updated", "/terminalInteraction")


class Transcript:
    """Writes the entries of one evaluation."""

    def __init__(self, context: EvaluationContext, config: CodexAppServerClientConfig) -> None:
        session_id = context.session_id
        self._is_on = config.transcript
        self._keeps_raw = config.transcript_emit_raw
        self._emitter = TranscriptEmitter(
            prompt_name=context.prompt_name,
            adapter=context.adapter_name,
            session_id=None if session_id is None else str(session_id),
            emit_raw=config.transcript_emit_raw,
        )

    def start(self) -> None:
        """Open the transcript."""
        if self._is_on:
            self._emitter.start()

    def stop(self) -> None:
        """Close the transcript with its summary."""
        if self._is_on:
            self._emitter.stop()

    def user(self, text: str) -> None:
        """Add the user's input."""
        if self._is_on:
            self._emitter.emit("user_message", detail={"text": text})

    def record(self, event: Event) -> None:
        """Add a notification of the server."""
        if not self._is_on:
            return
        params: JsonValue
        if isinstance(event, UnknownNotification):
            method, params = event.method, event.params
        else:
            method, params = _METHODS.get(type(event), ""), None
        if method.endswith(_SILENT) and method not in _PLAIN:
            return
        if params is None:
            params = msgspec.to_builtins(event)
        entry = _entry(method, params)
        if entry is not None:
            self._emit(entry, {"notification": params, **_subtype(method, params)}, method, params)

    def call(self, params: DynamicToolCallParams) -> None:
        """Add a call of a WINK tool."""
        if self._is_on:
            document: JsonValue = msgspec.to_builtins(params)
            self._emit("tool_use", {"notification": document}, "item/tool/call", document)

    def answer(self, params: DynamicToolCallParams, response: DynamicToolCallResponse) -> None:
        """Add the result of a WINK tool."""
        if self._is_on:
            document: JsonValue = msgspec.to_builtins(params)
            detail = {"notification": document, "result": msgspec.to_builtins(response)}
            self._emit("tool_result", detail, "item/tool/call", document)

    def _emit(
        self, entry: str, detail: dict[str, JsonValue], method: str, params: JsonValue
    ) -> None:
        raw = json.dumps({"method": method, "params": params}) if self._keeps_raw else None
        self._emitter.emit(entry, detail=detail, raw=raw)


def _entry(method: str, params: JsonValue) -> str | None:
    if method in _PLAIN:
        return _PLAIN[method]
    if method == "turn/completed":
        return "error" if params["turn"].get("status") == "failed" else None
    if method in ("item/started", "item/completed"):
        kind = params["item"].get("type")
        if method == "item/completed":
            return _COMPLETED.get(kind)
        return "tool_use" if kind in _ACTIVITIES else None
    return "unknown" if method.startswith(("item/", "turn/")) else None


def _subtype(method: str, params: JsonValue) -> dict[str, JsonValue]:
    if method == "turn/started":
        return {"subtype": "turn_started"}
    is_item = method == "item/completed"
    is_compaction = is_item and params["item"].get("type") == "contextCompaction"
    return {"subtype": "compaction"} if is_compaction else {}
