"""Loads a thread from its files; a fork or a revert of 0.163.0 begins in another file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from msgspec import Struct

from treadle.store.journal import StoreError, ThreadTooLarge
from treadle.store.rollout.format import (
    HistoryBase,
    RolloutLine,
    SessionMeta,
    decode_line,
    session_meta,
    to_meta,
)
from treadle.store.rollout.reading import MAX_LINE_BYTES, MAX_ROLLOUT_BYTES, RolloutFile
from treadle.store.rollout.replay import Replay
from treadle.store.stored_thread import StoredThread

logger = logging.getLogger(__name__)

MAX_BASES: Final = 64

FilesNamed = Callable[[str], Sequence[Path]]
Pending = tuple[int, bytes]
"""Lines that could not be written, and their offset in the file."""


class LoadedRollout(Struct, frozen=True):
    """A thread, with what its next writer needs."""

    stored: StoredThread
    last_ordinal: int


class ThreadFile:
    """The open file of a thread; each `load` continues where the last one ended.

    The thread may grow at the same time: `is_current` shows whether it has.
    """

    def __init__(
        self,
        path: Path,
        *,
        files_named: FilesNamed,
        last_turn_id: str | None = None,
        before_turn_id: str | None = None,
        pending: Callable[[], Pending | None] = lambda: None,
    ) -> None:
        self.path = path
        self._files_named = files_named
        self._cut = (last_turn_id, before_turn_id)
        # Returns the pending lines of the thread; and those that it returned last.
        self._pending = pending
        self._taken: Pending | None = None
        self._file = RolloutFile(path)
        self._replay: Replay | None = None
        # The offset read so far, and the size then: the last line may be incomplete.
        self._offset = 0
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()

    @property
    def is_current(self) -> bool:
        """Whether nothing was appended since the last `load`."""
        return self._file.size == self._size and self._pending() == self._taken

    def load(self) -> LoadedRollout:
        """Return the thread from the file and the pending lines.

        Raises:
            ThreadCorrupt: it does not begin like a rollout.
            ThreadTooLarge: it exceeds the size limit.
        """
        if self._taken is not None:
            # Earlier pending lines may be in the file by now.
            self._replay, self._offset = None, 0
        pending = self._taken = self._pending()
        size = self._file.size if pending is None else pending[0]
        if size > MAX_ROLLOUT_BYTES:
            raise ThreadTooLarge(str(self.path), size=size, limit=MAX_ROLLOUT_BYTES)
        lines = self._lines(size)
        replay = self._replay
        if replay is None:
            replay = self._replay = self._begin(next(lines, None))
        replay.feed(lines)
        if pending is not None:
            replay.feed(filter(None, map(decode_line, pending[1].splitlines())))
        self._size = size
        return LoadedRollout(replay.result(), replay.last_ordinal)

    def _begin(self, first: RolloutLine | None) -> Replay:
        session = session_meta(first, self.path)
        assert first is not None  # noqa: S101  session_meta rejects None
        meta = to_meta(session, first, self.path)
        replay = Replay(meta, last_turn_id=self._cut[0], before_turn_id=self._cut[1])
        bases = _bases(session, self.path, self._files_named)
        try:
            for file, end in bases:
                replay.feed(_base_lines(file, end))
        finally:
            for file, _ in bases:
                file.close()
        if first.ordinal is not None:
            replay.last_ordinal = first.ordinal
        return replay

    def _lines(self, size: int) -> Iterator[RolloutLine]:
        for end, piece in self._file.lines(self._offset, size):
            is_whole = end > self._offset
            self._offset = end
            line = decode_line(piece) if piece.strip() else None
            if line is not None:
                if not is_whole:
                    # Only its line feed is missing.
                    self._offset += len(piece)
                yield line
            elif is_whole and piece.strip():
                # An incomplete last line may be one that is being written right now.
                extra = {"path": str(self.path), "end": end}
                logger.warning("rollout line skipped", extra=extra)


def _bases(
    session: SessionMeta, path: Path, files_named: FilesNamed
) -> list[tuple[RolloutFile, int]]:
    """Open the earlier files that a thread's history begins with, oldest first."""
    found: list[tuple[RolloutFile, int]] = []
    while session.history_base is not None and len(found) < MAX_BASES:
        base = session.history_base
        earlier = next(_candidates(base, path, files_named), None)
        if earlier is None:
            logger.warning("start of thread is missing", extra={"thread_id": base.thread_id})
            break
        found.append((earlier, base.end_byte_offset))
        path = earlier.path
        try:
            session = session_meta(_first_line(earlier), path)
        except StoreError as error:
            logger.warning("start of thread is damaged", extra={"reason": str(error)})
            found.pop()[0].close()
            break
    return found[::-1]


def _first_line(file: RolloutFile) -> RolloutLine | None:
    for _, piece in file.lines(0, file.size):
        line = decode_line(piece)
        if line is not None:
            return line
    return None


def _base_lines(file: RolloutFile, end: int) -> Iterator[RolloutLine]:
    pieces = file.lines(0, min(end, MAX_ROLLOUT_BYTES))
    lines = (decode_line(piece) for _, piece in pieces)
    known = (line for line in lines if line is not None)
    next(known, None)
    yield from known


def _candidates(base: HistoryBase, path: Path, files_named: FilesNamed) -> Iterator[RolloutFile]:
    for place in files_named(base.thread_id):
        if place == path:
            continue
        try:
            file = RolloutFile(place)
        except StoreError:
            continue
        if _ends_there(file, base):
            yield file
        else:
            file.close()


def _ends_there(file: RolloutFile, base: HistoryBase) -> bool:
    """Return whether the line before the offset has the expected number."""
    end = base.end_byte_offset - 1
    if end < 0 or file.read(end, end + 1) != b"\n":
        return False
    start = file.rfind(b"\n", max(0, end - MAX_LINE_BYTES), end) + 1
    line = decode_line(file.read(start, end))
    return line is not None and line.ordinal == base.end_ordinal_exclusive - 1
