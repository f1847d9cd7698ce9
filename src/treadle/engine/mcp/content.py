"""Converts the result of an MCP tool for clients and for the model."""

from __future__ import annotations

from typing import Final

import msgspec

from treadle.engine.tools.output import DEFAULT_TOKENS, MAX_KEPT_BYTES, tokens, truncate
from treadle.engine.tools.registry import Output
from treadle.protocol.base import JsonValue
from treadle.protocol.mcp import McpToolCallResult

MAX_PARTS: Final = 1_000
"""The most parts of a result that are kept."""

_NO_AUDIO: Final = "<audio content omitted because you do not support audio input>"


def result_of(raw: dict[str, JsonValue]) -> McpToolCallResult:
    """The result for clients; the status of the item shows whether it is an error.

    Texts have the limit of command output. Structured content over the limit cannot be truncated:
    clients receive its start and its end as text.
    """
    structured = raw.get("structuredContent")
    content = _truncate_texts(_content(raw), tokens(MAX_KEPT_BYTES))
    if structured is not None:
        text = msgspec.json.encode(structured)
        if len(text) > MAX_KEPT_BYTES:
            cut = truncate(text.decode(), tokens(MAX_KEPT_BYTES))
            content, structured = [_text_block(cut)], None
    return McpToolCallResult(content=content, meta=raw.get("_meta"), structured_content=structured)


def output_of(raw: dict[str, JsonValue], seconds: float) -> Output:
    """The result for the model: only the structured content, if there is any."""
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
    """The output of a failed call, for the model."""
    return [_text(_header(seconds)), _text(truncate(message, DEFAULT_TOKENS))]


def _header(seconds: float) -> str:
    return f"Wall time: {seconds:.4f} seconds\nOutput:"


def _content(raw: dict[str, JsonValue]) -> list[JsonValue]:
    blocks = raw.get("content") or []
    kept = [_text_block(_NO_AUDIO) if _is(each, "audio") else each for each in blocks[:MAX_PARTS]]
    if len(blocks) > MAX_PARTS:
        kept.append(_text_block(f"... {len(blocks) - MAX_PARTS} parts omitted ..."))
    return kept


def _truncate_texts(blocks: list[JsonValue], room: int) -> list[JsonValue]:
    cut: list[JsonValue] = []
    for block in blocks:
        if _is(block, "text"):
            text = truncate(str(block.get("text")), room)
            room -= tokens(len(text))
            cut.append({**block, "text": text})
        else:
            cut.append(block)
    return cut


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
