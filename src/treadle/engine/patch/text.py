"""Decodes and splits large texts in chunks, so that no call holds the GIL for long.

Decoding or splitting 16 MiB in one call takes tens of milliseconds in which no other thread runs.
Between chunks, the thread of the event loop can run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BLOCK: Final = 256 * 1024
_LINES: Final = 8192


class BadText(ValueError):
    """The bytes are not UTF-8; the message says where."""


def decode(data: bytes) -> str:
    """The text of a file.

    Raises:
        BadText: it is not UTF-8.
    """
    pieces: list[str] = []
    start = 0
    while start < len(data):
        end = (data.find(b"\n", start + _BLOCK) + 1) or len(data)
        try:
            pieces.append(data[start:end].decode())
        except UnicodeDecodeError as error:
            raise BadText(_explained(error, start)) from error
        start = end
    return "".join(pieces)


def _explained(error: UnicodeDecodeError, offset: int) -> str:
    at = offset + error.start
    if error.reason == "unexpected end of data":
        return f"incomplete utf-8 byte sequence from index {at}"
    return f"invalid utf-8 sequence of {error.end - error.start} bytes from index {at}"


def split(text: str) -> list[str]:
    """The parts of a text between its line feeds."""
    lines: list[str] = []
    start = 0
    while (end := text.find("\n", start + _BLOCK)) >= 0:
        lines += text[start:end].split("\n")
        start = end + 1
    lines += text[start:].split("\n")
    return lines


def encode_lines(lines: Sequence[str]) -> bytes:
    """The bytes of lines, each followed by a line feed."""
    return b"".join(
        "\n".join([*lines[at : at + _LINES], ""]).encode("utf-8", "replace")
        for at in range(0, len(lines), _LINES)
    )
