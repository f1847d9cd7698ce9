"""Titles of threads, in the file that the reference keeps them in: the last line of an id wins."""

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

FILE_NAME: Final = "session_index.jsonl"


class NameLine(Struct, frozen=True):
    """One title; an empty one takes the title away."""

    id: str
    thread_name: str | None = None
    updated_at: str = ""


_lines: Final = msgspec.json.Decoder(NameLine)


def append_name(home: Path, thread_id: str, name: str | None, now_ms: int) -> None:
    """Add a title to the file."""
    line = msgspec.json.encode(NameLine(thread_id, name or "", format_time(now_ms))) + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(home / FILE_NAME, flags, 0o600)
    try:
        _write_line(descriptor, line)
    except OSError as error:
        raise StorageFailed(str(home), error) from error
    finally:
        os.close(descriptor)


def _write_line(descriptor: int, line: bytes) -> None:
    if os.write(descriptor, line) < len(line):
        # The disk is full. Without an end, the line would spoil the next one too.
        os.write(descriptor, b"\n")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_names(home: Path, offset: int) -> tuple[int, dict[str, str | None]]:
    """Give the titles added behind an offset, and the offset behind them.

    A file that has become shorter is read from its beginning.
    """
    try:
        with (home / FILE_NAME).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = offset if offset <= size else 0
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return 0, {}
    whole = data[: data.rfind(b"\n") + 1]
    names = {line.id: line.thread_name or None for line in _decode(whole)}
    return start + len(whole), names


def _decode(data: bytes) -> Iterator[NameLine]:
    for piece in data.splitlines():
        try:
            yield _lines.decode(piece)
        except msgspec.DecodeError:
            continue
