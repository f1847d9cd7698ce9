"""The database of the organization: created by the first change, shared by processes of a home."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from treadle.store.journal import StorageFailed, StoreError
from treadle.store.organization.salvage import replace_damaged

FILE_NAME: Final = "organization.sqlite"
BUSY_SECONDS: Final = 2.0
"""How long an operation waits for another process that locks the database."""

LOCKED_SECONDS: Final = 10.0
"""How long later ones do not wait, after one has waited in vain: a command that may read the file
can lock it for as long as it runs."""

VERSION: Final = 1

_SCHEMA: Final = """
create table sections (
    id text primary key, name text not null, appearance text, position integer not null
);
create table section_members (
    thread_id text primary key, section_id text not null, position integer not null,
    entered_at integer not null
);
create index section_order on section_members (section_id, position);
create table projects (
    id text primary key, name text not null, roots text not null, metadata text not null,
    position integer not null, created_at integer not null, updated_at integer not null,
    idempotency_key text not null unique
);
create table project_members (thread_id text primary key, project_id text not null);
create index project_threads on project_members (project_id);
create table attachments (
    id text primary key, thread_id text not null, type text not null, identity_key text not null,
    payload text not null, created_at integer not null, unique (thread_id, type, identity_key)
);
create index attachment_owners on attachments (type, identity_key, thread_id);
"""

TABLES: Final = ("sections", "section_members", "projects", "project_members", "attachments")

# What an error of SQLite means for the client. None of them says that the content is damaged.
_NUMBERS: Final = {
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
}
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class OrganizationUnavailable(StoreError):
    """The database cannot be used: it is from a newer server."""


class OrganizationDamaged(StoreError):
    """The content of the database is damaged; `file` is the inode that has it."""

    def __init__(self, reason: str, file: int) -> None:
        super().__init__(f"{FILE_NAME}: {reason}")
        self.file = file


class OrganizationDatabase:
    """Opens a connection for each operation; for use in worker threads."""

    def __init__(self, home: Path) -> None:
        self.path = home / FILE_NAME
        self._lock = threading.Lock()
        # Until when the database counts as locked, by the monotonic clock.
        self._locked_until = 0.0

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """What differs after a change by any process; `None` without a database."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection, or `None` if nothing has been organized yet.

        Raises:
            OrganizationUnavailable: it is from a newer server.
            OrganizationDamaged: its content is damaged.
            StorageFailed: it cannot be read now.
        """
        if not self.path.exists():
            yield None
            return
        with self._connected() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose changes are made as a whole, and are on the disk afterwards.

        Raises:
            OrganizationUnavailable: it is from a newer server.
            OrganizationDamaged: its content is damaged.
            StorageFailed: it cannot be written now.
        """
        with self._connected() as connection:
            connection.execute("begin immediate")
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("rollback")
                raise
            connection.execute("commit")
            self._locked_until = 0.0

    def repair(self, damaged: OrganizationDamaged) -> None:
        """Set the damaged file aside, and continue with the rows of it that can be read.

        Raises:
            StorageFailed: the new file cannot be written; the damaged one stays.
        """
        with self._lock:
            try:
                replace_damaged(self.path, damaged.file, TABLES, _prepare)
            except sqlite3.Error as error:
                raise self._failure(error, damaged.file) from error
            except OSError as error:
                raise StorageFailed(str(self.path.parent), error) from error

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        file = 0
        with self._lock:
            try:
                file = self._make_file()
                with closing(self._connect()) as connection:
                    yield connection
            except sqlite3.Error as error:
                raise self._failure(error, file) from error
            except OSError as error:
                raise StorageFailed(str(self.path.parent), error) from error

    def _failure(self, error: sqlite3.Error, file: int) -> StoreError:
        # The lowest byte of an extended code is the primary code. A disk that cannot be read for
        # a moment has not damaged anything.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGE or (code == sqlite3.SQLITE_ERROR and "no such" in str(error)):
            return OrganizationDamaged(str(error), file)
        number = _NUMBERS.get(code, errno.EIO)
        if number == errno.EBUSY:
            self._locked_until = time.monotonic() + LOCKED_SECONDS
        return StorageFailed(str(self.path.parent), OSError(number, str(error)))

    @property
    def _patience(self) -> float:
        return 0.0 if time.monotonic() < self._locked_until else BUSY_SECONDS

    def _make_file(self) -> int:
        """Create the file, unless it exists, and return its inode."""
        # Only for its owner from the beginning.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            return os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=self._patience, isolation_level=None)
        try:
            connection.execute("pragma synchronous = extra")
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the tables, unless they exist."""
    (version,) = connection.execute("pragma user_version").fetchone()
    if version > VERSION:
        raise OrganizationUnavailable(f"{FILE_NAME} was written by a newer Treadle")
    if version < VERSION:
        _create(connection)
    connection.execute("select count(*) from sections").fetchone()


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("begin immediate")
    # Another process may have been faster.
    (version,) = connection.execute("pragma user_version").fetchone()
    if version < VERSION:
        for statement in filter(str.strip, _SCHEMA.split(";")):
            connection.execute(statement)
        connection.execute(f"pragma user_version = {VERSION}")
    connection.execute("commit")
