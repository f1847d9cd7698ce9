"""Buffers the output of commands within limits, and truncates it for the model.

The start and the end of a long output are kept: they usually say what a command does and what
its result is.
"""

from __future__ import annotations

import codecs
from collections import deque
from typing import Final

MAX_KEPT_BYTES: Final = 1024 * 1024
"""The most bytes kept of the output of one command."""

DEFAULT_TOKENS: Final = 10_000
"""The most tokens of an output that the model reads, unless it requests less."""

_BYTES_PER_TOKEN: Final = 4
_LEAD_BYTES: Final = 4
_CHUNK_BYTES: Final = 4096


class OutputBuffer:
    """Keeps the first and the last bytes of an output."""

    def __init__(self, limit: int = MAX_KEPT_BYTES) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        # Small chunks are joined: the overhead of each would exceed its size.
        self._last = bytearray()
        self.total = 0
        # The file with the whole output, if there is one.
        self.where: str | None = None

    def set_file(self, path: str | None) -> None:
        """Set the file with the whole output."""
        self.where = path

    def add(self, data: bytes) -> None:
        """Add output."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail_size += len(data)
        if len(data) < _CHUNK_BYTES:
            self._last += data
            if len(self._last) < _CHUNK_BYTES:
                return
            data = b""
        if self._last:
            self._tail.append(bytes(self._last))
            self._last.clear()
        if data:
            self._tail.append(data)
        while self._tail_size - len(self._tail[0]) >= self._half:
            self._tail_size -= len(self._tail.popleft())

    @property
    def omitted(self) -> int:
        """How many bytes were dropped."""
        return max(0, self.total - 2 * self._half)

    def text(self) -> str:
        """The output as text, with a line in place of dropped bytes."""
        tail = self._end()
        if not self.omitted:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        # Drop a character that the gap splits.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        rest = from_first_character(tail[-self._half :]).decode("utf-8", "replace")
        return f"{head}\n{self.gap}\n{rest}"

    def kept(self) -> bytes:
        """The kept bytes; all of the output unless something is `omitted`."""
        return bytes(self._head) + self._end()

    def _end(self) -> bytes:
        return b"".join([*self._tail, self._last])

    @property
    def gap(self) -> str:
        """The line in place of dropped bytes."""
        place = f"; full output in {self.where}" if self.where else ""
        return f"... {self.omitted} bytes omitted{place} ..."

    def for_model(self, max_tokens: int) -> str:
        """The output for the model: truncated to its budget, with a warning."""
        text = self.text()
        cut = truncate(text, max_tokens)
        if cut == text and not self.omitted:
            return text
        count = f"Warning: truncated output (original token count: {tokens(self.total)})"
        lines = self.gap if self.omitted else f"Total output lines: {len(text.splitlines())}"
        if self.where and not self.omitted:
            lines += f"\nFull output in {self.where}"
        return f"{count}\n{lines}\n\n{cut}"


def tokens(size: int) -> int:
    """An estimate of the tokens in a number of bytes."""
    return -(-size // _BYTES_PER_TOKEN)


def truncate(text: str, max_tokens: int) -> str:
    """Remove the middle of a text that has more than `max_tokens`."""
    data = text.encode("utf-8", "replace")
    budget = max(0, max_tokens) * _BYTES_PER_TOKEN
    if len(data) <= budget:
        return text
    left = budget // 2
    right = budget - left
    head = codecs.getincrementaldecoder("utf-8")("replace").decode(data[:left])
    tail = from_first_character(data[len(data) - right :]).decode("utf-8", "replace")
    return f"{head}…{tokens(len(data) - budget)} tokens truncated…{tail}"


def decode(data: bytes) -> str:
    """Decode bytes of unknown encoding: UTF-8, otherwise Windows-1252."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
    if any(letter > "\x7f" and letter != "\ufffd" for letter in text):
        return text
    return data.decode("cp1252", "replace")


def from_first_character(data: bytes) -> bytes:
    """Drop the rest of a character whose first byte is missing."""
    for place, byte in enumerate(data[:_LEAD_BYTES]):
        if byte & 0b1100_0000 != 0b1000_0000:
            return data[place:]
    return data
