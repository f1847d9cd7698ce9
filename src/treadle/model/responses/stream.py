"""Reads the stream of the Responses API leniently.

Servers omit ids, starts and indices, or use another id in each event. The resulting events have one
id for each item, and a start before everything else about it.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

import msgspec
from msgspec import Struct

from treadle.model.base import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelItem,
    ModelTextDelta,
    RateLimits,
    ReasoningPartAdded,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    Rerouted,
    ResponseUsage,
    ServerModel,
    ToolInputDelta,
    count_of,
)
from treadle.model.errors import Now, disconnected, in_stream, incomplete, read_fault
from treadle.model.http.response_limits import MAX_ITEMS
from treadle.model.http.sse import decode_json
from treadle.model.naming import short_name, with_short_names
from treadle.model.open_items import UnfinishedItem, UnfinishedItems, index_of
from treadle.model.rate_limits import limits_of_event, limits_of_headers
from treadle.protocol.base import JsonValue
from treadle.support.text.json_text import repair_json

logger = logging.getLogger(__name__)

MAX_RATE_LIMITS: Final = 64
"""How many rate limits of one stream are reported; each goes to every client of the server."""

MAX_REROUTES: Final = 16
"""How many models may answer one request; each is published."""

_MODEL_HEADERS: Final = ("openai-model", "x-openai-model")
_PREFIXES: Final = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
    "local_shell_call": "lsh",
}
_DATE: Final = re.compile(r"-(20\d{2}-?\d{2}-?\d{2}|latest)$")
_CALLS: Final = ("function_call", "custom_tool_call")


class _Event(Struct, frozen=True):
    """The needed fields of an event; others are skipped unread."""

    type: str = ""
    delta: JsonValue = None
    item_id: str | None = None
    output_index: JsonValue = None
    summary_index: JsonValue = None
    content_index: JsonValue = None
    item: JsonValue = None
    response: JsonValue = None
    error: JsonValue = None
    headers: JsonValue = None


_DECODER: Final = msgspec.json.Decoder(_Event)


class ResponsesStream:
    """Decodes the stream of one response."""

    def __init__(self, model: str, *, now: Now = time.time) -> None:
        self._model = model
        self._now = now
        self._open = UnfinishedItems()
        # Nearly every delta takes this path: one lookup less is measurable.
        self._by_id = self._open.by_id
        self._done = 0
        self._has_skipped = False
        self._rate_limits = 0
        # The models that have answered, by the headers.
        self._models: set[str] = set()

    def begin(self, headers: Mapping[str, str]) -> Sequence[ModelEvent]:
        """Report rate limits, and whether another model than the requested one responds."""
        return [RateLimits(limits_of_headers(headers)), *self._answering(headers)]

    def _answering(self, headers: JsonValue | Mapping[str, str]) -> Sequence[ModelEvent]:
        """Report the model that headers name, once."""
        model = short_name(_model_of(headers))
        if not model or model in self._models or len(self._models) == MAX_REROUTES:
            return ()
        self._models.add(model)
        if _is_same_model(model, self._model):
            return (ServerModel(model),)
        return (ServerModel(model), Rerouted(model))

    def feed(self, payload: bytes) -> Sequence[ModelEvent]:
        """Handle one event."""
        try:
            event = _DECODER.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            mended = _mended(payload)
            if mended is None:
                self._note_skipped(payload)
                return ()
            event = mended
        if event.type == "response.output_text.delta":
            item = self._by_id.get(event.item_id)
            if item is not None and isinstance(event.delta, str):
                return (ModelTextDelta(item.id, event.delta),)
        if event.headers is None and event.response is None:
            return self._take(event, payload)
        response = event.response if isinstance(event.response, dict) else {}
        model = [*self._answering(response.get("headers")), *self._answering(event.headers)]
        return [*model, *self._take(event, payload)]

    def finish(self) -> Sequence[ModelEvent]:
        """Raise: the stream was cut."""
        raise disconnected("the stream was closed before response.completed")

    def _take(self, event: _Event, payload: bytes) -> Sequence[ModelEvent]:
        kind = event.type
        if isinstance(event.delta, str) and kind.endswith(".delta"):
            return self._take_delta(event, event.delta)
        match kind:
            case "response.output_item.added" if _is_item(event.item):
                return self._start(event.item, event.output_index)
            case "response.output_item.done" if _is_item(event.item):
                return self._end(event.item, event.output_index)
            case "response.reasoning_summary_part.added":
                item, started = self._find_or_start(event, "reasoning")
                return [*started, ReasoningPartAdded(item.id, _index(event.summary_index))]
            case "response.created":
                return (Created(_response_id(event)),)
            case "response.completed" | "response.done":
                return self._complete(event)
            case "codex.rate_limits":
                self._rate_limits += 1
                if self._rate_limits > MAX_RATE_LIMITS:
                    return ()
                return (RateLimits(limits_of_event(_whole(payload))),)
            case _:
                self._raise_failure(event, payload)
                return ()

    def _note_skipped(self, payload: bytes) -> None:
        # Once: a stream of nothing else would fill the log.
        if not self._has_skipped and payload.strip() != b"[DONE]":
            self._has_skipped = True
            logger.warning("skipped an event that is not JSON", extra={"size": len(payload)})

    def _raise_failure(self, event: _Event, payload: bytes) -> None:
        response = event.response if isinstance(event.response, dict) else {}
        if event.type == "response.failed":
            raise in_stream(read_fault(response.get("error") or {}), now=self._now)
        if event.type in ("response.incomplete", "response.cancelled"):
            details = response.get("incomplete_details")
            reason = details.get("reason") if isinstance(details, dict) else None
            raise incomplete(str(reason or event.type.removeprefix("response.")))
        if event.type == "error" or (not event.type and event.error is not None):
            raise in_stream(read_fault(_whole(payload) or event.error or ""), now=self._now)

    def _take_delta(self, event: _Event, delta: str) -> Sequence[ModelEvent]:
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                item, started = self._find_or_start(event, "message")
                return [*started, ModelTextDelta(item.id, delta)]
            case "response.reasoning_summary_text.delta":
                item, started = self._find_or_start(event, "reasoning")
                index = _index(event.summary_index)
                return [*started, ReasoningSummaryDelta(item.id, index, delta)]
            case "response.reasoning_text.delta":
                item, started = self._find_or_start(event, "reasoning")
                index = _index(event.content_index)
                return [*started, ReasoningTextDelta(item.id, index, delta)]
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                call = self._open.find(event.item_id, event.output_index, _CALLS)
                # A call that never started has no name to show.
                return () if call is None else (ToolInputDelta(call.id, call.call_id, delta),)
            case _:
                return ()

    def _start(self, item: ModelItem, output_index: JsonValue) -> Sequence[ModelEvent]:
        item = with_short_names(item)
        server_id = _text_or_none(item.get("id"))
        if server_id is not None and server_id in self._by_id:
            return ()
        opened = self._open_item(str(item.get("type")), server_id, output_index)
        opened.call_id = _text_or_none(item.get("call_id"))
        return (ItemStarted({**item, "id": opened.id}),)

    def _end(self, item: ModelItem, output_index: JsonValue) -> Sequence[ModelEvent]:
        self._done += 1
        item = with_short_names(item)
        kind = str(item.get("type"))
        opened = self._open.find(item.get("id"), output_index, (kind,))
        if kind == "message":
            item = _with_refusals_as_text(_as_assistant(item))
        elif not _text_or_none(item.get("call_id")) and (kind in _CALLS or item.get("call_id")):
            # Without an id, or with one that is not a text, it could not be answered.
            item = {**item, "call_id": _new_id(kind)}
        if opened is None:
            whole = {**item, "id": _text_or_none(item.get("id")) or _new_id(kind)}
            return (ItemStarted(whole), ItemDone(whole))
        self._open.remove(opened)
        return (ItemDone({**item, "id": opened.id}),)

    def _complete(self, event: _Event) -> Sequence[ModelEvent]:
        response = event.response if isinstance(event.response, dict) else {}
        events: list[ModelEvent] = []
        output = response.get("output")
        if not self._done and isinstance(output, list):
            # Some servers send the items only at the very end.
            # One more than allowed: the endpoint counts them.
            for index, item in enumerate(output[: MAX_ITEMS + 1]):
                if _is_item(item):
                    events += self._end(item, index)
        end_turn = response.get("end_turn")
        usage = usage_of(response.get("usage"))
        is_said = isinstance(end_turn, bool)
        events.append(Completed(_response_id(event), usage, end_turn if is_said else None))
        return events

    def _find_or_start(
        self, event: _Event, kind: str
    ) -> tuple[UnfinishedItem, Sequence[ModelEvent]]:
        found = self._open.find(event.item_id, event.output_index, (kind,))
        if found is not None:
            return found, ()
        opened = self._open_item(kind, _text_or_none(event.item_id), event.output_index)
        item: ModelItem = {"type": kind, "id": opened.id}
        item |= {"role": "assistant", "content": []} if kind == "message" else {"summary": []}
        return opened, (ItemStarted(item),)

    def _open_item(
        self, kind: str, server_id: str | None, output_index: JsonValue
    ) -> UnfinishedItem:
        server_id = short_name(server_id) if server_id else None
        id_ = server_id or _new_id(kind)
        opened = UnfinishedItem(id_, kind, server_id, index_of(output_index))
        self._open.add(opened)
        return opened


def usage_of(usage: JsonValue) -> ResponseUsage | None:
    """Return the tokens that a response reports; details may be missing or null."""
    if not isinstance(usage, dict):
        return None
    cached = usage.get("input_tokens_details") or {}
    made = usage.get("output_tokens_details") or {}
    input_tokens, output_tokens = count_of(usage, "input_tokens"), count_of(usage, "output_tokens")
    return ResponseUsage(
        input_tokens=input_tokens,
        cached_input_tokens=count_of(cached, "cached_tokens"),
        cache_write_input_tokens=count_of(cached, "cache_write_tokens"),
        output_tokens=output_tokens,
        reasoning_output_tokens=count_of(made, "reasoning_tokens"),
        total_tokens=count_of(usage, "total_tokens") or input_tokens + output_tokens,
    )


def _whole(payload: bytes) -> JsonValue:
    """Return all fields of an event; none if those that events do not need are invalid."""
    try:
        return decode_json(payload)
    except msgspec.DecodeError:
        return {}


def _mended(payload: bytes) -> _Event | None:
    try:
        return _DECODER.decode(repair_json(payload))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _is_item(value: JsonValue) -> TypeGuard[ModelItem]:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _as_assistant(item: ModelItem) -> ModelItem:
    """Return a message of the model under its own role.

    In the history, another role would give it the authority of the user or of the client.
    """
    if item.get("role") == "assistant":
        return item
    content = item.get("content")
    parts = [
        {**part, "type": "output_text"} if part.get("type") == "input_text" else part
        for part in (content if isinstance(content, list) else ())
        if isinstance(part, dict)
    ]
    return {**item, "role": "assistant", "content": content if isinstance(content, str) else parts}


def _with_refusals_as_text(item: ModelItem) -> ModelItem:
    content = item.get("content")
    if not isinstance(content, list) or not any(_is_refusal(part) for part in content):
        return item
    parts = [
        {"type": "output_text", "text": str(part.get("refusal"))} if _is_refusal(part) else part
        for part in content
    ]
    return {**item, "content": parts}


def _is_refusal(part: JsonValue) -> bool:
    return isinstance(part, dict) and part.get("type") == "refusal"


def _new_id(kind: str) -> str:
    return f"{_PREFIXES.get(kind, 'item')}_{uuid.uuid4().hex}"


def _model_of(headers: JsonValue | Mapping[str, str]) -> str:
    """Return the model that headers name; inside an event, a value may be a list."""
    if not isinstance(headers, Mapping):
        return ""
    for name, value in headers.items():
        if name.lower() in _MODEL_HEADERS:
            first = value[0] if isinstance(value, list) and value else value
            return first if isinstance(first, str) else ""
    return ""


def _is_same_model(answering: str, asked: str) -> bool:
    """Return whether two names differ by a date at most."""
    return _DATE.sub("", answering.lower()) == _DATE.sub("", asked.lower())


def _response_id(event: _Event) -> str | None:
    id_ = _text_or_none(event.response.get("id")) if isinstance(event.response, dict) else None
    return id_ and short_name(id_)


def _text_or_none(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None


def _index(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
