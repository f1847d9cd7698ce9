"""Projects: named sets of folders, to which threads belong."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from treadle.protocol.project import Project, ProjectRoot
from treadle.store.organization.errors import InvalidOrganization
from treadle.store.organization.rows import decoded_column
from treadle.store.organization.sections import checked_name
from treadle.support.ids import uuid7

MAX_PROJECTS: Final = 1000
MAX_ROOTS: Final = 100
MAX_PATH: Final = 4096
MAX_METADATA: Final = 64 * 1024
MAX_TOTAL: Final = 16 * 1024 * 1024
"""The maximum size of all projects: clients receive them in one message."""

MAX_KEY: Final = 1024

_COLUMNS: Final = "id, name, roots, metadata, position, created_at, updated_at"
_read_roots = msgspec.json.Decoder(list[ProjectRoot]).decode
_read_metadata = msgspec.json.Decoder(dict[str, str]).decode


def all_projects(connection: sqlite3.Connection | None) -> list[Project]:
    """Return the projects in order, without their recency."""
    if connection is None:
        return []
    sql = f"select {_COLUMNS} from projects order by position"  # noqa: S608  fixed columns
    rows = connection.execute(sql).fetchall()
    return [_project(row) for row in rows]


def find_project(
    connection: sqlite3.Connection | None, project_id: str, *, what: str = "project"
) -> Project:
    """Return a project.

    Raises:
        InvalidOrganization: it does not exist.
    """
    for project in all_projects(connection):
        if project.id == project_id:
            return project
    raise InvalidOrganization("projectId", f"{what} not found: {project_id[:200]}")


def create_project(
    connection: sqlite3.Connection,
    key: str,
    *,
    name: str,
    roots: Sequence[ProjectRoot],
    metadata: Mapping[str, str],
    now: int,
) -> tuple[Project, bool]:
    """Add a project at the end, unless the key was used; return also whether it is new.

    Raises:
        InvalidOrganization: a value is invalid, or there are too many or too large projects.
    """
    if not key.strip() or len(key) > MAX_KEY:
        reason = "must not be empty" if not key.strip() else f"has more than {MAX_KEY} characters"
        raise InvalidOrganization("idempotencyKey", f"idempotencyKey {reason}")
    row = connection.execute(
        f"select {_COLUMNS} from projects where idempotency_key = ?",  # noqa: S608  fixed columns
        (key,),
    ).fetchone()
    if row is not None:
        return _project(row), False
    count = len(all_projects(connection))
    if count >= MAX_PROJECTS:
        raise InvalidOrganization("name", f"there are {MAX_PROJECTS} projects already")
    project = Project(
        id=uuid7(),
        name=checked_name(name, "project"),
        roots=_checked_roots(roots),
        metadata=_checked_metadata(metadata),
        position=count,
        created_at=now,
        updated_at=now,
    )
    connection.execute(
        "insert into projects values (?, ?, ?, ?, ?, ?, ?, ?)",
        (project.id, project.name, *_texts(project), count, now, now, key),
    )
    _check_size(connection)
    return project, True


def update_project(
    connection: sqlite3.Connection,
    project_id: str,
    *,
    name: str | None,
    roots: Sequence[ProjectRoot] | None,
    metadata: Mapping[str, str] | None,
    now: int,
) -> tuple[Project, bool]:
    """Change what is given; return also whether anything was.

    Raises:
        InvalidOrganization: the project does not exist, or a value is invalid.
    """
    before = find_project(connection, project_id)
    if name is None and roots is None and metadata is None:
        return before, False
    project = msgspec.structs.replace(
        before,
        name=before.name if name is None else checked_name(name, "project"),
        roots=before.roots if roots is None else _checked_roots(roots),
        metadata=before.metadata if metadata is None else _checked_metadata(metadata),
        updated_at=now,
    )
    size = _size(connection)
    connection.execute(
        "update projects set name = ?, roots = ?, metadata = ?, updated_at = ? where id = ?",
        (project.name, *_texts(project), now, project_id),
    )
    _check_size(connection, size)
    return project, True


def move_project(
    connection: sqlite3.Connection, project_id: str, before: str | None, now: int
) -> None:
    """Move a project before another one, or to the end.

    Raises:
        InvalidOrganization: one of them does not exist, or both are the same.
    """
    find_project(connection, project_id)
    if before == project_id:
        message = f"project {project_id} cannot be moved before itself"
        raise InvalidOrganization("beforeProjectId", message)
    if before is not None:
        find_project(connection, before, what="before project")
    ordered = [each.id for each in all_projects(connection) if each.id != project_id]
    ordered.insert(ordered.index(before) if before is not None else len(ordered), project_id)
    _number(connection, ordered)
    connection.execute("update projects set updated_at = ? where id = ?", (now, project_id))


def delete_project(connection: sqlite3.Connection, project_id: str) -> None:
    """Delete a project; its threads belong to none afterwards.

    Raises:
        InvalidOrganization: it does not exist.
    """
    find_project(connection, project_id)
    connection.execute("delete from project_members where project_id = ?", (project_id,))
    connection.execute("delete from projects where id = ?", (project_id,))
    _number(connection, [each.id for each in all_projects(connection)])


def threads_of(connection: sqlite3.Connection | None, project_id: str) -> list[str]:
    """Return the ids of the threads of a project."""
    if connection is None:
        return []
    rows = connection.execute(
        "select thread_id from project_members where project_id = ?", (project_id,)
    )
    return [thread_id for (thread_id,) in rows]


def assign_to_project(
    connection: sqlite3.Connection, thread_ids: Sequence[str], project_id: str | None
) -> None:
    """Add threads to a project, or remove them from theirs.

    Raises:
        InvalidOrganization: the project does not exist.
    """
    if project_id is None:
        connection.executemany(
            "delete from project_members where thread_id = ?", [(each,) for each in thread_ids]
        )
        return
    find_project(connection, project_id)
    connection.executemany(
        "insert or replace into project_members values (?, ?)",
        [(each, project_id) for each in thread_ids],
    )


def _size(connection: sqlite3.Connection) -> int:
    """Return the bytes of all projects."""
    parts = " + ".join(f"length(cast({name} as blob))" for name in ("name", "roots", "metadata"))
    (size,) = connection.execute(f"select total({parts}) from projects").fetchone()  # noqa: S608  fixed names
    return int(size)


def _check_size(connection: sqlite3.Connection, before: int = 0) -> None:
    """Refuse a change after which all projects are too large, unless it makes them smaller."""
    if _size(connection) > max(MAX_TOTAL, before):
        raise InvalidOrganization("metadata", f"all projects may have {MAX_TOTAL} bytes together")


def _number(connection: sqlite3.Connection, ordered: Sequence[str]) -> None:
    connection.executemany(
        "update projects set position = ? where id = ?", list(enumerate(ordered))
    )


def _checked_roots(roots: Sequence[ProjectRoot]) -> list[ProjectRoot]:
    if len(roots) > MAX_ROOTS:
        raise InvalidOrganization("roots", f"a project has at most {MAX_ROOTS} roots")
    checked: list[ProjectRoot] = []
    for at, root in enumerate(roots):
        # As text, like upstream: the folder may be on another machine's disk.
        path = os.path.normpath(root.path)
        if not path.startswith("/") or "\0" in path or len(path) > MAX_PATH:
            message = f"roots[{at}].path must be an absolute path: {root.path[:200]!r}"
            raise InvalidOrganization(f"roots[{at}].path", message)
        if ProjectRoot(path) in checked:
            raise InvalidOrganization(f"roots[{at}].path", f"duplicate project root: {path}")
        checked.append(ProjectRoot(path))
    return checked


def _checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    if len(msgspec.json.encode(metadata)) > MAX_METADATA:
        raise InvalidOrganization("metadata", f"metadata has more than {MAX_METADATA} bytes")
    return dict(metadata)


def _texts(project: Project) -> tuple[str, str]:
    roots, metadata = msgspec.json.encode(project.roots), msgspec.json.encode(project.metadata)
    return roots.decode(), metadata.decode()


def _project(row: Sequence[Any]) -> Project:
    id_, name, roots, metadata, position, created_at, updated_at = row
    return Project(
        id=id_,
        name=name,
        roots=decoded_column(_read_roots, roots, []),
        metadata=decoded_column(_read_metadata, metadata, {}),
        position=position,
        created_at=created_at,
        updated_at=updated_at,
    )
