"""A journal in a rollout file."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from treadle.protocol.notifications import SERVER_NOTIFICATIONS, TURN_COMPLETED, TURN_STARTED
from treadle.store.journal import Entry, Event, JournalClosed, StorageFailed, ThreadFull
from treadle.store.lease import Lease
from treadle.store.rollout.format import OwnEvent, decode_line
from treadle.store.rollout.lines import LineWriter
from treadle.store.rollout.reading import MAX_ROLLOUT_BYTES, RolloutFile
from treadle.store.rollout.sync import FileSync

logger = logging.getLogger(__name__)

SESSIONS: Final = "sessions"
ARCHIVED: Final = "archived_sessions"

MAX_GROWN_BYTES: Final = MAX_ROLLOUT_BYTES // 8 * 7
"""The size up to which a thread grows: its next writer needs room to end its last turn."""
MAX_SMALL_BYTES: Final = 16 * 1024
"""What a thread still stores at once after that: it can be resumed, named and archived."""

MAX_QUEUED_BYTES: Final = 16 * 1024 * 1024
"""What a full thread keeps in memory of what it cannot store, until it is unloaded."""

_CHECKPOINT_BYTES: Final = 64 * 1024
_TURN_BOUNDARIES: Final = (TURN_STARTED.method, TURN_COMPLETED.method)
_EVENT_MARK: Final = b'"treadle":{"record":"event"'

Watcher = Callable[["FileJournal", Sequence[Entry]], None]


def rollout_path(home: Path, thread_id: str, created_ms: int) -> Path:
    """Return the path of a new thread's file: by the day and second of its start, in local time."""
    moment = time.localtime(created_ms / 1000)
    name = f"rollout-{time.strftime('%Y-%m-%dT%H-%M-%S', moment)}-{thread_id}.jsonl"
    return home / SESSIONS / time.strftime("%Y/%m/%d", moment) / name


def unarchived_path(home: Path, path: Path) -> Path:
    """Return the path that an archived file goes back to: by the day in its name, if any."""
    day = path.name.removeprefix("rollout-")[:10].replace("-", "/")
    is_day = len(day) == 10 and day.replace("/", "").isdecimal()
    return home / SESSIONS / (day if is_day else "1970/01/01") / path.name


def create_file(path: Path, first: bytes) -> int:
    """Create a file with its first line, atomically, readable only by its owner."""
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
    # Under a temporary name at first, so that no other program sees an empty rollout.
    unfinished = path.with_name(f".{path.name}")
    try:
        descriptor = os.open(unfinished, flags, 0o600)
    except FileNotFoundError:
        make_private(path.parent)
        descriptor = os.open(unfinished, flags, 0o600)
    try:
        write_all(descriptor, first)
        unfinished.rename(path)
    except BaseException:
        os.close(descriptor)
        unfinished.unlink(missing_ok=True)
        raise
    return descriptor


