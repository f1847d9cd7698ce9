"""The lease on a thread: the right of one process to write it.

A lease is a file lock, so it ends with its process, even after a crash. The files are those of
the reference (`thread-writer-locks/<id>.lock`, locked with flock; checked with 0.163.0), so that
the two programs never write the same thread. We also store the owner in the file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from treadle.store.journal import ThreadLocked, ThreadNotFound

logger = logging.getLogger(__name__)

FOLDER: Final = "thread-writer-locks"
# Held while a lock file is removed: no process then locks a file that is going away.
COORDINATION: Final = ".coordination.lock"
_TRIES: Final = 4
_PAUSE_SECONDS: Final = 0.005


class Owner(Struct, frozen=True):
    """The process that holds a lease, and since when."""

    pid: int
    host: str
    started_at_ms: int


class Lease:
    """The right to write one thread, until it is released."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, home: Path, thread_id: str, now_ms: int) -> Lease:
        """Take the lease.

        Raises:
            ThreadLocked: a live process holds it.
            ThreadNotFound: the id is invalid.
        """
        if Path(thread_id).name != thread_id or thread_id.startswith(".") or not thread_id:
            # The id comes from a client or a file, and must not lead out of the folder.
            raise ThreadNotFound(thread_id)
        folder = home / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{thread_id}.lock"
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_file_at(descriptor, path):
                    break
            except BlockingIOError:
                owner = _read_owner(descriptor)
                os.close(descriptor)
                raise _locked(thread_id, owner) from None
            except BaseException:
                os.close(descriptor)
                raise
            # The last owner removed the file after we opened it and before we locked it.
            os.close(descriptor)
        owner = Owner(os.getpid(), socket.gethostname(), now_ms)
        # Only the lock matters. On a full disk, other processes do not learn its owner.
        with suppress(OSError):
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(owner), 0)
        return cls(path, descriptor)

    @classmethod
    def is_held(cls, home: Path, thread_id: str) -> bool:
        """Return whether a live process holds the lease."""
        try:
            descriptor = os.open(home / FOLDER / f"{thread_id}.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared: a concurrent check must not mistake this one for an owner.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def release(self) -> None:
        """Give up the lease; idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            os.truncate(descriptor, 0)
            self._remove()
        except OSError as error:
            # The disk is full or descriptors ran out: the lock still ends with its descriptor.
            logger.info("lock file left behind", extra={"reason": str(error)})
        finally:
            os.close(descriptor)

    def _remove(self) -> None:
        coordination = os.open(
            self._path.parent / COORDINATION, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            for _ in range(_TRIES):
                try:
                    fcntl.flock(coordination, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(_PAUSE_SECONDS)
            # Programs that lock a file of the folder hold the coordination for microseconds. What
            # holds it longer is a command, which would also lock a file that is left behind.
            self._path.unlink(missing_ok=True)
        finally:
            os.close(coordination)


def _locked(thread_id: str, owner: Owner | None) -> ThreadLocked:
    if owner is None:
        return ThreadLocked(thread_id, pid=None, host=None)
    return ThreadLocked(thread_id, pid=owner.pid, host=owner.host)


def _is_file_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _read_owner(descriptor: int) -> Owner | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Owner)
    except msgspec.DecodeError:
        # Empty: the owner is another program, or has not written its record yet.
        return None
