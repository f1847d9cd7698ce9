"""The index over a home's threads: find one by its id, list and search them a page at a time.

It holds nothing that the rollout files do not say; `scan` keeps the two in line.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Final

import msgspec

from treadle.protocol.source import SessionSource, SessionSourceDetail, SubAgentSource
from treadle.store.database import Database
from treadle.store.journal import BadCursor
from treadle.store.thread import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    SortKey,
    ThreadMeta,
    ThreadPage,
    ThreadQuery,
)

LISTED, ARCHIVED, HIDDEN = 0, 1, 2
INTERACTIVE: Final = ("cli", "vscode")
SUB_AGENTS: Final = (
    "subAgentReview",
    "subAgentCompact",
    "subAgentThreadSpawn",
    "subAgentOther",
)
# The trigram index needs three characters to go by.
MIN_INDEXED: Final = 3
SNIPPET_CHARS: Final = 60

_metas: Final = msgspec.json.Decoder(ThreadMeta)


@dataclass(frozen=True, slots=True)
class Row:
    """A thread as the index holds it; times in milliseconds."""

    meta: ThreadMeta
    created_ms: int
    updated_ms: int
    recency_ms: int
    # Whether somebody said something yet: lists leave the others out.
    has_message: bool

    @property
    def shelf(self) -> int:
        """Say which lists show the thread."""
        if self.meta.archived:
            return ARCHIVED
        return LISTED if self.has_message else HIDDEN


def source_kind(source: SessionSource) -> str:
    """Say under which kind a source is listed."""
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
    """Rows in, pages out."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, row: Row) -> None:
        """Add a thread, or replace what is known about it."""
        meta = row.meta
        light = msgspec.structs.replace(
            meta,
            base_instructions=None,
            developer_instructions=None,
            dynamic_tools=None,
            extra=None,
        )
        values = {
            "id": meta.id,
            "path": meta.path or "",
            "shelf": row.shelf,
            "created_at": row.created_ms,
            "updated_at": row.updated_ms,
            "recency_at": row.recency_ms,
            "cwd": meta.cwd,
            "source_kind": source_kind(meta.source),
            "provider": meta.model_provider,
            "originator": meta.originator,
            "parent_id": meta.parent_thread_id,
            "meta": msgspec.json.encode(light),
        }
        titles = {"preview": meta.preview, "name": meta.name or ""}
        with self._database.writing() as connection:
            known = connection.execute(
                "select preview, name from threads where id = ?", (meta.id,)
            ).fetchone()
            if known is None:
                _insert(connection, values | titles)
            elif known == (titles["preview"], titles["name"]):
                # Left out, since naming them would have the search index rewritten.
                _update(connection, values)
            else:
                _update(connection, values | titles)

    def get(self, thread_id: str) -> Row | None:
        """Find a thread."""
        with self._database.lock:
            found = self._database.connection.execute(
                "select shelf, created_at, updated_at, recency_at, meta from threads where id = ?",
                (thread_id,),
            ).fetchone()
        if found is None:
            return None
        shelf, created, updated, recency, blob = found
        meta = _metas.decode(blob)
        return Row(meta, created, updated, recency, shelf == LISTED or bool(meta.preview))

    def remove(self, thread_id: str) -> None:
        """Forget a thread."""
        with self._database.writing() as connection:
            connection.execute("delete from threads where id = ?", (thread_id,))

    def name(self, thread_id: str) -> tuple[str | None] | None:
        """Give the title of a thread in a tuple, or nothing if it never had one."""
        with self._database.lock:
            found = self._database.connection.execute(
                "select name from names where id = ?", (thread_id,)
            ).fetchone()
        return None if found is None else (found[0],)

    def rename(self, thread_id: str, name: str | None) -> None:
        """Remember the title of a thread, also of one that is not indexed yet."""
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
        """Give a page of threads.

        Raises:
            BadCursor: the cursor is not one of ours.
        """
        limit = min(max(DEFAULT_LIMIT if query.limit is None else query.limit, 1), MAX_LIMIT)
        cwds: Sequence[str | None] = [None] if query.cwd is None else sorted(set(query.cwd))
        found = [self._walk(*page_sql(query, cwd, limit + 1)) for cwd in cwds]
        # One walk for each folder, since one walk over several would have to sort.
        ordered = merge(*found, key=lambda row: row[:2], reverse=query.sort_direction == "desc")
        rows = list(islice(ordered, limit + 1))
        more, rows = len(rows) > limit, rows[:limit]
        return ThreadPage(
            [_metas.decode(blob) for _, _, blob in rows],
            next_cursor=_cursor(rows[-1]) if more else None,
            backwards_cursor=_cursor(rows[0]) if rows else None,
        )

    def _walk(self, sql: str, values: Sequence[object]) -> list[tuple[int, str, bytes]]:
        with self._database.lock:
            return self._database.connection.execute(sql, values).fetchall()

    def snippet(self, thread_id: str, term: str) -> str:
        """Give the words of a thread around the first mention of something."""
        with self._database.lock:
            texts = self._database.connection.execute(
                "select text from messages where thread ="
                " (select number from threads where id = ?) order by number",
                (thread_id,),
            )
            for (text,) in texts:
                at = text.casefold().find(term.casefold())
                if at >= 0:
                    start = max(0, at - SNIPPET_CHARS)
                    return str(text[start : at + len(term) + SNIPPET_CHARS])
        return ""

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _insert(connection: sqlite3.Connection, values: dict[str, object]) -> None:
    columns = ", ".join(values)
    places = ", ".join(f":{column}" for column in values)
    connection.execute(f"insert into threads ({columns}) values ({places})", values)  # noqa: S608  our own column names