def make_private(folder: Path) -> None:
    """Create a folder and its parents, accessible only to their owner."""
    missing = [place for place in (folder, *folder.parents) if not place.is_dir()]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def close_to_others(home: Path) -> None:
    """Restrict access to rollout folders that other programs or older versions left open."""
    for folder in (home / SESSIONS, home / ARCHIVED):
        with suppress(OSError):
            state = folder.lstat()
            is_open = stat.S_ISDIR(state.st_mode) and state.st_mode & 0o077
            if is_open and state.st_uid == os.geteuid():
                folder.chmod(0o700)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data, in as many system calls as needed."""
    while data:
        data = data[os.write(descriptor, data) :]


def open_file(path: Path) -> int:
    """Open an existing file for appending."""
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)


class FileJournal:
    """Appends to one rollout file, for as long as it holds the thread's lease.

    The file is open while a turn runs. An idle thread keeps only the descriptor of its lease, so
    that thousands of threads can be loaded at once; the next entry opens the file again.
    """

    def __init__(
        self,
        thread_id: str,
        path: Path,
        descriptor: int,
        *,
        lease: Lease,
        writer: LineWriter,
        last_seq: int,
        watcher: Watcher,
        sync: FileSync,
    ) -> None:
        self.thread_id = thread_id
        self.path: str | None = str(path)
        self.last_seq = last_seq
        self._descriptor: int | None = descriptor
        self._is_closed = False
        self._is_deleted = False
        self._has_open_turn = False
        self._awaits_sync = False
        self._lease = lease
        self._writer = writer
        self._watcher = watcher
        self._stat = os.fstat(descriptor)
        self._size = self._stat.st_size
        # Lines that could not be written: the file continues with them.
        self._pending = bytearray()
        self._has_dropped = False  # lines are missing from these, which are not written any more
        # Where to truncate the file before the next write, after a failed write.
        self._torn_at: int | None = None
        self._sync = sync
        # Offsets at which to start reading for events after a number.
        self._checkpoints: list[tuple[int, int]] = [(0, 0), (last_seq, self._size)]
        self._rest()

    def moved(self, path: str) -> None:
        """Record the new path of the file."""
        self.path = path

    @property
    def pending(self) -> tuple[int, bytes] | None:
        """The lines that could not be written, and their offset in the file."""
        return (self._size, bytes(self._pending)) if self._pending else None

    @property
    def size(self) -> int:
        """The bytes of the file, and of the lines that it is still to get."""
        return self._size + len(self._pending)

    @property
    def is_full(self) -> bool:
        """Whether only small entries are stored from now on."""
        return self.size + MAX_SMALL_BYTES > MAX_GROWN_BYTES

    def append(self, entries: Sequence[Entry], *, may_fill: bool = False) -> None:
        """Write entries with one system call, all or none, after any pending ones.

        Raises:
            StorageFailed: the file cannot be written, is gone, was replaced, or is full.
        """
        self._append(entries, keeps=False, may_fill=may_fill)

    def keep(self, entries: Sequence[Entry]) -> StorageFailed | None:
        """Write entries, or queue them for the next successful write."""
        return self._append(entries, keeps=True)

    def _append(
        self, entries: Sequence[Entry], *, keeps: bool, may_fill: bool = False
    ) -> StorageFailed | None:
        if self._is_deleted or not entries:
            self._check_open()
            return None
        mark = self._writer.mark()
        failure: StorageFailed | None = None
        try:
            data = self._writer.lines(entries)
            try:
                self._flush(data, may_fill=may_fill)
            except StorageFailed as error:
                if not keeps:
                    raise
                failure = error
                self._queue(data, error)
        except BaseException:
            self._writer.restore(mark)
            raise
        self._follow(entries)
        self._rest_unless_busy()
        return failure

    def _queue(self, data: bytes, error: StorageFailed) -> None:
        """Queue lines; those of a full thread only up to a limit, because they stay in memory."""
        is_too_much = len(self._pending) + len(data) > MAX_QUEUED_BYTES
        self._has_dropped |= is_too_much and isinstance(error, ThreadFull)
        if not self._has_dropped:
            self._pending += data

    def flush(self) -> None:
        """Write the lines that could not be written before.

        Raises:
            StorageFailed: they still cannot be written.
        """
        if not self._is_deleted:
            self._flush(b"")

    def sync(self) -> asyncio.Future[None]:
        """Sync the file to disk; a new one with its name and its folders."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            if not self._is_deleted:
                self._flush(b"")
            if self._is_deleted or self._sync.has(self._size):
                done.set_result(None)
                return done
            descriptor = self._open_descriptor()
        except (StorageFailed, OSError, MemoryError) as error:
            done.set_exception(self._failed(error))
            return done
        done = self._sync.request(Path(self.path or ""), descriptor, self._size)
        self._awaits_sync = False
        self._rest_unless_busy()
        return done

    def _flush(self, data: bytes, *, may_fill: bool = False) -> None:
        """Write the pending lines, then the data."""
        self._check_open()
        if not (data or self._pending):
            return
        may_fill = may_fill or (not self._pending and len(data) <= MAX_SMALL_BYTES)
        limit = MAX_ROLLOUT_BYTES if may_fill else MAX_GROWN_BYTES
        if self._has_dropped or self.size + len(data) > limit:
            # A larger file could not be loaded again.
            raise ThreadFull(str(Path(self.path or "").parent), limit)
        data = bytes(self._pending) + data
        try:
            self._write(self._open_descriptor(), data)
        except (OSError, MemoryError) as error:
            self._rest_unless_busy()
            # Turns keep their failures: none of them may keep a copy of all pending lines.
            data = b""
            raise self._failed(error) from error.with_traceback(None)
        self._pending = bytearray()
        self._size += len(data)

    def _failed(self, error: OSError | MemoryError) -> StorageFailed:
        if isinstance(error, StorageFailed):
            return error
        return StorageFailed(str(Path(self.path or "").parent), error)

    def _write(self, descriptor: int, data: bytes) -> None:
        if self._torn_at is not None:
            os.ftruncate(descriptor, self._torn_at)
            self._torn_at = None
        written = 0
        try:
            while written < len(data):
                written += os.write(descriptor, data[written:] if written else data)
        except (OSError, MemoryError):
            if written:
                # The disk is full: an unfinished line would spoil the next one.
                self._torn_at = self._size
                self._torn_at = os.fstat(descriptor).st_size - written
                os.ftruncate(descriptor, self._torn_at)
                self._torn_at = None
            raise

    def _follow(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, Event):
                self.last_seq = entry.seq
                if entry.method in _TURN_BOUNDARIES:
                    self._has_open_turn = entry.method == TURN_STARTED.method
                    self._awaits_sync = not self._has_open_turn
        if self._size - self._checkpoints[-1][1] > _CHECKPOINT_BYTES and not self._pending:
            self._checkpoints.append((self.last_seq, self._size))
        try:
            self._watcher(self, entries)
        except Exception:
            # User callback: the index is derived from the journal, which has the entries.
            logger.exception("index not updated", extra={"thread_id": self.thread_id})

    def read(self, after: int, until: int | None = None) -> Iterator[Event]:
        """Yield the events in the range, from the file."""
        last = self.last_seq if until is None else min(until, self.last_seq)
        if after >= last or self._is_deleted:
            return
        for line in self._lines(after):
            if _EVENT_MARK not in line:
                continue
            event = _read_event(line)
            if event is None or event.seq <= after:
                continue
            if event.seq > last:
                return
            yield event

    def unread_bytes(self, after: int) -> int:
        """Return the maximum number of bytes that `read` scans for events above `after`."""
        return self._size - self._offset_of(after)

    def _offset_of(self, after: int) -> int:
        place = bisect_right(self._checkpoints, after, key=lambda point: point[0]) - 1
        return self._checkpoints[place][1]

    def _lines(self, after: int) -> Iterator[bytes]:
        offset = self._offset_of(after)
        # A separate descriptor: a concurrent append may close the other one.
        with RolloutFile(Path(self.path or ""), self._reopen()) as file:
            for _, line in file.lines(offset, file.size):
                yield line
        yield from bytes(self._pending).split(b"\n")

    def stat(self) -> os.stat_result:
        """Return the state of the file, for later comparison by the index."""
        return self._stat if self._descriptor is None else os.fstat(self._descriptor)

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            self._descriptor = self._reopen()
        return self._descriptor

    def _check_open(self) -> None:
        if self._is_closed:
            raise JournalClosed(self.thread_id)

    def _reopen(self) -> int:
        self._check_open()
        path = Path(self.path or "")
        descriptor = open_file(path)
        try:
            is_same = os.path.samestat(os.fstat(descriptor), self._stat)
        except BaseException:
            os.close(descriptor)
            raise
        if not is_same:
            os.close(descriptor)
            raise OSError(errno.ESTALE, "rollout file was replaced by another one", str(path))
        return descriptor

    def _rest(self) -> None:
        """Close the file until it is needed again."""
        if self._descriptor is not None:
            # The entries are stored already: a disk error here must not fail the caller. With an
            # older state, the index checks the file again.
            with suppress(OSError):
                self._stat = os.fstat(self._descriptor)
            descriptor, self._descriptor = self._descriptor, None
            self._sync.close(descriptor)

    def _rest_unless_busy(self) -> None:
        # The end of a turn is synced next, which may need this descriptor.
        if not self._has_open_turn and not self._awaits_sync:
            self._rest()

    def delete(self) -> None:
        """Ignore later entries: the thread is deleted while a turn may still end."""
        self._is_deleted = True
        self._rest()

    def close(self) -> None:
        """Close the file and release the lease."""
        if self._is_closed:
            return
        try:
            if not self._is_deleted:
                self._flush(b"")
        except StorageFailed as error:
            # The next writer of the thread finishes what has no end in the file.
            about = {"thread_id": self.thread_id, "reason": str(error)}
            logger.warning("events lost", extra=about)
        try:
            self._watcher(self, ())
        finally:
            self._is_closed = True
            self._rest()
            self._lease.release()


def _read_event(line: bytes) -> Event | None:
    decoded = decode_line(line)
    own = None if decoded is None else decoded.treadle
    if not isinstance(own, OwnEvent):
        return None
    method = SERVER_NOTIFICATIONS.get(own.method)
    if method is None:
        logger.warning("stored event of an unknown method", extra={"method": own.method})
        return None
    try:
        params = method.params_decoder.decode(own.params)
    except msgspec.DecodeError as error:
        logger.warning("stored event skipped", extra={"seq": own.seq, "reason": str(error)})
        return None
    return Event(own.seq, own.at_ms, own.method, params) if isinstance(params, Struct) else None
