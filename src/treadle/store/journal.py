"""The journal: the ordered events and records of a thread, written before clients receive them.

A thread has one journal and a journal has one writer. Nothing outside this package may assume
that it is a file.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from treadle.store.records import AnyRecord


class Event(Struct, frozen=True):
    """A notification to clients, with its number in the thread."""

    seq: int
    at_ms: int
    method: str
    params: Struct


Entry: TypeAlias = Event | AnyRecord


class Journal(Protocol):
    """The append-only log of one thread, held by its one writer."""

    @property
    def thread_id(self) -> str:
        """The id of the thread."""

    @property
    def path(self) -> str | None:
        """The file, for clients that show it; `None` if there is none."""

    @property
    def last_seq(self) -> int:
        """The highest number in use: the next event must have a greater one."""

    @property
    def size(self) -> int:
        """The bytes stored so far: its growth is the size of what was appended."""

    @property
    def is_full(self) -> bool:
        """Whether only small entries are stored from now on."""

    def append(self, entries: Sequence[Entry], *, may_fill: bool = False) -> None:
        """Write entries, all or none; they survive a crash of this process.

        With `may_fill` they may use the room that is reserved for ending a turn.

        Raises:
            StorageFailed: none of them is written.
        """

    def keep(self, entries: Sequence[Entry]) -> StorageFailed | None:
        """Write entries; if that fails, keep them in memory and write them before later entries.

        Returns the reason if they could not be written.
        """

    def flush(self) -> None:
        """Write what `keep` could not write.

        Raises:
            StorageFailed: it still cannot be written.
        """

    def sync(self) -> asyncio.Future[None]:
        """Sync everything appended so far to disk, without blocking the event loop.

        The future fails with `StorageFailed` if that is not possible. Syncs requested while
        another one runs share the next one.
        """

    def read(self, after: int, until: int | None = None) -> Iterator[Event]:
        """Return the events numbered above `after`, up to and including `until`."""

    def unread_bytes(self, after: int) -> int:
        """Return the maximum number of bytes that `read` scans for events above `after`."""

    def close(self) -> None:
        """Release the thread, so that another writer may take it; idempotent."""


class StoreError(Exception):
    """The store cannot perform an operation."""


class JournalClosed(StoreError, ValueError):
    """The thread is no longer loaded."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"journal of thread {thread_id!r} is closed")


class StorageFailed(StoreError, OSError):
    """Writing to disk failed."""

    def __init__(self, folder: str, cause: OSError | MemoryError) -> None:
        number = getattr(cause, "errno", None) or errno.ENOMEM
        self.code = errno.errorcode.get(number, str(number))
        reason = os.strerror(number)
        super().__init__(number, f"cannot write in {folder}: {reason} ({self.code})")
        self.folder = folder

    def __str__(self) -> str:
        return str(self.strerror)


class ThreadFull(StorageFailed):
    """The thread has as much as may be stored of it."""

    def __init__(self, folder: str, limit: int) -> None:
        super().__init__(folder, OSError(errno.EFBIG, os.strerror(errno.EFBIG)))
        self._limit = limit

    def __str__(self) -> str:
        return f"{self.strerror}: a thread may have {self._limit} bytes; start another one"


class ThreadNotFound(StoreError):
    """No thread has this id, or no file this path."""

    def __init__(self, thread: str) -> None:
        super().__init__(f"no thread {thread!r}")
        self.thread = thread


class ThreadExists(StoreError):
    """A thread with this id exists already."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"thread {thread_id!r} exists already")
        self.thread_id = thread_id


class ThreadCorrupt(StoreError):
    """The thread's file cannot be parsed."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class ThreadTooLarge(StoreError):
    """The thread's file is too large to load."""

    def __init__(self, path: str, *, size: int, limit: int) -> None:
        super().__init__(f"{path}: a rollout of {size} bytes exceeds the limit of {limit} bytes")
        self.path = path
        self.size = size
        self.limit = limit


class ThreadLocked(StoreError):
    """Another process holds the thread's lease."""

    def __init__(self, thread_id: str, *, pid: int | None, host: str | None) -> None:
        owner = "another process" if pid is None else f"process {pid} on {host}"
        super().__init__(f"thread {thread_id!r} is in use by {owner}")
        self.thread_id = thread_id
        self.pid = pid
        self.host = host


class BadCursor(StoreError, ValueError):
    """The cursor does not belong to this list."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"invalid cursor: {cursor}")
        self.cursor = cursor
