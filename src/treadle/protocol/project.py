"""Projects that group threads."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import AbsolutePathBuf, Int64, Params, SortDirection, UInt32, Value


class ProjectRoot(Value, frozen=True):
    """A folder that belongs to a project."""

    path: AbsolutePathBuf


class Project(Value, frozen=True):
    """A named set of folders under which threads are gathered; times are Unix seconds."""

    created_at: Int64
    id: str
    metadata: dict[str, str]
    name: str
    position: Int64
    roots: list[ProjectRoot]
    updated_at: Int64
    # Recency of the newest member thread that is not archived; null without one.
    recency_at: Int64 | None = None


ProjectChangeType = Literal["created", "updated", "deleted"]


class ProjectChangedNotification(Value, frozen=True):
    """A project came, changed (moving counts) or went; read it again to see how."""

    change_type: ProjectChangeType
    project_id: str


class ProjectCreateParams(Params, frozen=True):
    """Make a project, placed last; a retry with the same key makes no second one."""

    idempotency_key: str
    name: str
    roots: list[ProjectRoot]
    metadata: dict[str, str] | None = None


class ProjectCreateResponse(Value, frozen=True):
    """The project that was made, or the earlier one with the same key."""

    project: Project


class ProjectDeleteParams(Params, frozen=True):
    """Remove a project for good."""

    project_id: str


class ProjectDeleteResponse(Value, frozen=True):
    """The project is gone."""


class ProjectImportParams(Params, frozen=True):
    """Make a project and take threads that exist already into it."""

    idempotency_key: str
    name: str
    roots: list[ProjectRoot]
    metadata: dict[str, str] | None = None
    threads: list[str] | None = None


class ProjectImportResponse(Value, frozen=True):
    """The project that now holds the imported threads."""

    project: Project


ProjectSortKey = Literal["position", "recencyAt"]


class ProjectListParams(Params, frozen=True):
    """Page through the projects, by their position unless asked for recency."""

    cursor: str | None = None
    limit: UInt32 | None = None
    # Only together with sort_key; ascending for positions, descending for recency.
    sort_direction: SortDirection | None = None
    sort_key: ProjectSortKey | None = None


class ProjectListResponse(Value, frozen=True):
    """One page of projects; no cursor means that it is the last."""

    data: list[Project]
    next_cursor: str | None = None


class ProjectMoveParams(Params, frozen=True):
    """Put a project before another one, or last when none is named."""

    project_id: str
    before_project_id: str | None = None


class ProjectMoveResponse(Value, frozen=True):
    """The project stands where it was asked to."""


class ProjectReadParams(Params, frozen=True):
    """Fetch one project."""

    project_id: str


class ProjectReadResponse(Value, frozen=True):
    """The project that was asked for."""

    project: Project


class ProjectUpdateParams(Params, frozen=True):
    """Change what is given of a project; roots and metadata are replaced as a whole."""

    project_id: str
    metadata: dict[str, str] | None = None
    name: str | None = None
    roots: list[ProjectRoot] | None = None


class ProjectUpdateResponse(Value, frozen=True):
    """The project as it is after the change."""

    project: Project


class ThreadProjectUpdatedNotification(Value, frozen=True):
    """A thread moved to another project, or out of any when the id is null."""

    project_id: str | None
    thread_id: str
