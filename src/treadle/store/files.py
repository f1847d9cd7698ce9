"""A journal in a rollout file."""

from __future__ import annotations

import errno
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from treadle.protocol.notifications import SERVER_NOTIFICATIONS, TURN_COMPLETED, TURN_STARTED
from treadle.store.journal import Entry, Event
from treadle.store.lease import Lease
from treadle.store.lines import LineWriter
from treadle.store.rollout import OwnEvent, decode_line

logger = logging.getLogger(__name__)

SESSIONS: Final = "sessions"
ARCHIVED: Final = "archived_sessions"

_CHECKPOINT_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 256 * 1024
_TURN_BOUNDARIES: Final = (TURN_STARTED.method, TURN_COMPLETED.method)
_EVENT_MARK: Final = b'"treadle":{"record":"event"'

Watcher = Callable[["FileJournal", Sequence[Entry]], None]


def rollout_path(home: Path, thread_id: str, created_ms: int) -> Path:
    """Say where a new thread's file goes: by the day and second of its start, in local time."""
    moment = time.localtime(created_ms / 1000)
    name = f"rollout-{time.strftime('%Y-%m-%dT%H-%M-%S', moment)}-{thread_id}.jsonl"
    return home / SESSIONS / time.strftime("%Y/%m/%d", moment) / name


def unarchived_path(home: Path, path: Path) -> Path:
    """Say where an archived file goes back to: by the day in its name, as far as there is one."""
    day = path.name.removeprefix("rollout-")[:10].replace("-", "/")
    is_day = len(day) == 10 and day.replace("/", "").isdecimal()
    return home / SESSIONS / (day if is_day else "1970/01/01") / path.name


def create_file(path: Path, first: bytes) -> int:
    """Make a file that only its owner may read, on the disk with its first line, or not at all."""
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
    # Under another name at first: whoever looks meanwhile would find an empty rollout.
    unfinished = path.with_name(f".{path.name}")
    try:
        descriptor = os.open(unfinished, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(unfinished, flags, 0o600)
    try:
        os.write(descriptor, first)
        os.fdatasync(descriptor)
        unfinished.rename(path)
    except BaseException:
        os.close(descriptor)
        unfinished.unlink(missing_ok=True)
        raise
    return descriptor


def open_file(path: Path) -> int:
    """Open an existing file to append to it."""
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)


def repair(descriptor: int) -> None:
    """Finish the last line if it is whole but for its line feed, else cut it off."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return
    start, tail = size, b""
    while start > 0 and b"\n" not in tail:
        step = min(_READ_BYTES, start)
        start -= step
        tail = os.pread(descriptor, step, start) + tail
    fragment = tail[tail.rfind(b"\n") + 1 :]
    if decode_line(fragment) is not None:
        os.write(descriptor, b"\n")
        return
    logger.warning("half-written line cut off", extra={"bytes": len(fragment)})
    os.ftruncate(descriptor, size - len(fragment))


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
    ) -> None:
        self.thread_id = thread_id
        self.path: str | None = str(path)
        self.last_seq = last_seq
        self._descriptor: int | None = descriptor
        self._is_closed = False
        self._is_deleted = False
        self._has_open_turn = False
        self._lease = lease
        self._writer = writer
        self._watcher = watcher
        self._stat = os.fstat(descriptor)
        self._size = self._stat.st_size
        # Where to begin to read for events after a number, so as not to read all of it.
        self._checkpoints: list[tuple[int, int]] = [(0, 0), (last_seq, self._size)]
        self._rest()

    def append(self, entries: Sequence[Entry], *, sync: bool = False) -> None:
        """Write entries with one call to the system, all or none.

        Raises:
            OSError: the file cannot be written, is gone, or was replaced by another one.
        """
        if self._is_deleted:
            return
        descriptor = self._open_descriptor()
        try:
            self._append(descriptor, entries, sync=sync)
        finally:
            if not self._has_open_turn:
                self._rest()

    def _append(self, descriptor: int, entries: Sequence[Entry], *, sync: bool) -> None:
        if not entries:
            return
        data = self._writer.lines(entries)
        self._write(descriptor, data)
        for entry in entries:
            if isinstance(entry, Event):
                self.last_seq = entry.seq
                if entry.method in _TURN_BOUNDARIES:
                    self._has_open_turn = entry.method == TURN_STARTED.method
        self._size += len(data)
        if self._size - self._checkpoints[-1][1] > _CHECKPOINT_BYTES:
            self._checkpoints.append((self.last_seq, self._size))
        if sync:
            os.fdatasync(descriptor)
        self._watcher(self, entries)

    def _write(self, descriptor: int, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(descriptor, data[written:] if written else data)
        except OSError:
            if written:
                # A full disk: a half line would spoil the next one.
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            raise

    def read(self, after: int, until: int | None = None) -> Iterator[Event]:
        """Give the events in between, from the file."""
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

    def _lines(self, after: int) -> Iterator[bytes]:
        place = bisect_right(self._checkpoints, after, key=lambda point: point[0]) - 1
        offset = self._checkpoints[place][1]
        rest = b""
        # With its own descriptor: an entry that is appended meanwhile may close the other one.
        descriptor = self._reopen()
        try:
            while chunk := os.pread(descriptor, _READ_BYTES, offset):
                offset += len(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
        finally:
            os.close(descriptor)

    def stat(self) -> os.stat_result:
        """Give the state of the file, for the index to compare with later."""
        return self._stat if self._descriptor is None else os.fstat(self._descriptor)

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            self._descriptor = self._reopen()
        return self._descriptor

    def _reopen(self) -> int:
        if self._is_closed:
            raise ValueError(f"journal of thread {self.thread_id!r} is closed")
        path = Path(self.path or "")
        descriptor = open_file(path)
        if not os.path.samestat(os.fstat(descriptor), self._stat):
            os.close(descriptor)
            raise OSError(errno.ESTALE, "rollout file was replaced by another one", str(path))
        return descriptor

    def _rest(self) -> None:
        """Close the file until it is needed again."""
        if self._descriptor is not None:
            self._stat = os.fstat(self._descriptor)
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def delete(self) -> None:
        """Ignore later entries: the thread is deleted while a turn may still end."""
        self._is_deleted = True
        self._rest()

    def close(self) -> None:
        """Close the file and give up the lease."""
        if self._is_closed:
            return
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
