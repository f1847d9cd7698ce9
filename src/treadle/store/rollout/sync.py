"""Syncs a journal's file to disk, off the event loop, once for all waiting callers."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

from treadle.store.journal import StorageFailed
from treadle.support.files.writing import sync_folder

MAX_THREADS: Final = 8
"""How many files are synced at a time; a slow disk delays the others, not the event loop."""

_CHUNK: Final = 1024 * 1024


@cache
def _threads() -> ThreadPoolExecutor:
    # Separate from the loop's default executor, whose threads may all be busy with slow reads.
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="treadle-sync")


class FileSync:
    """Tracks how much of one file is on disk, and syncs the rest.

    `folders` must be synced too, since they contain the names of a new file and of its folders;
    `on_synced` is called with them afterwards.
    """

    def __init__(
        self,
        synced: int,
        folders: Sequence[Path] = (),
        *,
        on_synced: Callable[[Sequence[Path]], None] = lambda _folders: None,
    ) -> None:
        self._synced = synced
        self._folders = tuple(folders)
        self._on_synced = on_synced
        # After a failed sync the kernel may mark pages clean that never reached the disk.
        self._has_failed = False
        self._wanted: tuple[Path, int] = (Path(), 0)
        self._waiting: list[asyncio.Future[None]] = []
        # The journal's descriptor while a sync uses it, and whether the journal has left it to us.
        self._descriptor: int | None = None
        self._is_left = False

    def has(self, size: int) -> bool:
        """Whether everything up to `size` is on the disk, and no sync runs."""
        return size == self._synced and not self._folders and self._descriptor is None

    def request(self, path: Path, descriptor: int, size: int) -> asyncio.Future[None]:
        """Sync the file up to `size`; the future fails with `StorageFailed`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._wanted = (path, size)
        if self._descriptor is None:
            self._descriptor, self._is_left = descriptor, False
            self._start(descriptor)
        return done

    def close(self, descriptor: int) -> None:
        """Close the journal's descriptor, once no sync uses it."""
        # Not duplicated for each sync: no descriptor may be available.
        if descriptor == self._descriptor:
            self._is_left = True
        else:
            _close(descriptor)

    def _start(self, descriptor: int) -> None:
        path, size = self._wanted
        again = self._synced if self._has_failed else size
        # Through the loop: one with virtual time waits for its executors.
        loop = asyncio.get_running_loop()
        is_wanted = threading.Event()
        is_wanted.set()
        sync = partial(_sync, path, descriptor, again, size, self._folders)
        work: asyncio.Future[None]
        try:
            work = loop.run_in_executor(_threads(), _if_wanted, is_wanted, sync)
        except RuntimeError as error:  # no thread can be started, and the pool keeps the task
            is_wanted.clear()
            work = loop.create_future()
            work.set_exception(OSError(errno.EAGAIN, str(error)))
        # This sync serves the waiting callers, the next one those that come later.
        on_done = partial(self._on_done, self._take(), path, size, descriptor)
        work.add_done_callback(on_done)

    def _take(self) -> list[asyncio.Future[None]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _on_done(
        self,
        waiting: Sequence[asyncio.Future[None]],
        path: Path,
        size: int,
        descriptor: int,
        done: asyncio.Future[None],
    ) -> None:
        failure = done.exception()
        self._has_failed = failure is not None
        if failure is None:
            self._on_synced(self._folders)
            self._synced, self._folders = size, ()
        if self._waiting:
            self._start(descriptor)
        else:
            self._descriptor = None
            if self._is_left:
                _close(descriptor)
        if failure is None:
            self._settle(waiting, None)
        else:
            cause = failure if isinstance(failure, OSError | MemoryError) else OSError(str(failure))
            self._settle(waiting, StorageFailed(str(path.parent), cause))

    @staticmethod
    def _settle(waiting: Sequence[asyncio.Future[None]], error: StorageFailed | None) -> None:
        for future in waiting:
            if future.done():
                continue  # cancelled in the meantime
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


def _close(descriptor: int) -> None:
    """Close a file and ignore errors: it is closed anyway, and was synced before."""
    with suppress(OSError):
        os.close(descriptor)


def _if_wanted(is_wanted: threading.Event, sync: Callable[[], None]) -> None:
    """Sync, unless it was abandoned: the descriptor may belong to another file by now."""
    if is_wanted.is_set():
        sync()


def _sync(path: Path, descriptor: int, again: int, size: int, folders: Sequence[Path]) -> None:
    """Sync a file and folders; first rewrite the bytes from `again` on."""
    if again < size:
        _write_again(path, descriptor, again, size)
    os.fdatasync(descriptor)
    for folder in folders:
        sync_folder(folder)


def _write_again(path: Path, descriptor: int, start: int, end: int) -> None:
    """Rewrite pages that a failed sync has dropped, to make them dirty again."""
    # The journal's own descriptor can only append.
    writer = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while start < end and (data := os.pread(descriptor, min(_CHUNK, end - start), start)):
            start += os.pwrite(writer, data, start)
    finally:
        os.close(writer)
