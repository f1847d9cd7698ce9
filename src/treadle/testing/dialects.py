"""A response with one message in the form of each API, as a list of events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from treadle.protocol.base import JsonValue


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form of a streamed text in one API: its beginning, its end, and its overload error."""

    path: str
    # They take the text and a unique number for its ids.
    begin: Callable[[str, int], list[bytes]]
    end: Callable[[str, int], list[bytes]]
    overload: bytes


def event(data: JsonValue, *, has_name: bool = True) -> bytes:
    """Return one server-sent event; lone surrogates become JSON escapes."""
    name = f"event: {data['type']}\n" if has_name else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def dialect_of(path: str) -> Dialect | None:
    """Return the API of a request path, if it is known."""
    plain = path.partition("?")[0].rstrip("/")
    return next((each for each in DIALECTS if plain.endswith(each.path)), None)


# -- OpenAI Responses


def _item(number: int, status: str, content: JsonValue) -> JsonValue:
    head = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
    return {**head, "status": status, "content": content}


def _responses_begin(text: str, number: int) -> list[bytes]:
    place = {"item_id": f"msg_{number}", "output_index": 0, "content_index": 0}
    item = _item(number, "in_progress", [])
    return [
        event({"type": "response.created", "response": {"id": f"resp_{number}"}}),
        event({"type": "response.output_item.added", "output_index": 0, "item": item}),
        event({"type": "response.output_text.delta", **place, "delta": text}),
    ]


def _responses_end(text: str, number: int) -> list[bytes]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = _item(number, "completed", content)
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    response = {"id": f"resp_{number}", "status": "completed", "usage": usage}
    return [
        event({"type": "response.output_item.done", "output_index": 0, "item": item}),
        event({"type": "response.completed", "response": response}),
    ]


_RESPONSES_OVERLOAD: Final = event(
    {
        "type": "response.failed",
        "response": {
            "id": "resp_0",
            "status": "failed",
            "error": {"code": "server_is_overloaded", "message": "The server is overloaded."},
        },
    }
)


# -- Chat Completions


def _chat(number: int, delta: JsonValue, finish: str | None = None, **more: JsonValue) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": f"chat_{number}", "model": "test"}
    return event({**head, "choices": [choice], **more}, has_name=False)


def _chat_begin(text: str, number: int) -> list[bytes]:
    role = {"role": "assistant", "content": ""}
    return [_chat(number, role), _chat(number, {"content": text})]


def _chat_end(_text: str, number: int) -> list[bytes]:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [_chat(number, {}, "stop", usage=usage), b"data: [DONE]\n\n"]


_CHAT_OVERLOAD: Final = event(
    {"error": {"message": "The server is overloaded.", "type": "overloaded_error", "code": 503}},
    has_name=False,
)


# -- Anthropic Messages


def _anthropic_begin(text: str, number: int) -> list[bytes]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "test"}
    block = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": text}
    return [
        event({"type": "message_start", "message": {**message, "content": [], "usage": usage}}),
        event({"type": "content_block_start", "index": 0, "content_block": block}),
        event({"type": "content_block_delta", "index": 0, "delta": delta}),
    ]


def _anthropic_end(_text: str, _number: int) -> list[bytes]:
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        event({"type": "content_block_stop", "index": 0}),
        event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}}),
        event({"type": "message_stop"}),
    ]


_ANTHROPIC_OVERLOAD: Final = event(
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
)

DIALECTS: Final[Sequence[Dialect]] = (
    Dialect("/responses", _responses_begin, _responses_end, _RESPONSES_OVERLOAD),
    Dialect("/chat/completions", _chat_begin, _chat_end, _CHAT_OVERLOAD),
    Dialect("/messages", _anthropic_begin, _anthropic_end, _ANTHROPIC_OVERLOAD),
)
