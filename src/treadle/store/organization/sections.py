"""Sections: named groups in the thread list; the user orders the threads in each."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from treadle.protocol.section import ThreadSection, ThreadSectionAppearance
from treadle.store.organization.errors import InvalidOrganization
from treadle.store.organization.rows import decoded_column
from treadle.support.ids import uuid7

# Upstream's id: clients know it.
PINNED: Final = ThreadSection("01984de2-8f74-7c91-a3b2-5c5e937cf318", "Pinned")
MAX_SECTIONS: Final = 1000
MAX_NAME: Final = 1000
_read_appearance = msgspec.json.Decoder(ThreadSectionAppearance).decode


def all_sections(connection: sqlite3.Connection | None) -> list[ThreadSection]:
    """Return the sections in order; the built-in one is the first."""
    if connection is None:
        return [PINNED]
    rows = connection.execute(
        "select id, name, appearance from sections order by position"
    ).fetchall()
    return [PINNED, *(_section(*row) for row in rows)]


def find_section(connection: sqlite3.Connection | None, section_id: str) -> ThreadSection:
    """Return a section.

    Raises:
        InvalidOrganization: it does not exist.
    """
    for section in all_sections(connection):
        if section.id == section_id:
            return section
    raise InvalidOrganization("sectionId", f"thread section not found: {section_id[:200]}")


def create_section(
    connection: sqlite3.Connection, name: str, appearance: ThreadSectionAppearance | None
) -> ThreadSection:
    """Add a section at the end.

    Raises:
        InvalidOrganization: the name is empty or too long, or there are too many sections.
    """
    (count, last) = connection.execute(
        "select count(*), coalesce(max(position), 0) from sections"
    ).fetchone()
    if count >= MAX_SECTIONS:
        raise InvalidOrganization("name", f"there are {MAX_SECTIONS} sections already")
    section = ThreadSection(uuid7(), checked_name(name, "section"), appearance)
    connection.execute(
        "insert into sections values (?, ?, ?, ?)",
        (section.id, section.name, _text(appearance), last + 1),
    )
    return section


def update_section(
    connection: sqlite3.Connection,
    section_id: str,
    name: str,
    appearance: ThreadSectionAppearance | msgspec.UnsetType | None,
) -> ThreadSection:
    """Change a section; an appearance that is not set is kept.

    Raises:
        InvalidOrganization: it does not exist or is built in, or the name is empty or too long.
    """
    _check_not_built_in(section_id, "renamed")
    before = find_section(connection, section_id)
    kept = before.appearance if appearance is msgspec.UNSET else appearance
    section = ThreadSection(section_id, checked_name(name, "section"), kept)
    connection.execute(
        "update sections set name = ?, appearance = ? where id = ?",
        (section.name, _text(kept), section_id),
    )
    return section


def delete_section(connection: sqlite3.Connection, section_id: str) -> None:
    """Delete a section; its threads no longer belong to a section.

    Raises:
        InvalidOrganization: it does not exist or is built in.
    """
    _check_not_built_in(section_id, "deleted")
    find_section(connection, section_id)
    connection.execute("delete from section_members where section_id = ?", (section_id,))
    connection.execute("delete from sections where id = ?", (section_id,))


def members_of(connection: sqlite3.Connection | None, section_id: str) -> list[str]:
    """Return the ids of the threads in a section, in order."""
    if connection is None:
        return []
    rows = connection.execute(
        "select thread_id from section_members where section_id = ? order by position",
        (section_id,),
    )
    return [thread_id for (thread_id,) in rows]


def move_to_section(
    connection: sqlite3.Connection,
    thread_id: str,
    section_id: str | None,
    *,
    before: str | None,
    now: int,
) -> None:
    """Move a thread before another one or to the end of a section, or out of all sections.

    Raises:
        InvalidOrganization: the section does not exist, or the other thread is not in it.
    """
    if section_id is not None and all(each.id != section_id for each in all_sections(connection)):
        raise InvalidOrganization("sectionId", f"section {section_id[:200]} does not exist")
    if before == thread_id:
        message = f"thread {thread_id} cannot be moved before itself"
        raise InvalidOrganization("beforeThreadId", message)
    ids = [] if section_id is None else members_of(connection, section_id)
    if before is not None and before not in ids:
        message = f"before thread {before[:200]} is not in section {section_id}"
        raise InvalidOrganization("beforeThreadId", message)
    if section_id is None:
        connection.execute("delete from section_members where thread_id = ?", (thread_id,))
        return
    known = thread_id in ids
    ordered = [each for each in ids if each != thread_id]
    ordered.insert(ordered.index(before) if before is not None else len(ordered), thread_id)
    if not known:
        connection.execute(
            "insert or replace into section_members values (?, ?, 0, ?)",
            (thread_id, section_id, now),
        )
    _renumber(connection, ordered)


def _renumber(connection: sqlite3.Connection, ordered: Sequence[str]) -> None:
    connection.executemany(
        "update section_members set position = ? where thread_id = ?",
        list(enumerate(ordered)),
    )


def checked_name(name: str, of: str) -> str:
    """Return a name without surrounding whitespace.

    Raises:
        InvalidOrganization: it is empty or too long.
    """
    stripped = name.strip()
    if not stripped:
        raise InvalidOrganization("name", f"{of} name must not be empty")
    if len(stripped) > MAX_NAME:
        message = f"{of} name must have at most {MAX_NAME} characters"
        raise InvalidOrganization("name", message)
    return stripped


def _check_not_built_in(section_id: str, what: str) -> None:
    if section_id == PINNED.id:
        message = f"the built-in pinned section cannot be {what}"
        raise InvalidOrganization("sectionId", message)


def _section(id_: str, name: str, appearance: str | None) -> ThreadSection:
    decoded = None if appearance is None else decoded_column(_read_appearance, appearance, None)
    return ThreadSection(id_, name, decoded)


def _text(appearance: ThreadSectionAppearance | None) -> str | None:
    return None if appearance is None else msgspec.json.encode(appearance).decode()
