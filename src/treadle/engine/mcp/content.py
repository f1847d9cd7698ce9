"""What a tool gave back, as clients are told it and as the model reads it."""

from __future__ import annotations

from typing import Final

import msgspec

from treadle.engine.tools.output import DEFAULT_TOKENS, tokens, truncate
from treadle.engine.tools.registry import Output
from treadle.protocol.base import JsonValue
from treadle.protocol.mcp import McpToolCallResult

_NO_AUDIO: Final = "<audio content omitted because you do not support audio input>"


def result_of(raw: dict[str, JsonValue]) -> McpToolCallResult:
    """The result as clients are told it; what it says of failing is the status of the item."""
    return McpToolCallResult(
        content=_content(raw),
        meta=raw.get("_meta"),
        structured_content=raw.get("structuredContent"),
    )


def output_of(raw: dict[str, JsonValue], seconds: float) -> Output:
    """The result as the model reads it: structured content alone, where there is some."""
    structured = raw.get("structuredContent")
    if structured is not None:
        text = truncate(msgspec.json.encode(structured).decode(), DEFAULT_TOKENS)
        return f"{_header(seconds)}\n{text}"
    parts: list[JsonValue] = [_text(_header(seconds))]
    room = DEFAULT_TOKENS
    for block in _content(raw):
        part = _part(block, room)
        room -= tokens(len(part.get("text", "")))
        parts.append(part)
    return parts


def failure_of(message: str, seconds: float) -> Output:
    """A call that came to nothing, as the model reads it."""
    return [_text(_header(seconds)), _text(truncate(message, DEFAULT_TOKENS))]


def _header(seconds: float) -> str:
    return f"Wall time: {seconds:.4f} seconds\nOutput:"


def _content(raw: dict[str, JsonValue]) -> list[JsonValue]:
    blocks = raw.get("content") or []
    return [_text_block(_NO_AUDIO) if _is(block, "audio") else block for block in blocks]


def _part(block: JsonValue, room: int) -> dict[str, JsonValue]:
    if _is(block, "text"):
        return _text(truncate(str(block.get("text")), room))
    if _is(block, "image"):
        url = f"data:{block.get('mimeType')};base64,{block.get('data')}"
        return {"type": "input_image", "image_url": url, "detail": "high"}
    return _text(truncate(msgspec.json.encode(block).decode(), room))


def _is(block: JsonValue, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _text(text: str) -> dict[str, JsonValue]:
    return {"type": "input_text", "text": text}


def _text_block(text: str) -> dict[str, JsonValue]:
    return {"type": "text", "text": text}
