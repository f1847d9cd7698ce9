"""Names of threads, in the reference's own file: the last line of an id wins."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from treadle.store.journal import StorageFailed
from treadle.store.rollout.format import format_time
from treadle.support.files.reading import open_regular, read_up_to

FILE_NAME: Final = "session_index.jsonl"
PIECE_BYTES: Final = 64 * 1024 * 1024
"""How much of the file is read at a time."""


class NameLine(Struct, frozen=True):
    """One name; an empty one removes it."""

    id: str
    thread_name: str | None = None
    updated_at: str = ""


_lines: Final = msgspec.json.Decoder(NameLine)


def append_name(home: Path, thread_id: str, name: str | None, now_ms: int) -> None:
    """Append a name to the file."""
    line = msgspec.json.encode(NameLine(thread_id, name or "", format_time(now_ms))) + b"\n"
    # O_NONBLOCK: opening a pipe would wait for its other end.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(home / FILE_NAME, flags, 0o600)
        try:
            _write_line(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageFailed(str(home), error) from error


def _write_line(descriptor: int, line: bytes) -> None:
    if os.write(descriptor, line) < len(line):
        # The disk is full. An unfinished line would also spoil the next one.
        os.write(descriptor, b"\n")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_names(home: Path, offset: int) -> tuple[int, dict[str, str | None]]:
    """Return the names after an offset, and the new offset.

    A file that became shorter is read from its start, a long one in pieces.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    try:
        descriptor = open_regular(home / FILE_NAME)
    except FileNotFoundError:
        return 0, {}
    try:
        start = offset if offset <= os.fstat(descriptor).st_size else 0
        os.lseek(descriptor, start, os.SEEK_SET)
        data = read_up_to(descriptor, PIECE_BYTES)
    finally:
        os.close(descriptor)
    # A line as long as a piece was not written by us.
    whole = data[: data.rfind(b"\n") + 1] or (data if len(data) == PIECE_BYTES else b"")
    names = {line.id: line.thread_name or None for line in _decode(whole)}
    return start + len(whole), names


def _decode(data: bytes) -> Iterator[NameLine]:
    for piece in data.splitlines():
        try:
            yield _lines.decode(piece)
        except msgspec.DecodeError:
            continue
