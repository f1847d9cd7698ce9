"""The index over a home's threads: find one by id, list and search them in pages.

Everything in it comes from the rollout files; `scanner` keeps the two in step.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.protocol.source import SessionSource, SessionSourceDetail, SubAgentSource
from treadle.store.index.case_folding import fold, places_of
from treadle.store.index.database import Database, IndexDamaged
from treadle.store.journal import BadCursor
from treadle.store.rollout.lines import encode
from treadle.store.stored_thread import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    SortKey,
    ThreadMeta,
    ThreadPage,
    ThreadQuery,
)
from treadle.support.text.json_text import replace_lone_surrogates

LISTED, ARCHIVED, HIDDEN, ATTACHED = 0, 1, 2, 3
INTERACTIVE: Final = ("cli", "vscode")
SUB_AGENTS: Final = (
    "subAgentReview",
    "subAgentCompact",
    "subAgentThreadSpawn",
    "subAgentOther",
)
# The trigram index needs at least three characters.
MIN_INDEXED: Final = 3
SNIPPET_CHARS: Final = 60
MAX_PHRASE_CHARS: Final = 32
# How much of a first message, and of a name, a list can search.
MAX_TITLE_CHARS: Final = 64 * 1024

# The end of the year 9999.
_MAX_MS: Final = 253_402_300_799_999
# The sort time, the id, the path and the rest.
_Found: TypeAlias = tuple[int, str, str | bytes, bytes]

_metas: Final = msgspec.json.Decoder(ThreadMeta)


class Row(Struct, frozen=True):
    """A thread in the index; times in milliseconds."""

    meta: ThreadMeta
    created_ms: int
    updated_ms: int
    recency_ms: int
    # Whether the thread has a message yet: lists omit the others.
    has_message: bool

    @property
    def visibility(self) -> int:
        """The lists that show the thread."""
        if self.meta.archived:
            return ARCHIVED
        if not self.has_message:
            return HIDDEN
        return LISTED if self.meta.attached_to_id is None else ATTACHED

    @property
    def light(self) -> Row:
        """The row as the index returns it: without what only a loaded thread needs."""
        meta = msgspec.structs.replace(
            self.meta,
            base_instructions=None,
            developer_instructions=None,
            dynamic_tools=None,
            extra=None,
        )
        return replace(self, meta=meta)


def source_kind(source: SessionSource) -> str:
    """Return the kind under which a source is listed."""
    if not isinstance(source, SessionSourceDetail):
        return source
    return "custom" if source.sub_agent is None else _sub_agent_kind(source.sub_agent)


def _sub_agent_kind(source: SubAgentSource) -> str:
    if source == "review":
        return "subAgentReview"
    if source == "compact":
        return "subAgentCompact"
    is_spawned = not isinstance(source, str) and source.thread_spawn is not None
    return "subAgentThreadSpawn" if is_spawned else "subAgentOther"


class Index:
    """Stores rows and returns pages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, row: Row) -> None:
        """Add or replace a thread."""
        meta = row.meta
        # The path has its own column, since JSON cannot hold every path.
        light = msgspec.structs.replace(row.light.meta, path=None)
        values: dict[str, object] = {
            "id": meta.id,
            "path": stored_path(meta.path or ""),
            "shelf": row.visibility,
            "created_at": _time(row.created_ms),
            "updated_at": _time(row.updated_ms),
            "recency_at": _time(row.recency_ms),
            "cwd": storable(meta.cwd),
            "source_kind": source_kind(meta.source),
            "provider": storable(meta.model_provider),
            "originator": meta.originator and storable(meta.originator),
            "parent_id": meta.parent_thread_id and storable(meta.parent_thread_id),
            "meta": encode(light),
        }
        titles: dict[str, object] = {
            "preview": storable(meta.preview[:MAX_TITLE_CHARS]),
            "name": storable((meta.name or "")[:MAX_TITLE_CHARS]),
        }
        with self._database.writing() as connection:
            known = connection.execute(
                "select preview, name from threads where id = ?", (meta.id,)
            ).fetchone()
            if known is None:
                _insert(connection, values | titles)
            elif known == (titles["preview"], titles["name"]):
                # Omitted: naming them would rewrite the search index.
                _update(connection, values)
            else:
                _update(connection, values | titles)

    def get(self, thread_id: str) -> Row | None:
        """Return the row of a thread, or `None`."""
        with self._database.reading() as connection:
            found = connection.execute(
                "select shelf, created_at, updated_at, recency_at, path, meta from threads"
                " where id = ?",
                (thread_id,),
            ).fetchone()
        if found is None:
            return None
        visibility, created, updated, recency, path, blob = found
        meta = _meta(path, blob)
        return Row(meta, created, updated, recency, visibility == LISTED or bool(meta.preview))

    def remove(self, thread_id: str) -> None:
        """Remove a thread."""
        with self._database.writing() as connection:
            connection.execute("delete from threads where id = ?", (thread_id,))

    def name(self, thread_id: str) -> tuple[str | None] | None:
        """Return the name of a thread in a tuple, or `None` if it never had one."""
        with self._database.reading() as connection:
            found = connection.execute(
                "select name from names where id = ?", (thread_id,)
            ).fetchone()
        return None if found is None else (found[0],)

    def rename(self, thread_id: str, name: str | None) -> None:
        """Store the name of a thread, even if the thread is not indexed yet."""
        with self._database.writing() as connection:
            connection.execute(
                "insert into names (id, name) values (?, ?)"
                " on conflict (id) do update set name = excluded.name",
                (thread_id, name),
            )
            row = self.get(thread_id)
            if row is not None and row.meta.name != name:
                meta = msgspec.structs.replace(row.meta, name=name)
                self.put(Row(meta, row.created_ms, row.updated_ms, row.recency_ms, row.has_message))

    def page(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads.

        Raises:
            BadCursor: the cursor does not belong to this list.
        """
        limit = min(max(DEFAULT_LIMIT if query.limit is None else query.limit, 1), MAX_LIMIT)
        cwds: Sequence[str | None] = [None] if query.cwd is None else sorted(set(query.cwd))
        found = [self._walk(*page_sql(query, cwd, limit + 1)) for cwd in cwds]
        # One query per folder: a single query over several would have to sort.
        ordered = merge(*found, key=lambda row: row[:2], reverse=query.sort_direction == "desc")
        rows = list(islice(ordered, limit + 1))
        more, rows = len(rows) > limit, rows[:limit]
        return ThreadPage(
            [_meta(path, blob) for _, _, path, blob in rows],
            next_cursor=_cursor(rows[-1]) if more else None,
            backwards_cursor=_cursor(rows[0]) if rows else None,
        )

    def _walk(self, sql: str, values: Sequence[object]) -> list[_Found]:
        with self._database.reading() as connection:
            return connection.execute(sql, values).fetchall()

    def snippet(self, thread_id: str, term: str) -> str:
        """Return the text around the first match in a thread."""
        with self._database.reading() as connection:
            found = connection.execute(
                "select text from messages where mentions(text, ?) and thread ="
                " (select number from threads where id = ?) order by number limit 1",
                (fold(term), thread_id),
            ).fetchone()
        if found is None:
            return ""
        (text,) = found
        at = next(places_of(term, text), 0)
        return str(text[max(0, at - SNIPPET_CHARS) : at + len(term) + SNIPPET_CHARS])

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _insert(connection: sqlite3.Connection, values: dict[str, object]) -> None:
    columns = ", ".join(values)
    places = ", ".join(f":{column}" for column in values)
    connection.execute(f"insert into threads ({columns}) values ({places})", values)  # noqa: S608  fixed column names


def _update(connection: sqlite3.Connection, values: dict[str, object]) -> None:
    changes = ", ".join(f"{column} = :{column}" for column in values if column != "id")
    connection.execute(f"update threads set {changes} where id = :id", values)  # noqa: S608  fixed column names


def page_sql(query: ThreadQuery, cwd: str | None, limit: int) -> tuple[str, Sequence[object]]:
    """Build the query for one page, optionally for a single folder."""
    key: SortKey = query.sort_key
    condition, values = _shelves(query)
    conditions = [condition]
    if cwd is not None:
        conditions.append("cwd = ?")
        values.append(cwd)
    comparison = "<" if query.sort_direction == "desc" else ">"
    if query.cursor is not None:
        conditions.append(f"({key}, id) {comparison} (?, ?)")
        values += _parse_cursor(query.cursor)
    for condition, given in _filters(query):
        conditions.append(condition)
        values += given
    sql = (
        f"select {key}, id, path, meta from threads where {' and '.join(conditions)}"  # noqa: S608  contains no client text
        f" order by {key} {query.sort_direction}, id {query.sort_direction} limit ?"
    )
    return sql, [*values, limit]


def _shelves(query: ThreadQuery) -> tuple[str, list[object]]:
    """Return the condition for the visibility of threads."""
    if query.attached_to_id is not None:
        # Few threads are attached, so they need no column.
        attached = "json_extract(cast(meta as text), '$.attached_to_id') = ?"
        shelf = ARCHIVED if query.archived else ATTACHED
        return f"shelf = ? and {attached}", [shelf, query.attached_to_id]
    if query.archived:
        return "shelf = ?", [ARCHIVED]
    if query.includes_attached:
        return "shelf in (?, ?)", [LISTED, ATTACHED]
    return "shelf = ?", [LISTED]


def _filters(query: ThreadQuery) -> Iterator[tuple[str, Sequence[object]]]:
    kinds = query.source_kinds or INTERACTIVE
    expanded = [part for kind in kinds for part in (SUB_AGENTS if kind == "subAgent" else (kind,))]
    yield _one_of("source_kind", expanded)
    if query.model_providers:
        yield _one_of("provider", query.model_providers)
    if query.originators:
        yield _one_of("originator", query.originators)
    yield from _relations(query)
    if query.excluded_thread_ids:
        condition, values = _one_of("id", query.excluded_thread_ids)
        yield f"not {condition}", values
    if query.only_ids is not None:
        yield "id in (select value from json_each(?))", [json.dumps(list(query.only_ids))]
    if query.except_ids:
        yield "id not in (select value from json_each(?))", [json.dumps(list(query.except_ids))]
    if query.search_term:
        yield _in_title(query.search_term)
    if query.mentions:
        condition, values = _mentions(query.mentions, table="speech", columns=("text",))
        yield f"number in (select thread from messages where {condition})", values  # noqa: S608  as above


def _relations(query: ThreadQuery) -> Iterator[tuple[str, Sequence[object]]]:
    if query.parent_thread_id is not None:
        yield "parent_id = ?", [query.parent_thread_id]
    if query.ancestor_thread_id is not None:
        yield _DESCENDS, [query.ancestor_thread_id]
    if query.creator is not None:
        yield _CREATED, [query.creator.user_id, query.creator.account_id]


_CREATOR: Final = "json_extract(cast(meta as text), '$.creator_{}_id')"
_CREATED: Final = (
    # Threads of unknown origin belong to every login.
    f"(({_CREATOR.format('user')} is null and {_CREATOR.format('account')} is null)"
    f" or ({_CREATOR.format('user')} is ? and {_CREATOR.format('account')} is ?))"
)
_DESCENDS: Final = (
    "id in (with recursive kin (id) as (select id from threads where parent_id = ?"
    " union select threads.id from threads join kin on threads.parent_id = kin.id)"
    " select id from kin)"
)


def _one_of(column: str, values: Sequence[str]) -> tuple[str, Sequence[object]]:
    return f"{column} in ({', '.join('?' * len(values))})", values


def _in_title(term: str) -> tuple[str, Sequence[object]]:
    """Match the case as well: the search of titles does, that of messages does not."""
    condition, values = _mentions(term, table="titles", columns=("preview", "name"))
    exact = "(instr(preview, ?) > 0 or instr(name, ?) > 0)"
    return f"{condition} and {exact}", [*values, *[term.replace("\0", "")] * 2]


def _mentions(term: str, *, table: str, columns: Sequence[str]) -> tuple[str, Sequence[object]]:
    term = term.replace("\0", "")
    if len(term) < MIN_INDEXED:
        escaped = term.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        tests = " or ".join(f"{column} like ? escape '\\'" for column in columns)
        return f"({tests})", [f"%{escaped}%"] * len(columns)
    # The memory for a phrase grows with its length times that of a message: match only its
    # beginning, and check the few results in full.
    phrase = '"' + term[:MAX_PHRASE_CHARS].replace('"', '""') + '"'
    # A subquery: a join would walk all threads by time and look each one up.
    found = f"number in (select rowid from {table} where {table} match ?)"  # noqa: S608  fixed table names
    if len(term) <= MAX_PHRASE_CHARS:
        return found, [phrase]
    tests = " or ".join(f"mentions({column}, ?)" for column in columns)
    return f"{found} and ({tests})", [phrase, *[fold(term)] * len(columns)]


def stored_path(path: str) -> str | bytes:
    """Encode a path for the database: as bytes if it is not valid text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path


def path_of(stored: object) -> str:
    """Decode a path from the database."""
    if not isinstance(stored, (str, bytes)):
        raise IndexDamaged("invalid path")
    return os.fsdecode(stored)


def storable(text: str) -> str:
    """Replace lone surrogates, which SQLite cannot store."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return replace_lone_surrogates(text)
    return text


def _time(ms: int) -> int:
    """Clamp a time to the range of the database: files may contain any number."""
    return max(min(ms, _MAX_MS), -_MAX_MS)


def _meta(path: str | bytes, blob: bytes) -> ThreadMeta:
    try:
        meta = _metas.decode(blob)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise IndexDamaged(str(error)) from error
    return msgspec.structs.replace(meta, path=path_of(path) or None)


def _cursor(row: _Found) -> str:
    return f"{row[0]}|{row[1]}"


def _parse_cursor(cursor: str) -> tuple[int, str]:
    time, separator, id_ = cursor.partition("|")
    if not separator or not id_ or not time.removeprefix("-").isdecimal() or len(time) > 18:
        raise BadCursor(cursor)
    return int(time), id_
