"""The journal: what happened in a thread, in order, written before anybody is told.

A thread has one journal and a journal has one writer. Nothing outside this package may assume
that it is a file.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from msgspec import Struct

from treadle.store.records import AnyRecord


@dataclass(frozen=True, slots=True)
class Event:
    """Something that clients are told: a notification and its place in the thread."""

    seq: int
    at_ms: int
    method: str
    params: Struct


Entry: TypeAlias = Event | AnyRecord


class Journal(Protocol):
    """The append-only log of one thread, held by its one writer."""

    @property
    def thread_id(self) -> str:
        """The thread that this is the log of."""

    @property
    def path(self) -> str | None:
        """The file, for clients that show it; null if there is none."""

    @property
    def last_seq(self) -> int:
        """The number below which no event may be appended: the next one is greater."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries, all or none; they survive the end of this process, however it ends.

        Raises:
            StorageFailed: nothing of them is written.
        """

    def keep(self, entries: Sequence[Entry]) -> StorageFailed | None:
        """Write entries, or keep them in memory and write them before anything that follows.

        Returns the reason why they could not be written.
        """

    def sync(self) -> asyncio.Future[None]:
        """Put everything appended so far on the disk, without blocking the event loop.

        The future fails with `StorageFailed` when that is not possible. Syncs requested while
        another one runs share the next one.
        """

    def read(self, after: int, until: int | None = None) -> Iterator[Event]:
        """Give the events numbered above `after`, up to and including `until`."""

    def unread_bytes(self, after: int) -> int:
        """Say how much `read` looks through at most for events numbered above `after`."""

    def close(self) -> None:
        """Let go of the thread, so that another writer may take it; idempotent."""


class StoreError(Exception):
    """The store cannot do what it was asked."""


class JournalClosed(StoreError, ValueError):
    """The thread is not in memory any more."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"journal of thread {thread_id!r} is closed")


class StorageFailed(StoreError, OSError):
    """The disk does not take what has to be stored."""

    def __init__(self, folder: str, cause: OSError | MemoryError) -> None:
        number = getattr(cause, "errno", None) or errno.ENOMEM
        self.code = errno.errorcode.get(number, str(number))
        reason = os.strerror(number)
        super().__init__(number, f"cannot write in {folder}: {reason} ({self.code})")
        self.folder = folder

    def __str__(self) -> str:
        return str(self.strerror)


class ThreadNotFound(StoreError):
    """No thread of this id, or no file at this path."""

    def __init__(self, thread: str) -> None:
        super().__init__(f"no thread {thread!r}")
        self.thread = thread


class ThreadExists(StoreError):
    """There is a thread of this id already."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"thread {thread_id!r} exists already")
        self.thread_id = thread_id


class ThreadCorrupt(StoreError):
    """The thread's file is there but cannot be understood."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class ThreadTooLarge(StoreError):
    """The thread's file is larger than what can be loaded."""

    def __init__(self, path: str, *, size: int, limit: int) -> None:
        super().__init__(f"{path}: a rollout of {size} bytes exceeds the limit of {limit} bytes")
        self.path = path
        self.size = size
        self.limit = limit


class ThreadLocked(StoreError):
    """Another process is the thread's writer."""

    def __init__(self, thread_id: str, *, pid: int | None, host: str | None) -> None:
        owner = "another process" if pid is None else f"process {pid} on {host}"
        super().__init__(f"thread {thread_id!r} is in use by {owner}")
        self.thread_id = thread_id
        self.pid = pid
        self.host = host


class BadCursor(StoreError, ValueError):
    """A cursor that no page of this list gave."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"invalid cursor: {cursor}")
        self.cursor = cursor
