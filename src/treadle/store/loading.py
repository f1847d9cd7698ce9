"""Loading: a thread from its files; a fork or a revert of 0.163.0 begins in another file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treadle.store.journal import ThreadCorrupt, ThreadNotFound
from treadle.store.replay import Replay
from treadle.store.rollout import (
    HistoryBase,
    Line,
    SessionMeta,
    decode_line,
    decode_lines,
    session_meta,
    to_meta,
)
from treadle.store.thread import StoredThread

logger = logging.getLogger(__name__)

MAX_BASES: Final = 64

FilesNamed = Callable[[str], Sequence[Path]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A thread, and what its next writer must know besides."""

    stored: StoredThread
    last_ordinal: int


def load(
    path: Path,
    *,
    files_named: FilesNamed,
    last_turn_id: str | None = None,
    before_turn_id: str | None = None,
) -> Loaded:
    """Read a thread, as a whole or up to a turn.

    Raises:
        ThreadNotFound: the file is gone.
        ThreadCorrupt: it does not begin as a rollout does.
    """
    session, first, lines = _read(path)
    replay = Replay(
        to_meta(session, first, path), last_turn_id=last_turn_id, before_turn_id=before_turn_id
    )
    for earlier in _bases(session, path, files_named):
        replay.feed(earlier)
    if first.ordinal is not None:
        replay.last_ordinal = first.ordinal
    replay.feed(lines)
    return Loaded(replay.result(), replay.last_ordinal)


def _read(path: Path, size: int | None = None) -> tuple[SessionMeta, Line, list[Line]]:
    try:
        with path.open("rb") as file:
            data = file.read(-1 if size is None else size)
    except FileNotFoundError:
        raise ThreadNotFound(str(path)) from None
    lines = decode_lines(data, path)
    first = lines[0] if lines else None
    session = session_meta(first, path)
    return session, lines[0], lines[1:]


def _bases(session: SessionMeta, path: Path, files_named: FilesNamed) -> list[list[Line]]:
    """Give the lines of earlier files that a thread's history begins with, oldest first."""
    found: list[list[Line]] = []
    while session.history_base is not None and len(found) < MAX_BASES:
        base = session.history_base
        earlier = next(_candidates(base, path, files_named), None)
        if earlier is None:
            logger.warning("beginning of a thread is missing", extra={"thread_id": base.thread_id})
            break
        path = earlier
        try:
            session, _, lines = _read(path, base.end_byte_offset)
        except ThreadCorrupt as error:
            logger.warning("beginning of a thread is damaged", extra={"reason": error.reason})
            break
        found.append(lines)
    return found[::-1]


def _candidates(base: HistoryBase, path: Path, files_named: FilesNamed) -> Iterator[Path]:
    for file in files_named(base.thread_id):
        if file != path and _ends_there(file, base):
            yield file


def _ends_there(path: Path, base: HistoryBase) -> bool:
    """Tell whether the line before the offset has the number that it must have."""
    try:
        with path.open("rb") as file:
            data = file.read(base.end_byte_offset)
    except OSError:
        return False
    if len(data) < base.end_byte_offset or not data.endswith(b"\n"):
        return False
    line = decode_line(data[data.rfind(b"\n", 0, -1) + 1 : -1])
    return line is not None and line.ordinal == base.end_ordinal_exclusive - 1
