"""Projects that group threads."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import AbsolutePathBuf, Int64, Params, SortDirection, UInt32, Value


class ProjectRoot(Value, frozen=True):
    """A folder that belongs to a project."""

    path: AbsolutePathBuf


class Project(Value, frozen=True):
    """A named set of folders that groups threads; times are Unix seconds."""

    created_at: Int64
    id: str
    metadata: dict[str, str]
    name: str
    position: Int64
    roots: list[ProjectRoot]
    updated_at: Int64
    # The latest use of a member thread that is not archived; null without one.
    recency_at: Int64 | None = None


ProjectChangeType = Literal["created", "updated", "deleted"]


class ProjectChangedNotification(Value, frozen=True):
    """A project was created, changed (or moved) or deleted; read it again for details."""

    change_type: ProjectChangeType
    project_id: str


class ProjectCreateParams(Params, frozen=True):
    """Create a project at the end of the list; a retry with the same key creates no second one."""

    idempotency_key: str
    name: str
    roots: list[ProjectRoot]
    metadata: dict[str, str] | None = None


class ProjectCreateResponse(Value, frozen=True):
    """The new project, or the existing one with the same key."""

    project: Project


class ProjectDeleteParams(Params, frozen=True):
    """Delete a project permanently."""

    project_id: str


class ProjectDeleteResponse(Value, frozen=True):
    """The project is deleted."""


class ProjectImportParams(Params, frozen=True):
    """Create a project and add existing threads to it."""

    idempotency_key: str
    name: str
    roots: list[ProjectRoot]
    metadata: dict[str, str] | None = None
    threads: list[str] | None = None


class ProjectImportResponse(Value, frozen=True):
    """The project with the imported threads."""

    project: Project


ProjectSortKey = Literal["position", "recencyAt"]


class ProjectListParams(Params, frozen=True):
    """Page through the projects, by position unless recency is requested."""

    cursor: str | None = None
    limit: UInt32 | None = None
    # Only with sort_key; ascending for positions, descending for recency.
    sort_direction: SortDirection | None = None
    sort_key: ProjectSortKey | None = None


class ProjectListResponse(Value, frozen=True):
    """One page of projects; the last page has no cursor."""

    data: list[Project]
    next_cursor: str | None = None


class ProjectMoveParams(Params, frozen=True):
    """Move a project before another one, or to the end if none is named."""

    project_id: str
    before_project_id: str | None = None


class ProjectMoveResponse(Value, frozen=True):
    """The project has its new position."""


class ProjectReadParams(Params, frozen=True):
    """Read one project."""

    project_id: str


class ProjectReadResponse(Value, frozen=True):
    """The requested project."""

    project: Project


class ProjectUpdateParams(Params, frozen=True):
    """Change the given fields of a project; roots and metadata are replaced as a whole."""

    project_id: str
    metadata: dict[str, str] | None = None
    name: str | None = None
    roots: list[ProjectRoot] | None = None


class ProjectUpdateResponse(Value, frozen=True):
    """The project after the change."""

    project: Project


class ThreadProjectUpdatedNotification(Value, frozen=True):
    """A thread moved to another project, or out of any if the id is null."""

    project_id: str | None
    thread_id: str