def _update(connection: sqlite3.Connection, values: dict[str, object]) -> None:
    changes = ", ".join(f"{column} = :{column}" for column in values if column != "id")
    connection.execute(f"update threads set {changes} where id = :id", values)  # noqa: S608  our own column names


def page_sql(query: ThreadQuery, cwd: str | None, limit: int) -> tuple[str, Sequence[object]]:
    """Write the query for one page, of threads in one folder if one is given."""
    key: SortKey = query.sort_key
    conditions = ["shelf = ?"]
    values: list[object] = [ARCHIVED if query.archived else LISTED]
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
        f"select {key}, id, meta from threads where {' and '.join(conditions)}"  # noqa: S608  no text of a client is in it
        f" order by {key} {query.sort_direction}, id {query.sort_direction} limit ?"
    )
    return sql, [*values, limit]


def _filters(query: ThreadQuery) -> Iterator[tuple[str, Sequence[object]]]:
    kinds = query.source_kinds or INTERACTIVE
    expanded = [part for kind in kinds for part in (SUB_AGENTS if kind == "subAgent" else (kind,))]
    yield _one_of("source_kind", expanded)
    if query.model_providers:
        yield _one_of("provider", query.model_providers)
    if query.originators:
        yield _one_of("originator", query.originators)
    if query.parent_thread_id is not None:
        yield "parent_id = ?", [query.parent_thread_id]
    if query.ancestor_thread_id is not None:
        yield _DESCENDS, [query.ancestor_thread_id]
    if query.excluded_thread_ids:
        condition, values = _one_of("id", query.excluded_thread_ids)
        yield f"not {condition}", values
    if query.search_term:
        yield _mentions(query.search_term, table="titles", columns=("preview", "name"))
    if query.mentions:
        condition, values = _mentions(query.mentions, table="speech", columns=("text",))
        yield f"number in (select thread from messages where {condition})", values  # noqa: S608  as above


_DESCENDS: Final = (
    "id in (with recursive kin (id) as (select id from threads where parent_id = ?"
    " union select threads.id from threads join kin on threads.parent_id = kin.id)"
    " select id from kin)"
)


def _one_of(column: str, values: Sequence[str]) -> tuple[str, Sequence[object]]:
    return f"{column} in ({', '.join('?' * len(values))})", values


def _mentions(term: str, *, table: str, columns: Sequence[str]) -> tuple[str, Sequence[object]]:
    if len(term) < MIN_INDEXED:
        escaped = term.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        tests = " or ".join(f"{column} like ? escape '\\'" for column in columns)
        return f"({tests})", [f"%{escaped}%"] * len(columns)
    phrase = '"' + term.replace('"', '""').replace("\0", "") + '"'
    # As a subquery: a join would walk all threads by time and look each up.
    return f"number in (select rowid from {table} where {table} match ?)", [phrase]  # noqa: S608  our own table names


def _cursor(row: tuple[int, str, bytes]) -> str:
    return f"{row[0]}|{row[1]}"


def _parse_cursor(cursor: str) -> tuple[int, str]:
    time, separator, id_ = cursor.partition("|")
    if not separator or not id_ or not time.removeprefix("-").isdecimal() or len(time) > 18:
        raise BadCursor(cursor)
    return int(time), id_
