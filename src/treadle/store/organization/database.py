"""The database of the organization: created by the first change, shared by processes of a home."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from treadle.store.index.database import is_damage
from treadle.store.journal import StoreError

FILE_NAME: Final = "organization.sqlite"
DAMAGED_NAME: Final = f"{FILE_NAME}.damaged"
BUSY_SECONDS: Final = 5.0
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

logger = logging.getLogger(__name__)


class OrganizationUnavailable(StoreError):
    """The database cannot be used: it is locked for too long, or from a newer server."""


class OrganizationDatabase:
    """Opens a connection for each operation; for use in worker threads."""

    def __init__(self, home: Path) -> None:
        self.path = home / FILE_NAME
        self._lock = threading.Lock()

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
            OrganizationUnavailable: it cannot be read now.
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
            OrganizationUnavailable: it cannot be written now.
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

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                with closing(self._open()) as connection:
                    yield connection
            except sqlite3.OperationalError as error:
                raise OrganizationUnavailable(f"{FILE_NAME}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            logger.warning("organization set aside", extra={"reason": str(error)})
            self.path.replace(self.path.with_name(DAMAGED_NAME))
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        # Only for its owner from the beginning.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("pragma synchronous = full")
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
