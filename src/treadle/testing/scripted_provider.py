"""A script played over HTTP as the Responses API, for any app-server: Treadle's or Codex's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from treadle.model.base import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelTextDelta,
    ReasoningPartAdded,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    ResponseUsage,
    ToolInputDelta,
)
from treadle.model.scripted.model import ScriptedModel
from treadle.model.scripted.script import ScriptLike
from treadle.protocol.base import JsonValue
from treadle.testing.provider import Provider, ProviderRequest, serve

if TYPE_CHECKING:
    from aiohttp.web import Request, StreamResponse


@asynccontextmanager
async def scripted_provider(script: ScriptLike | None = None) -> AsyncIterator[Provider]:
    """Play a script at `provider.base_url` over the Responses API.

    A failure before the first event becomes an HTTP error; a later one breaks the stream.
    """
    model = ScriptedModel(script, keep_requests=0)

    async def respond(request: Request, received: ProviderRequest) -> StreamResponse:
        from aiohttp.web import Response, StreamResponse, json_response

        if not received.path.partition("?")[0].endswith("/responses"):
            return Response(status=404)
        response = StreamResponse(headers={"content-type": "text/event-stream"})
        try:
            async with aclosing(model.stream(_read(received))) as events:
                async for event in events:
                    if not response.prepared:
                        await response.prepare(request)
                    for data in _wire_events(event):
                        text = f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"
                        await response.write(text.encode())
        except ModelError as error:
            if not response.prepared:
                code = "server_error" if error.is_retryable else "invalid_request_error"
                body = {"error": {"message": error.message, "code": code}}
                return json_response(body, status=error.http_status or 500)
            if request.transport is not None:
                request.transport.close()
        return response

    async with serve(Provider(respond)) as provider:
        yield provider


def _read(received: ProviderRequest) -> ModelRequest:
    """Return the request for a script that is a function."""
    body: JsonValue = received.json
    return ModelRequest(
        model=body.get("model", ""),
        instructions=body.get("instructions") or "",
        input=body.get("input", []),
        tools=body.get("tools", []),
        thread_id=received.headers.get("session_id") or body.get("prompt_cache_key") or "",
        turn_id="",
    )


def _wire_events(event: ModelEvent) -> list[JsonValue]:
    """Return an event in the form of the Responses API."""
    match event:
        case Created():
            return [{"type": "response.created", "response": {"id": event.response_id}}]
        case ItemStarted():
            return [{"type": "response.output_item.added", "output_index": 0, "item": event.item}]
        case ItemDone():
            return [{"type": "response.output_item.done", "output_index": 0, "item": event.item}]
        case Completed():
            usage = _usage(event.usage or ResponseUsage())
            response: JsonValue = {"id": event.response_id, "status": "completed", "usage": usage}
            if event.end_turn is not None:
                response["end_turn"] = event.end_turn
            return [{"type": "response.completed", "response": response}]
        case _:
            return _delta(event)


def _delta(event: ModelEvent) -> list[JsonValue]:
    place: JsonValue = {"output_index": 0}
    match event:
        case ModelTextDelta(id_, delta):
            kind, more = "output_text", {"item_id": id_, "content_index": 0, "delta": delta}
        case ReasoningSummaryDelta(id_, index, delta):
            kind = "reasoning_summary_text"
            more = {"item_id": id_, "summary_index": index, "delta": delta}
        case ReasoningTextDelta(id_, index, delta):
            kind, more = "reasoning_text", {"item_id": id_, "content_index": index, "delta": delta}
        case ToolInputDelta(id_, _, delta):
            kind, more = "function_call_arguments", {"item_id": id_, "delta": delta}
        case ReasoningPartAdded(id_, index):
            part = {"item_id": id_, "summary_index": index}
            return [{"type": "response.reasoning_summary_part.added", **place, **part}]
        case _:
            return []  # rate limits and routing belong into headers, which are already sent
    return [{"type": f"response.{kind}.delta", **place, **more}]


def _usage(usage: ResponseUsage) -> JsonValue:
    counts = msgspec.to_builtins(usage)
    cached, reasoning = counts.pop("cached_input_tokens"), counts.pop("reasoning_output_tokens")
    counts.pop("cache_write_input_tokens")
    return {
        **counts,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }
