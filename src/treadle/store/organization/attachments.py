"""Attachments: data of clients about a thread, for example the pull request that it works on."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from treadle.protocol.attachment import ThreadAttachment
from treadle.protocol.base import JsonValue
from treadle.store.organization.errors import InvalidOrganization
from treadle.store.organization.rows import decoded_column
from treadle.support.ids import uuid7

MAX_PAYLOAD: Final = 65_536
MAX_ATTACHMENTS: Final = 1000
"""The maximum number of attachments of one thread."""

MAX_KEY: Final = 1024
_COLUMNS: Final = "id, type, identity_key, payload, created_at"


def attachments_of(connection: sqlite3.Connection | None, thread_id: str) -> list[ThreadAttachment]:
    """Return the attachments of a thread, the oldest first."""
    if connection is None:
        return []
    rows = connection.execute(
        f"select {_COLUMNS} from attachments where thread_id = ? order by id",  # noqa: S608  fixed columns
        (thread_id,),
    ).fetchall()
    return [_attachment(*row) for row in rows]


def find_attachment(
    connection: sqlite3.Connection, thread_id: str, type_: str, key: str
) -> ThreadAttachment | None:
    """Return the attachment of a thread that has this type and key."""
    row = connection.execute(
        f"select {_COLUMNS} from attachments"  # noqa: S608  fixed columns
        " where thread_id = ? and type = ? and identity_key = ?",
        (thread_id, type_, key),
    ).fetchone()
    return None if row is None else _attachment(*row)


def attach(
    connection: sqlite3.Connection,
    thread_id: str,
    type_: str,
    key: str,
    *,
    payload: JsonValue,
    now: int,
) -> tuple[ThreadAttachment, bool]:
    """Add an attachment, unless the thread has one like it; return also whether it is new.

    Raises:
        InvalidOrganization: a value is empty or too large, or the thread has too many.
    """
    check_identity(type_, key)
    content = msgspec.json.encode(payload)
    if len(content) > MAX_PAYLOAD:
        message = f"attachment payload must not exceed {MAX_PAYLOAD} bytes"
        raise InvalidOrganization("payload", message)
    known = find_attachment(connection, thread_id, type_, key)
    if known is not None:
        return known, False
    if len(attachments_of(connection, thread_id)) >= MAX_ATTACHMENTS:
        message = f"the thread has {MAX_ATTACHMENTS} attachments already"
        raise InvalidOrganization("threadId", message)
    added = ThreadAttachment(type_, now, uuid7(), key, payload)
    connection.execute(
        "insert into attachments values (?, ?, ?, ?, ?, ?)",
        (added.id, thread_id, type_, key, content.decode(), now),
    )
    return added, True


def detach(
    connection: sqlite3.Connection, thread_id: str, type_: str, key: str
) -> ThreadAttachment | None:
    """Remove an attachment, and return it if there was one.

    Raises:
        InvalidOrganization: the type or the key is empty or too long.
    """
    check_identity(type_, key)
    known = find_attachment(connection, thread_id, type_, key)
    if known is not None:
        connection.execute("delete from attachments where id = ?", (known.id,))
    return known


def owners_of(
    connection: sqlite3.Connection | None, type_: str, key: str, after: str, limit: int
) -> Sequence[str]:
    """Return the ids of threads with an attachment, in order, after one of them."""
    if connection is None:
        return []
    rows = connection.execute(
        "select thread_id from attachments where type = ? and identity_key = ? and thread_id > ?"
        " order by thread_id limit ?",
        (type_, key, after, limit),
    )
    return [thread_id for (thread_id,) in rows]


def check_identity(type_: str, key: str) -> None:
    """Check what identifies an attachment.

    Raises:
        InvalidOrganization: a part is empty or too long.
    """
    for name, value in (("attachmentType", type_), ("identityKey", key)):
        if not value.strip():
            raise InvalidOrganization(name, f"{name} must not be empty")
        if len(value) > MAX_KEY:
            raise InvalidOrganization(name, f"{name} must have at most {MAX_KEY} characters")


def _attachment(id_: str, type_: str, key: str, payload: str, created_at: int) -> ThreadAttachment:
    content = decoded_column(msgspec.json.decode, payload, None)
    return ThreadAttachment(type_, created_at, id_, key, content)
