"""The database of the index: opens, shares, replaces it, or falls back to memory."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.store.index.case_folding import mentions
from treadle.store.index.schema import create_tables, forget_elsewhere
from treadle.support.files.file_lock import locked

logger = logging.getLogger(__name__)

FILE_NAME: Final = "treadle.sqlite"
DAMAGED_NAME: Final = FILE_NAME + ".damaged"
SUFFIXES: Final = ("", "-wal", "-shm")
# How long a change waits for other processes and threads that write the index.
BUSY_SECONDS: Final = 1.0
OPEN_SECONDS: Final = 5.0

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class IndexBusy(Exception):
    """Another process or thread locks the index for too long."""


class IndexDamaged(sqlite3.DatabaseError):
    """A row of the index has an unexpected value."""


def is_busy(error: Exception) -> bool:
    """Return whether an error only means that another process holds the lock."""
    return isinstance(error, IndexBusy) or _code(error) in _BUSY


def is_damage(error: Exception) -> bool:
    """Return whether an error means a damaged database, rather than an invalid statement."""
    if not isinstance(error, sqlite3.Error) or isinstance(error, sqlite3.ProgrammingError):
        return False
    if _code(error) == sqlite3.SQLITE_ERROR:
        return any(words in str(error) for words in ("no such", "vtable", "has no column"))
    return not is_busy(error)


def _code(error: Exception) -> int:
    code = getattr(error, "sqlite_errorcode", None)
    # The lowest byte of an extended code is the primary code.
    return -1 if code is None else int(code) & 0xFF


class _Opened(Struct):
    writer: sqlite3.Connection
    # The same connection if the database is in memory.
    reader: sqlite3.Connection
    # The identity of the file: another process may have replaced it.
    file: tuple[int, int] | None


class Database:
    """Two connections of this process, so that writes never block reads, in any process.

    For use in worker threads: every call may wait for the disk or for another process.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / FILE_NAME
        self._opened: _Opened | None = None
        self._in_memory = False
        self._is_closed = False
        # Incremented by each replacement: a caller that failed with an older one replaces nothing.
        self.generation = 0
        self._writing = threading.RLock()
        self._reading = threading.RLock()
        self._opening = threading.RLock()
        self._writer_thread: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was opened, so that it can be read while other processes write."""
        return self._opened is not None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read; inside `writing`, uncommitted changes are visible."""
        if self._writer_thread == threading.get_ident():
            yield self._open().writer
            return
        if self._in_memory:
            with self._writing:
                yield self._open().writer
            return
        with self._reading:
            yield self._open().reader

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Apply several changes atomically; may be nested.

        Raises:
            IndexBusy: another process or thread locks the index for too long.
        """
        if self._writer_thread == threading.get_ident():
            yield self._open().writer
            return
        if not self._writing.acquire(timeout=BUSY_SECONDS):
            raise IndexBusy
        try:
            connection = self._open().writer
            _begin(connection)
            self._writer_thread = threading.get_ident()
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("rollback")
                raise
            finally:
                self._writer_thread = None
            connection.execute("commit")
        finally:
            self._writing.release()

    def replace(self, generation: int, error: Exception, *, in_memory: bool = False) -> None:
        """Continue with a new database: the files contain everything that it needs.

        On a full disk the new one is in memory.
        """
        with self._writing, self._reading, self._opening:
            if self.generation != generation or self._is_closed:
                return
            in_memory |= _code(error) == sqlite3.SQLITE_FULL
            file = self._disconnect()
            self.generation += 1
            if in_memory:
                self._in_memory = True
                logger.warning("index kept in memory", extra={"reason": str(error)})
                return
            logger.warning("index replaced", extra={"reason": str(error)})
            with self._alone():
                if file is None or file == self._file():
                    self._move_away()

    def close(self) -> None:
        """Close the connections."""
        with self._writing, self._reading, self._opening:
            self._is_closed = True
            self._disconnect()

    def _disconnect(self) -> tuple[int, int] | None:
        opened, self._opened = self._opened, None
        if opened is None:
            return None
        for connection in (opened.reader, opened.writer):
            with suppress(sqlite3.Error):
                connection.close()
        return opened.file

    def _open(self) -> _Opened:
        opened = self._opened
        if opened is not None:
            return opened
        with self._opening:
            if self._is_closed:
                raise IndexBusy
            if self._opened is None:
                self._opened = self._open_memory() if self._in_memory else self._open_file()
            return self._opened

    def _open_memory(self) -> _Opened:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.create_function("mentions", 2, mentions, deterministic=True)
        create_tables(connection)
        return _Opened(connection, connection, None)

    def _open_file(self) -> _Opened:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One at a time: two processes that initialise a database collide without waiting.
        with self._alone():
            with suppress(OSError):
                # Created here, since SQLite would make it readable by others. Do not open an
                # existing file: closing any descriptor of it would drop this process's locks.
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            writer = self._connect()
            try:
                create_tables(writer)
                forget_elsewhere(writer, self._path.parent)
                return _Opened(writer, self._connect(), self._file())
            except BaseException:
                writer.close()
                raise

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("pragma journal_mode = wal")
            # A machine crash may lose the last changes; the files still have them.
            connection.execute("pragma synchronous = normal")
            connection.create_function("mentions", 2, mentions, deterministic=True)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _alone(self) -> Iterator[None]:
        path = self._path.with_name(FILE_NAME + ".lock")
        with locked(path, seconds=OPEN_SECONDS) as is_alone:
            if not is_alone:
                logger.warning("index opened without its lock", extra={"path": str(path)})
            yield

    def _file(self) -> tuple[int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    def _move_away(self) -> None:
        """Keep the damaged database under another name, once, for diagnosis."""
        stamp = time.time_ns()
        for old in self._path.parent.glob(DAMAGED_NAME + "*"):
            with suppress(OSError):
                old.unlink()
        for suffix in SUFFIXES:
            with suppress(FileNotFoundError):
                place = self._path.with_name(FILE_NAME + suffix)
                place.rename(self._path.with_name(f"{DAMAGED_NAME}-{stamp}{suffix}"))


def _begin(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("begin immediate")
    except sqlite3.OperationalError as error:
        if is_busy(error):
            raise IndexBusy from error
        raise
