"""Reads rollout files as bytes: regular files only, in slices, a line at a time.

The path of a rollout may hold anything, of any size, and another program may write it at the
same time. Reads run in worker threads beside an event loop that needs the interpreter too, so no
call works on more than a slice at once, except on a single longer line.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from treadle.store.journal import ThreadCorrupt, ThreadNotFound
from treadle.support.concurrency.threads import give_way
from treadle.support.files.descriptors import is_shortage

logger = logging.getLogger(__name__)

SLICE_BYTES: Final = 64 * 1024
# Searching for a word is faster than decoding lines.
SEARCH_BYTES: Final = 256 * 1024
MAX_LINE_BYTES: Final = 160 * 1024 * 1024
"""The longest line that is read: more than twice the largest client message."""

MAX_ROLLOUT_BYTES: Final = 1024 * 1024 * 1024
"""The largest file that is loaded: most of its contents stay in memory."""


class RolloutFile:
    """A file opened for reading."""

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        """Open a file, or take over its descriptor.

        Raises:
            ThreadNotFound: it is gone.
            ThreadCorrupt: it is not a regular file, or is not readable.
            OSError: no descriptor is available.
        """
        self.path = path
        if descriptor is not None:
            self._descriptor = descriptor
            return
        # Without O_NONBLOCK, opening a named pipe would wait for its other end.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            self._descriptor = os.open(path, flags)
        except FileNotFoundError:
            raise ThreadNotFound(str(path)) from None
        except OSError as error:
            if is_shortage(error):
                raise
            raise ThreadCorrupt(str(path), error.strerror or str(error)) from error
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self.close()
            raise ThreadCorrupt(str(path), "not a regular file")

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
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def stat(self) -> os.stat_result:
        """Return the state of the file."""
        return os.fstat(self._descriptor)

    @property
    def size(self) -> int:
        """The current size of the file in bytes."""
        return self.stat().st_size

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes between two offsets, as far as they exist."""
        parts = []
        while start < end and (part := os.pread(self._descriptor, end - start, start)):
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def lines(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the lines between two offsets, each with the offset after its line feed.

        If the last line has no line feed, its offset is that of its start. Lines that are too long
        are skipped with a warning.
        """
        line = _Line(self.path)
        offset = behind = start
        while chunk := self.read(offset, min(end, offset + SLICE_BYTES)):
            *whole, rest = chunk.split(b"\n")
            for piece in whole:
                offset = behind = offset + len(piece) + 1
                ended = line.end(piece)
                if ended is not None:
                    yield behind, ended
            line.add(rest)
            offset += len(rest)
            give_way()
        ended = line.end(b"")
        if ended:
            yield behind, ended

    def line_around(self, offset: int) -> tuple[int, bytes | None]:
        """Return the start and the content of the line at an offset; `None` if it is too long."""
        size = self.size
        least, most = max(0, offset - MAX_LINE_BYTES), min(size, offset + MAX_LINE_BYTES)
        found, end = self.rfind(b"\n", least, offset), self.find(b"\n", offset, most)
        start = found + 1 if found >= 0 else least
        end = most if end < 0 else end
        is_whole = (found >= 0 or least == 0) and end - start <= MAX_LINE_BYTES
        return start, self.read(start, end) if is_whole else None

    def find(self, word: bytes, start: int, end: int) -> int:
        """Return the first offset of a word between two offsets, or -1."""
        overlap = len(word) - 1
        while start < end:
            chunk = self.read(start, min(end, start + SEARCH_BYTES + overlap))
            at = chunk.find(word)
            if at >= 0:
                return start + at
            if len(chunk) <= overlap:
                return -1
            start += len(chunk) - overlap
            give_way()
        return -1

    def rfind(self, word: bytes, start: int, end: int) -> int:
        """Return the last offset of a word between two offsets, or -1."""
        overlap = len(word) - 1
        while start < end:
            at = max(start, end - SEARCH_BYTES - overlap)
            found = self.read(at, end).rfind(word)
            if found >= 0:
                return at + found
            if at == start:
                return -1
            end = at + overlap
            give_way()
        return -1


class _Line:
    """The parts of a line that is longer than a slice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        """Add a part, unless the line is already too long."""
        self._size += len(part)
        if self._size > MAX_LINE_BYTES:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def end(self, part: bytes) -> bytes | None:
        """Return the line that ends with a part; `None` if it is too long."""
        if not self._size:
            return part
        self.add(part)
        size, line = self._size, b"".join(self._parts)
        self._parts, self._size = [], 0
        if size <= MAX_LINE_BYTES:
            return line
        about = {"path": str(self._path), "size": size, "limit": MAX_LINE_BYTES}
        logger.warning("rollout line skipped: too long", extra=about)
        return None
