"""The index's database: its tables, and how it is opened, shared and thrown away."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

FILE_NAME: Final = "treadle.sqlite"
VERSION: Final = 1
BUSY_SECONDS: Final = 5.0

# `shelf` is 0 for threads that lists show, 1 for archived ones, 2 for those without a message.
# Every list is a walk along one index: equal shelf (and folder), then time and id.
SCHEMA: Final = """
create table files (
    path text primary key, folder text not null, mtime_ns integer not null,
    size integer not null, thread_id text, segment text not null
) without rowid;
create index files_by_folder on files (folder);
create index files_by_thread on files (thread_id, segment);
create index files_by_segment on files (segment) where segment <> '';
create table folders (path text primary key, mtime_ns integer not null) without rowid;
create table names (id text primary key, name text) without rowid;
create table state (key text primary key, value integer not null) without rowid;
create table threads (
    number integer primary key, id text not null unique, path text not null,
    shelf integer not null, created_at integer not null, updated_at integer not null,
    recency_at integer not null, cwd text not null, source_kind text not null,
    provider text not null, originator text, parent_id text,
    preview text not null, name text not null, meta blob not null,
    spoken integer not null default 0
);
create index by_created on threads (shelf, created_at, id);
create index by_updated on threads (shelf, updated_at, id);
create index by_recency on threads (shelf, recency_at, id);
create index by_cwd_created on threads (shelf, cwd, created_at, id);
create index by_cwd_updated on threads (shelf, cwd, updated_at, id);
create index by_parent on threads (parent_id) where parent_id is not null;
create virtual table titles using fts5 (
    preview, name, content='threads', content_rowid='number', tokenize='trigram'
);
create trigger title_added after insert on threads begin
    insert into titles (rowid, preview, name) values (new.number, new.preview, new.name);
end;
create trigger title_removed after delete on threads begin
    insert into titles (titles, rowid, preview, name)
        values ('delete', old.number, old.preview, old.name);
    delete from messages where thread = old.number;
end;
create trigger title_changed after update of preview, name on threads begin
    insert into titles (titles, rowid, preview, name)
        values ('delete', old.number, old.preview, old.name);
    insert into titles (rowid, preview, name) values (new.number, new.preview, new.name);
end;
create table messages (
    number integer primary key, thread integer not null, text text not null
);
create index messages_by_thread on messages (thread);
create virtual table speech using fts5 (
    text, content='messages', content_rowid='number', tokenize='trigram'
);
create trigger message_added after insert on messages begin
    insert into speech (rowid, text) values (new.number, new.text);
end;
create trigger message_removed after delete on messages begin
    insert into speech (speech, rowid, text) values ('delete', old.number, old.text);
end;
"""


class Database:
    """One connection, shared by the threads of this process; other processes have their own."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE_NAME
        self.lock = threading.RLock()
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One at a time: two processes that make a database ready collide without waiting.
        with _locked(self._path.with_name(FILE_NAME + ".lock")):
            self.connection = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise
            # It holds nothing that the files do not: a new one costs only time.
            logger.warning("index replaced", extra={"reason": str(error)})
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(FILE_NAME + suffix).unlink(missing_ok=True)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        with suppress(FileExistsError):
            # Made by hand, since SQLite would let others read it. An existing one is not touched:
            # closing any descriptor of it would end the locks that this process has on it.
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("pragma journal_mode = wal")
            # A crash of the machine may lose the last changes, which the files still have.
            connection.execute("pragma synchronous = normal")
            _create_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Change several things at once, or nothing; may be nested."""
        with self.lock:
            if self.connection.in_transaction:
                yield self.connection
                return
            self.connection.execute("begin immediate")
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("rollback")
                raise
            self.connection.execute("commit")

    def close(self) -> None:
        """Close the connection."""
        with self.lock:
            self.connection.close()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _create_tables(connection: sqlite3.Connection) -> None:
    if _version(connection) == VERSION:
        return
    connection.execute("begin immediate")
    try:
        # Another process may have been first.
        if _version(connection) != VERSION:
            _refuse_other_version(connection)
            for statement in _statements():
                connection.execute(statement)
            connection.execute(f"pragma user_version = {VERSION}")
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")


def _refuse_other_version(connection: sqlite3.Connection) -> None:
    if _version(connection) != 0:
        raise sqlite3.DatabaseError("made by another version")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("pragma user_version").fetchone()
    return int(version)


def _statements() -> Iterator[str]:
    statement = ""
    for line in SCHEMA.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
