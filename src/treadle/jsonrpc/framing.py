"""Splits a byte stream into messages, one per line, independent of the chunks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from treadle.support.text import json_members

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
HEAD_BYTES: Final = json_members.HEAD_BYTES
_BLANK: Final = (b"", b"\r")


class Oversized(Struct, frozen=True):
    """A message beyond the limit: its size, and its first bytes so that it can be answered.

    `limit` is set if it differs from the usual limit.
    """

    size: int
    head: bytes
    limit: int | None = None


Frame: TypeAlias = bytes | Oversized


def frame_size(frame: Frame) -> int:
    """Return how much memory a frame takes."""
    return len(frame) if isinstance(frame, bytes) else len(frame.head)


class LineSplitter:
    """Turns chunks into lines; a line beyond the limit is skipped as it streams in."""

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Frame]:
        """Add the next bytes and return the lines they complete, without line ends."""
        *complete, rest = chunk.split(b"\n")
        frames: list[Frame] = []
        if self._size and complete:
            self._keep(complete.pop(0))
            frames.append(self._take())
        frames += complete if len(chunk) <= self._limit else map(self._check, complete)
        if rest:
            self._keep(rest)
        return [frame for frame in frames if frame and frame != b"\r"]

    def finish(self) -> list[Frame]:
        """Return the last line, which needs no line end."""
        return [frame for frame in (self._take(),) if frame not in _BLANK]

    def _check(self, line: bytes) -> Frame:
        return Oversized(len(line), line[:HEAD_BYTES]) if len(line) > self._limit else line

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            # Only the head is needed from here on; the rest is counted, not stored.
            self._parts = [_head([*self._parts, part])]
        else:
            self._parts.append(part)

    def _take(self) -> Frame:
        parts, size = self._parts, self._size
        self._parts, self._size = [], 0
        if size > self._limit:
            return Oversized(size, parts[0])
        return b"".join(parts)


def _head(parts: Iterable[bytes]) -> bytes:
    """Return the first bytes of the parts, without joining all of them."""
    head = b""
    for part in parts:
        head += part[: HEAD_BYTES - len(head)]
        if len(head) == HEAD_BYTES:
            break
    return head
