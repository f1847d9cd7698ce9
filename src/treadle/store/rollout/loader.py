"""Loading: a thread from its files; a fork or a revert of 0.163.0 begins in another file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from treadle.store.journal import StoreError, ThreadTooLarge
from treadle.store.rollout.format import (
    HistoryBase,
    RolloutLine,
    SessionMeta,
    decode_line,
    session_meta,
    to_meta,
)
from treadle.store.rollout.reading import MAX_LINE_BYTES, RolloutFile
from treadle.store.rollout.replay import Replay
from treadle.store.stored_thread import StoredThread

logger = logging.getLogger(__name__)

MAX_BASES: Final = 64
MAX_ROLLOUT_BYTES: Final = 1024 * 1024 * 1024
"""The largest file that a thread is loaded from: most of what it holds stays in memory."""

FilesNamed = Callable[[str], Sequence[Path]]
Pending = tuple[int, bytes]
"""Lines that the disk has refused, and where in the file they begin."""


@dataclass(frozen=True, slots=True)
class LoadedRollout:
    """A thread, and what its next writer must know besides."""

    stored: StoredThread
    last_ordinal: int


class ThreadFile:
    """The file of a thread, for as long as somebody reads it: `load` reads on from the last time.

    The thread may grow meanwhile. Whoever must know that it has not compares `is_current`.
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
        # Gives lines of the thread that follow those of the file, and those that it gave last.
        self._pending = pending
        self._taken: Pending | None = None
        self._file = RolloutFile(path)
        self._replay: Replay | None = None
        # Up to where it was read, and how long it was then: a last line may not be whole yet.
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
        """Give the thread as the file tells it now, and the lines that follow.

        Raises:
            ThreadCorrupt: it does not begin as a rollout does.
            ThreadTooLarge: it is larger than what is kept in memory.
        """
        if self._taken is not None:
            # Lines that the disk had refused may stand in the file by now.
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
        assert first is not None  # noqa: S101  session_meta has refused it otherwise
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
                    # It lacks nothing but its line feed.
                    self._offset += len(piece)
                yield line
            elif is_whole and piece.strip():
                # A last one that is not whole may be one that is being written right now.
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
            logger.warning("beginning of a thread is missing", extra={"thread_id": base.thread_id})
            break
        found.append((earlier, base.end_byte_offset))
        path = earlier.path
        try:
            session = session_meta(_first_line(earlier), path)
        except StoreError as error:
            logger.warning("beginning of a thread is damaged", extra={"reason": str(error)})
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
    """Tell whether the line before the offset has the number that it must have."""
    end = base.end_byte_offset - 1
    if end < 0 or file.read(end, end + 1) != b"\n":
        return False
    start = file.rfind(b"\n", max(0, end - MAX_LINE_BYTES), end) + 1
    line = decode_line(file.read(start, end))
    return line is not None and line.ordinal == base.end_ordinal_exclusive - 1
