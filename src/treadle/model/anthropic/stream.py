"""Reads the stream of Anthropic's Messages API.

A thinking block becomes a reasoning item. Its signature, without which the provider rejects the
block later, is stored in the item's `encrypted_content`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from treadle.model.base import (
    FOREIGN_SEAL,
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelItem,
    ModelTextDelta,
    ReasoningPartAdded,
    ReasoningSummaryDelta,
    ResponseUsage,
    ServerModel,
    ToolInputDelta,
    count_of,
)
from treadle.model.errors import Now, disconnected, in_stream, incomplete, read_fault
from treadle.model.http.response_limits import check_hidden_size
from treadle.model.http.sse import decode_json
from treadle.model.naming import short_name
from treadle.model.open_items import Index, index_of, require_room
from treadle.model.tools import Functions, new_id
from treadle.protocol.base import JsonValue

THINKING_SEAL: Final = f"{FOREIGN_SEAL}anthropic:thinking:"
REDACTED_SEAL: Final = f"{FOREIGN_SEAL}anthropic:redacted:"
_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)


class _Block(Struct):
    """A content block in progress."""

    item: ModelItem
    pieces: list[str]
    seal: list[str]


class AnthropicStream:
    """Decodes the stream of one message."""

    def __init__(self, functions: Functions, *, now: Now = time.time) -> None:
        self._functions = functions
        self._now = now
        self._response_id: str | None = None
        self._blocks: dict[Index, _Block] = {}
        self._usage: dict[str, JsonValue] = {}
        # Signatures, and what comes with the start of a block, have no event: counted here.
        self._hidden = 0
        self._stop_reason: str | None = None
        self._takers: dict[str, Callable[[JsonValue], Sequence[ModelEvent]]] = {
            "message_start": self._start,
            "content_block_start": self._start_block,
            "content_block_delta": self._take_delta,
            "content_block_stop": self._end_block,
            "message_delta": self._take_end,
            "message_stop": self._stop,
            "error": self._fail,
        }

    def begin(self, _headers: Mapping[str, str]) -> Sequence[ModelEvent]:
        """Ignore the headers."""
        return ()

    def feed(self, payload: bytes) -> Sequence[ModelEvent]:
        """Handle one event; pings and events of later versions are ignored."""
        try:
            event = decode_json(payload)
        except msgspec.DecodeError:
            return ()
        if not isinstance(event, dict):
            return ()
        kind = event.get("type") or ("error" if "error" in event else "")
        taker = self._takers.get(str(kind))
        return () if taker is None else taker(event)

    def finish(self) -> Sequence[ModelEvent]:
        """Raise: the stream was cut."""
        raise disconnected("the stream was closed before message_stop")

    def _start(self, event: JsonValue) -> Sequence[ModelEvent]:
        message = _table(event.get("message"))
        self._note_usage(message.get("usage"))
        id_, model = message.get("id"), message.get("model")
        self._response_id = short_name(id_) if isinstance(id_, str) else None
        named = (ServerModel(short_name(model)),) if isinstance(model, str) else ()
        return (Created(self._response_id), *named)

    def _start_block(self, event: JsonValue) -> Sequence[ModelEvent]:
        block = _table(event.get("content_block"))
        item: ModelItem
        match block.get("type"):
            case "text":
                item = {"type": "message", "id": new_id("msg"), "role": "assistant"}
                started = {**item, "status": "in_progress", "content": []}
                opened = _Block(item, [], [])
            case "thinking" | "redacted_thinking":
                item = started = {"type": "reasoning", "id": new_id("rs"), "summary": []}
                data = block.get("data")
                opened = _Block(item, [], [REDACTED_SEAL, data] if isinstance(data, str) else [])
            case "tool_use":
                call_id = short_name(str(block.get("id") or new_id("call")))
                name = short_name(str(block.get("name")))
                item = started = self._functions.begin_call(name, call_id)
                opened = _Block(item, [], [])
                given = block.get("input")
                if given:
                    # Compatible servers send the whole input at once.
                    opened.pieces.append(msgspec.json.encode(given).decode())
            case _:
                return ()
        self._hide(*opened.pieces, *opened.seal)
        require_room(len(self._blocks))
        self._blocks[index_of(event.get("index"))] = opened
        first = str(block.get("text") or block.get("thinking") or "")
        return (ItemStarted(started), *(self._add(opened, first) if first else ()))

    def _take_delta(self, event: JsonValue) -> Sequence[ModelEvent]:
        block = self._blocks.get(index_of(event.get("index")))
        delta = _table(event.get("delta"))
        if block is None:
            return ()
        if delta.get("type") == "signature_delta":
            block.seal.append(str(delta.get("signature") or ""))
            self._hide(block.seal[-1])
            return ()
        text = delta.get("text") or delta.get("thinking") or delta.get("partial_json")
        return self._add(block, text) if isinstance(text, str) and text else ()

    def _add(self, block: _Block, text: str) -> Sequence[ModelEvent]:
        is_first = not block.pieces
        block.pieces.append(text)
        id_ = str(block.item["id"])
        match block.item["type"]:
            case "message":
                return (ModelTextDelta(id_, text),)
            case "reasoning":
                delta = ReasoningSummaryDelta(id_, 0, text)
                return (ReasoningPartAdded(id_, 0), delta) if is_first else (delta,)
            case _:
                return (ToolInputDelta(id_, str(block.item["call_id"]), text),)

    def _end_block(self, event: JsonValue) -> Sequence[ModelEvent]:
        block = self._blocks.pop(index_of(event.get("index")), None)
        return () if block is None else (ItemDone(self._whole(block)),)

    def _whole(self, block: _Block) -> ModelItem:
        text, item = "".join(block.pieces), block.item
        match item["type"]:
            case "message":
                content = [{"type": "output_text", "text": text}]
                return {**item, "status": "completed", "content": content}
            case "reasoning":
                summary = [{"type": "summary_text", "text": text}] if text else []
                seal = "".join(block.seal)
                if not seal.startswith(REDACTED_SEAL):
                    seal = THINKING_SEAL + seal
                return {**item, "summary": summary, "encrypted_content": seal}
            case _:
                return self._functions.end_call(item, text)

    def _take_end(self, event: JsonValue) -> Sequence[ModelEvent]:
        reason = _table(event.get("delta")).get("stop_reason")
        self._stop_reason = reason if isinstance(reason, str) else self._stop_reason
        self._note_usage(event.get("usage"))
        return ()

    def _note_usage(self, usage: JsonValue) -> None:
        found = _table(usage)
        self._usage |= {name: found[name] for name in _COUNTS if found.get(name) is not None}

    def _hide(self, *pieces: str) -> None:
        self._hidden += sum(map(len, pieces))
        check_hidden_size(self._hidden)

    def _stop(self, _event: JsonValue) -> Sequence[ModelEvent]:
        match self._stop_reason:
            case "max_tokens":
                raise incomplete("max_output_tokens")
            case "model_context_window_exceeded":
                words = "the conversation and its response exceed the context window"
                raise ModelError(words, info="contextWindowExceeded", phase="stream")
            case "refusal":
                raise incomplete("the model refused to continue")
            case _:
                end_turn = False if self._stop_reason == "pause_turn" else None
                return (Completed(self._response_id, _usage_of(self._usage), end_turn),)

    def _fail(self, event: JsonValue) -> Sequence[ModelEvent]:
        raise in_stream(read_fault(event), now=self._now)


def _usage_of(usage: dict[str, JsonValue]) -> ResponseUsage | None:
    if not usage:
        return None
    cached = count_of(usage, "cache_read_input_tokens")
    written = count_of(usage, "cache_creation_input_tokens")
    # Unlike everywhere else, input tokens do not include cached tokens here.
    input_tokens = count_of(usage, "input_tokens") + cached + written
    output_tokens = count_of(usage, "output_tokens")
    return ResponseUsage(
        input_tokens=input_tokens,
        cached_input_tokens=cached,
        cache_write_input_tokens=written,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
    )


def _table(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}
