"""Parses server-sent events: bytes in, the data of whole events out."""

from __future__ import annotations

import json
import logging
from typing import Final

import msgspec

from treadle.protocol.base import JsonValue
from treadle.support.text.json_text import (
    MAX_CONTAINERS,
    MAX_NESTING,
    is_crowded,
    is_nested_deeper,
    repair_json,
)

logger = logging.getLogger(__name__)

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
_LONG_EVENT_BYTES: Final = 1024 * 1024


class EventTooLarge(Exception):
    """An event is larger than the limit."""

    def __init__(self, size: int) -> None:
        super().__init__(f"an event of the stream is larger than {size} bytes")
        self.size = size


class SseParser:
    """Splits a stream into events, independent of its chunks."""

    __slots__ = ("_has_skipped", "_limit", "_pending", "_searched")

    def __init__(self, *, limit: int = MAX_EVENT_BYTES) -> None:
        self._pending = bytearray()
        # The part already searched: the start of a long event is not searched again.
        self._searched = 0
        self._limit = limit
        self._has_skipped = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add a chunk; return the data of each event that it completes.

        Raises:
            EventTooLarge: an event exceeds the limit.
        """
        pending = self._pending
        if not pending and b"\r" not in chunk and chunk.endswith(b"\n\n"):
            return self._checked(_data_of(chunk.split(b"\n\n")))
        held = b"\r" if pending.endswith(b"\r") else b""
        if held:
            del pending[-1:]
        pending += _with_plain_newlines(held + chunk)
        start = max(0, self._searched - 1)
        end = pending.rfind(b"\n\n", start)
        if end < 0:
            self._searched = max(0, len(pending) - 1)
            if len(pending) > self._limit:
                raise EventTooLarge(self._limit)
            return []
        # A long event is copied once and not searched again: none ends before `start`.
        first = pending.find(b"\n\n", start)
        blocks = [bytes(memoryview(pending)[:first])]
        if first < end:
            blocks += bytes(memoryview(pending)[first + 2 : end]).split(b"\n\n")
        del pending[: end + 2]
        self._searched = 0
        return self._checked(_data_of(blocks))

    def ends_long_event(self, chunk: bytes) -> bool:
        """Return whether `feed` may take long: the chunk ends an event of more than 1 MiB."""
        return len(self._pending) > _LONG_EVENT_BYTES and (b"\n" in chunk or b"\r" in chunk)

    def finish(self) -> list[bytes]:
        """Return the last event at the end of a stream: some servers omit the last blank line."""
        rest, self._pending = bytes(self._pending), bytearray()
        return self._checked(_data_of([rest]))

    def _checked(self, events: list[bytes]) -> list[bytes]:
        kept = _shallow(events)
        if len(kept) < len(events) and not self._has_skipped:
            self._has_skipped = True  # once: a stream of nothing else would fill the log
            limits = {"limits": (MAX_NESTING, MAX_CONTAINERS)}
            logger.warning("skipped an event with too deep nesting or too many parts", extra=limits)
        return kept


def _shallow(events: list[bytes]) -> list[bytes]:
    """Drop events that are nested too deeply to be stored, or have too many parts."""
    return [event for event in events if not is_excessive(event)]


def is_excessive(document: bytes) -> bool:
    """Return whether a document has too many parts to be decoded, or too deep nesting."""
    return is_crowded(document) or is_nested_deeper(document)


def _with_plain_newlines(chunk: bytes) -> bytes:
    """Turn CRLF and CR into LF, except a CR at the end: its LF may still come."""
    if b"\r" not in chunk:
        return chunk
    held = chunk.endswith(b"\r")
    body = chunk[:-1] if held else chunk
    body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return body + b"\r" if held else body


def _data_of(blocks: list[bytes]) -> list[bytes]:
    data: list[bytes] = []
    for block in blocks:
        at = block.find(b"data: ")
        # Nearly every event is one data line, after at most one event line.
        if (at == 0 or (at > 0 and block[at - 1] == 0x0A)) and block.find(b"\n", at) < 0:
            data.append(block[at + 6 :])
        elif block:
            joined = _data_of_lines(block)
            if joined is not None:
                data.append(joined)
    return data


def _data_of_lines(block: bytes) -> bytes | None:
    lines = []
    for line in block.rstrip(b"\r").split(b"\n"):
        name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines) if lines else None


def decode_json(payload: bytes) -> JsonValue:
    """Decode a payload leniently.

    Raises:
        msgspec.DecodeError: it is not JSON.
    """
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return msgspec.json.decode(repair_json(payload))
    except UnicodeDecodeError as error:
        # A document that is too long to be repaired.
        raise msgspec.DecodeError(str(error)) from error


def encode_json(value: JsonValue) -> bytes:
    """Encode a value leniently: lone surrogates are replaced."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return repair_json(json.dumps(value).encode())
