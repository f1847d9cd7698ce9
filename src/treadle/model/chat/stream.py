"""Reads Chat Completions streams, in the variants of its many servers.

Ollama sends whole calls in one chunk with the same index for all of them, vLLM sends ids only once,
others omit ids, indices, usage, the finish reason or the final `[DONE]`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
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
    ReasoningTextDelta,
    ResponseUsage,
    ToolInputDelta,
    count_of,
)
from treadle.model.errors import Now, disconnected, in_stream, incomplete, read_fault
from treadle.model.naming import short_name
from treadle.model.open_items import Index, index_of, require_room
from treadle.model.tools import Functions, new_id
from treadle.protocol.base import JsonValue
from treadle.support.text.json_text import repair_json

logger = logging.getLogger(__name__)

CHAT_SEAL: Final = f"{FOREIGN_SEAL}chat:"
"""Precedes the name of the field in which a server sent its reasoning, and expects it back."""

MAX_CHECKS: Final = 16
"""How often the arguments of one call are checked for completeness."""

MAX_CHECKED: Final = 512 * 1024
"""The longest arguments that are checked: the provider decides how many values they have."""

_REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_text", "thinking")


class _Choice(Struct, frozen=True):
    delta: JsonValue = None
    # A server that does not stream sends this instead.
    message: JsonValue = None
    finish_reason: str | None = None


class _Chunk(Struct, frozen=True):
    id: JsonValue = None
    choices: list[_Choice] | None = None
    usage: JsonValue = None
    error: JsonValue = None


_DECODER: Final = msgspec.json.Decoder(_Chunk)


class _Text(Struct):
    """A message or reasoning item in progress."""

    item: ModelItem
    pieces: list[str]
    field: str = ""


class _Call(Struct):
    """A call in progress."""

    item: ModelItem
    pieces: list[str]
    index: Index
    server_id: str | None
    checks: int = 0

    def is_whole(self) -> bool:
        """Whether the arguments are complete, so that a name starts another call.

        A server that repeats the name in each of many pieces does not send whole calls; a check of
        all arguments for each piece would take quadratic time.
        """
        self.checks += 1
        if self.checks > MAX_CHECKS or sum(map(len, self.pieces)) > MAX_CHECKED:
            return False
        try:
            # Validated only: creating objects for all values would take most of the time.
            msgspec.json.decode("".join(self.pieces), type=msgspec.Raw)
        except msgspec.DecodeError:
            return False
        return True


class ChatStream:
    """Decodes the stream of one completion."""

    def __init__(self, functions: Functions, *, now: Now = time.time) -> None:
        self._functions = functions
        self._now = now
        self._response_id: str | None = None
        self._has_begun = False
        self._message: _Text | None = None
        self._reasoning: _Text | None = None
        self._calls: list[_Call] = []
        self._newest_at: dict[Index, _Call] = {}
        self._usage: ResponseUsage | None = None
        self._is_finished = False
        self._has_answer = False
        self._failure: ModelError | None = None
        self._has_skipped = False

    def begin(self, _headers: Mapping[str, str]) -> Sequence[ModelEvent]:
        """Ignore the headers."""
        return ()

    def feed(self, payload: bytes) -> Sequence[ModelEvent]:
        """Handle one chunk."""
        if self._failure is not None:
            raise self._failure
        chunk = _decoded(payload)
        if chunk is None:
            self._note_skipped(payload)
            is_end = payload.strip() == b"[DONE]" and (self._is_finished or self._has_answer)
            return self._complete() if is_end else ()
        if chunk.error is not None:
            raise in_stream(read_fault({"error": chunk.error}), now=self._now)
        events: list[ModelEvent] = []
        if not self._has_begun:
            self._has_begun = True
            self._response_id = short_name(chunk.id) if isinstance(chunk.id, str) else None
            events.append(Created(self._response_id))
        if isinstance(chunk.usage, dict):
            self._usage = _usage_of(chunk.usage)
        for choice in (chunk.choices or ())[:1]:
            self._take(choice, events)
        # The usage comes after the last choice: nothing more will come.
        if self._is_finished and not chunk.choices and self._usage and not self._failure:
            events += self._complete()
        return events

    def _note_skipped(self, payload: bytes) -> None:
        # Once: a stream of nothing else would fill the log.
        if not self._has_skipped and payload.strip() != b"[DONE]":
            self._has_skipped = True
            logger.warning("skipped a chunk that is not JSON", extra={"size": len(payload)})

    def finish(self) -> Sequence[ModelEvent]:
        """Handle servers that just disconnect when they are done."""
        if self._failure is not None:
            raise self._failure
        if not self._is_finished:
            raise disconnected("the stream was closed before a finish_reason")
        return self._complete()

    def _take(self, choice: _Choice, events: list[ModelEvent]) -> None:
        delta = choice.delta or choice.message
        if isinstance(delta, dict):
            self._take_reasoning(delta, events)
            text = _text_in(delta.get("content")) or _text_in(delta.get("refusal"))
            if text:
                self._take_text(text, events)
            calls = delta.get("tool_calls")
            for call in calls if isinstance(calls, list) else ():
                self._take_call(call, events)
        if choice.finish_reason and not self._is_finished:
            self._finish(choice.finish_reason, events)

    def _take_reasoning(self, delta: dict[str, JsonValue], events: list[ModelEvent]) -> None:
        for field in _REASONING_FIELDS:
            text = delta.get(field)
            if isinstance(text, str) and text:
                if self._reasoning is None:
                    item: ModelItem = {"type": "reasoning", "id": new_id("rs"), "summary": []}
                    self._reasoning = _Text(item, [], field)
                    events.append(ItemStarted(item))
                self._reasoning.pieces.append(text)
                events.append(ReasoningTextDelta(str(self._reasoning.item["id"]), 0, text))
                return

    def _take_text(self, text: str, events: list[ModelEvent]) -> None:
        self._has_answer = True
        message = self._message
        if message is None:
            self._end_reasoning(events)
            item: ModelItem = {"type": "message", "id": new_id("msg"), "role": "assistant"}
            message = self._message = _Text(item, [])
            events.append(ItemStarted({**item, "status": "in_progress", "content": []}))
        message.pieces.append(text)
        events.append(ModelTextDelta(message.item["id"], text))

    def _take_call(self, call: JsonValue, events: list[ModelEvent]) -> None:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            return
        name, arguments = function.get("name"), function.get("arguments")
        opened = self._call_for(call, name)
        if opened is None:
            if not isinstance(name, str) or not name:
                return
            opened = self._start_call(call, name, events)
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        if isinstance(arguments, str) and arguments:
            opened.pieces.append(arguments)
            item_id, call_id = str(opened.item["id"]), str(opened.item["call_id"])
            events.append(ToolInputDelta(item_id, call_id, arguments))

    def _start_call(self, call: dict[str, JsonValue], name: str, events: list[ModelEvent]) -> _Call:
        require_room(len(self._calls))
        self._end_reasoning(events)
        self._end_message(events)
        self._has_answer = True
        server_id = _call_id(call)
        item = self._functions.begin_call(short_name(name), server_id or new_id("call"))
        opened = _Call(item, [], index_of(call.get("index")), server_id)
        self._calls.append(opened)
        self._newest_at[opened.index] = opened
        events.append(ItemStarted(item))
        return opened

    def _call_for(self, call: dict[str, JsonValue], name: JsonValue) -> _Call | None:
        """Return the call that a piece continues, or None if it starts another one."""
        index, id_ = index_of(call.get("index")), _call_id(call) or call.get("id")
        if index is None:
            same = self._calls[-1] if self._calls else None
        else:
            same = self._newest_at.get(index)
        if same is None or (id_ and same.server_id and id_ != same.server_id):
            return None
        is_another = bool(name) and not id_ and same.is_whole()
        return None if is_another or (index is None and name) else same

    def _finish(self, reason: str, events: list[ModelEvent]) -> None:
        self._is_finished = True
        self._end_reasoning(events)
        self._end_message(events)
        if reason in ("length", "content_filter"):
            words = "max_output_tokens" if reason == "length" else reason
            self._failure = incomplete(words)
            return
        self._end_calls(events)

    def _complete(self) -> Sequence[ModelEvent]:
        events: list[ModelEvent] = []
        self._end_reasoning(events)
        self._end_message(events)
        self._end_calls(events)
        events.append(Completed(self._response_id, self._usage))
        return events

    def _end_reasoning(self, events: list[ModelEvent]) -> None:
        reasoning, self._reasoning = self._reasoning, None
        if reasoning is not None:
            content = [{"type": "reasoning_text", "text": "".join(reasoning.pieces)}]
            seal = CHAT_SEAL + reasoning.field
            done = {**reasoning.item, "content": content, "encrypted_content": seal}
            events.append(ItemDone(done))

    def _end_message(self, events: list[ModelEvent]) -> None:
        message, self._message = self._message, None
        if message is not None:
            content = [{"type": "output_text", "text": "".join(message.pieces)}]
            events.append(ItemDone({**message.item, "status": "completed", "content": content}))

    def _end_calls(self, events: list[ModelEvent]) -> None:
        calls, self._calls, self._newest_at = self._calls, [], {}
        for call in calls:
            done = self._functions.end_call(call.item, "".join(call.pieces))
            events.append(ItemDone(done))


def _decoded(payload: bytes) -> _Chunk | None:
    if payload.strip() == b"[DONE]":
        return None
    try:
        return _DECODER.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    try:
        return _DECODER.decode(repair_json(payload))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _call_id(call: dict[str, JsonValue]) -> str | None:
    id_ = call.get("id")
    return short_name(id_) if isinstance(id_, str) and id_ else None


def _text_in(content: JsonValue) -> str:
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _usage_of(usage: dict[str, JsonValue]) -> ResponseUsage:
    read = usage.get("prompt_tokens_details")
    made = usage.get("completion_tokens_details")
    input_tokens, output_tokens = (
        count_of(usage, "prompt_tokens"),
        count_of(usage, "completion_tokens"),
    )
    return ResponseUsage(
        input_tokens=input_tokens,
        cached_input_tokens=count_of(read, "cached_tokens")
        or count_of(usage, "prompt_cache_hit_tokens"),
        output_tokens=output_tokens,
        reasoning_output_tokens=count_of(made, "reasoning_tokens"),
        total_tokens=count_of(usage, "total_tokens") or input_tokens + output_tokens,
    )
