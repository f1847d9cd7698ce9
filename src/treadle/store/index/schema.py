"""The tables of the index."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

VERSION: Final = 2

# `shelf` is the visibility of a thread: 0 for listed ones, 1 for archived ones, 2 for those
# without a message, 3 for those that are shown beside another thread.
# Every list walks one index: equal shelf (and folder), then time and id.
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

# Paths are text, or bytes if they are not valid text; bytes sort after all text.
_ELSEWHERE: Final = """
select distinct folder from files
    where (folder >= '' and folder < :first) or (folder >= :behind and folder < x'')
    or (folder >= x'' and folder < :first_bytes) or folder >= :behind_bytes
"""
_FORGET: Final = (
    """
    delete from threads where id in (select thread_id from files where folder = :folder)
        and path in (select path from files where folder = :folder)
    """,
    "delete from folders where path = :folder",
    "delete from files where folder = :folder",
)


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in a new database.

    Raises:
        sqlite3.DatabaseError: it has another version.
    """
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


def forget_elsewhere(connection: sqlite3.Connection, home: Path) -> None:
    """Drop files outside the home: the index was copied here with another home.

    Otherwise they would count as files of this home, which writes and deletes its files.
    """
    first = os.fsencode(home) + b"/"
    behind = first[:-1] + b"0"  # the character after the slash
    places: dict[str, str | bytes] = {"first_bytes": first, "behind_bytes": behind}
    try:
        places |= {"first": first.decode(), "behind": behind.decode()}
    except UnicodeDecodeError:
        places |= {"first": "", "behind": ""}
    for (folder,) in connection.execute(_ELSEWHERE, places).fetchall():
        if not _lies_in(os.fsdecode(folder), home):
            for statement in _FORGET:
                connection.execute(statement, {"folder": folder})


def _lies_in(folder: str, home: Path) -> bool:
    """Return whether a folder is in a home that has several paths."""
    for parent in Path(folder).parents:
        with suppress(OSError):
            if parent.samefile(home):
                return True
    return False


def _refuse_other_version(connection: sqlite3.Connection) -> None:
    if _version(connection) != 0:
        raise sqlite3.DatabaseError("another schema version")


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
