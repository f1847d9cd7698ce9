"""Forwards the body of one request, and not a byte more."""

from __future__ import annotations

import asyncio
import re
from typing import Final

_CHUNK: Final = 64 * 1024
# Without its extension, which is for the next hop only.
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]{0,200})?\r\n")
_MAX_TRAILERS: Final = 200
# Chunks may hold one byte each, and all that has arrived is read without a break.
_PER_TURN: Final = 32


class InvalidBody(OSError):
    """A chunk has an invalid size or end."""


async def forward_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int | None
) -> None:
    """Forward a body of some length; `None`: it is chunked.

    Raises:
        InvalidBody: the framing of the chunks is invalid.
        EOFError: it ends too early.
        OSError: one of the connections fails.
    """
    if length is None:
        await _forward_chunks(reader, writer)
    else:
        await _forward(reader, writer, length)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int) -> None:
    while length:
        piece = await reader.read(min(length, _CHUNK))
        if not piece:
            raise EOFError("the body is shorter than its length")
        length -= len(piece)
        writer.write(piece)
        await writer.drain()


async def _forward_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    count = 0
    while size := await _read_size(reader):
        writer.write(b"%x\r\n" % size)
        await _forward(reader, writer, size)
        if await reader.readexactly(2) != b"\r\n":
            raise InvalidBody("a chunk is longer than its size")
        writer.write(b"\r\n")
        count += 1
        if count % _PER_TURN == 0:
            await asyncio.sleep(0)
    for _ in range(_MAX_TRAILERS):
        if await _read_line(reader) == b"\r\n":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return
    raise InvalidBody("too many trailers")


async def _read_size(reader: asyncio.StreamReader) -> int:
    match = _SIZE.fullmatch(await _read_line(reader))
    if match is None:
        raise InvalidBody("invalid size of a chunk")
    return int(match[1], 16)


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError as error:
        raise InvalidBody("a line is too long") from error
