"""Projects, to which threads belong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from sqlite3 import Connection

from msgspec.structs import replace

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InvalidOptions
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    PROJECT_CREATE,
    PROJECT_DELETE,
    PROJECT_IMPORT,
    PROJECT_LIST,
    PROJECT_MOVE,
    PROJECT_READ,
    PROJECT_UPDATE,
)
from treadle.protocol.notifications import PROJECT_CHANGED, THREAD_PROJECT_UPDATED
from treadle.protocol.project import (
    Project,
    ProjectChangedNotification,
    ProjectChangeType,
    ProjectCreateParams,
    ProjectCreateResponse,
    ProjectDeleteParams,
    ProjectDeleteResponse,
    ProjectImportParams,
    ProjectImportResponse,
    ProjectListParams,
    ProjectListResponse,
    ProjectMoveParams,
    ProjectMoveResponse,
    ProjectReadParams,
    ProjectReadResponse,
    ProjectUpdateParams,
    ProjectUpdateResponse,
    ThreadProjectUpdatedNotification,
)
from treadle.server.organizing import change, check_thread, read
from treadle.server.paging.offset import page
from treadle.server.query_limits import MAX_ALTERNATIVES, check_count
from treadle.server.session import ClientSession
from treadle.store.organization import projects
from treadle.store.store import Store
from treadle.store.stored_thread import ThreadQuery

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(PROJECT_LIST)
async def project_list(
    ctx: Context[ClientSession], params: ProjectListParams
) -> ProjectListResponse:
    """List the projects by position, or by the latest use of a thread."""
    if params.sort_direction is not None and params.sort_key is None:
        # Upstream's text: its clients show it.
        raise InvalidOptions("sortDirection requires sortKey", path="sortDirection")
    store = ctx.session.server.threads.store
    found = await store.organize(partial(_all_with_recency, store))
    key = params.sort_key or "position"
    if key == "recencyAt":
        found.sort(key=lambda each: (each.recency_at or -1, each.id))
    default = "asc" if key == "position" else "desc"
    if (params.sort_direction or default) == "desc":
        found.reverse()
    data, next_cursor = page(found, params.cursor, params.limit, of="projects")
    return ProjectListResponse(data, next_cursor)


@router.request(PROJECT_READ)
async def project_read(
    ctx: Context[ClientSession], params: ProjectReadParams
) -> ProjectReadResponse:
    """Return a project."""
    store = ctx.session.server.threads.store
    found = await read(store, partial(projects.find_project, project_id=params.project_id))
    return ProjectReadResponse(await store.organize(partial(_with_recency, store, found)))


@router.request(PROJECT_CREATE)
async def project_create(
    ctx: Context[ClientSession], params: ProjectCreateParams
) -> ProjectCreateResponse:
    """Create a project; a repeated key returns the one that exists."""
    return ProjectCreateResponse(await _create(ctx, params, []))


@router.request(PROJECT_IMPORT)
async def project_import(
    ctx: Context[ClientSession], params: ProjectImportParams
) -> ProjectImportResponse:
    """Create a project, and add existing threads to it."""
    threads = params.threads or []
    check_count(threads, "threads", MAX_ALTERNATIVES)
    for thread_id in threads:
        await check_thread(ctx.session.server, thread_id)
    return ProjectImportResponse(await _create(ctx, params, threads))


@router.request(PROJECT_UPDATE)
async def project_update(
    ctx: Context[ClientSession], params: ProjectUpdateParams
) -> ProjectUpdateResponse:
    """Change what is given."""
    server = ctx.session.server
    store = server.threads.store
    update = partial(
        projects.update_project,
        project_id=params.project_id,
        name=params.name,
        roots=params.roots,
        metadata=params.metadata,
        now=_now(ctx),
    )
    project, has_changed = await change(store, update)
    if has_changed:
        ctx.after_reply(partial(_publish, ctx, project.id, "updated"))
    return ProjectUpdateResponse(await store.organize(partial(_with_recency, store, project)))


@router.request(PROJECT_MOVE)
async def project_move(
    ctx: Context[ClientSession], params: ProjectMoveParams
) -> ProjectMoveResponse:
    """Move a project before another one, or to the end."""
    move = partial(
        projects.move_project,
        project_id=params.project_id,
        before=params.before_project_id,
        now=_now(ctx),
    )
    await change(ctx.session.server.threads.store, move)
    ctx.after_reply(partial(_publish, ctx, params.project_id, "updated"))
    return ProjectMoveResponse()


@router.request(PROJECT_DELETE)
async def project_delete(
    ctx: Context[ClientSession], params: ProjectDeleteParams
) -> ProjectDeleteResponse:
    """Delete a project; its threads remain."""
    delete = partial(projects.delete_project, project_id=params.project_id)
    await change(ctx.session.server.threads.store, delete)
    ctx.after_reply(partial(_publish, ctx, params.project_id, "deleted"))
    return ProjectDeleteResponse()


async def _create(
    ctx: Context[ClientSession],
    params: ProjectCreateParams | ProjectImportParams,
    threads: Sequence[str],
) -> Project:
    store = ctx.session.server.threads.store

    def create(connection: Connection) -> tuple[Project, bool]:
        project, is_new = projects.create_project(
            connection,
            params.idempotency_key,
            name=params.name,
            roots=params.roots,
            metadata=params.metadata or {},
            now=_now(ctx),
        )
        if is_new:
            projects.assign_to_project(connection, threads, project.id)
        return project, is_new

    project, is_new = await change(store, create)
    if is_new:
        ctx.after_reply(partial(_publish, ctx, project.id, "created"))
        ctx.after_reply(partial(_publish_members, ctx, project.id, threads))
    return await store.organize(partial(_with_recency, store, project))


def _all_with_recency(store: Store) -> list[Project]:
    found = store.organization.read(projects.all_projects)
    return [_with_recency(store, each) for each in found]


def _with_recency(store: Store, project: Project) -> Project:
    """Return a project with the latest use of one of its threads that are not archived."""
    ids = store.organization.read(partial(projects.threads_of, project_id=project.id))
    if not ids:
        return project
    query = ThreadQuery(only_ids=ids, limit=1, sort_key="recency_at", use_state_db_only=True)
    latest = store.list(query).data
    return replace(project, recency_at=latest[0].recency_at if latest else None)


def _publish(ctx: Context[ClientSession], project_id: str, kind: ProjectChangeType) -> None:
    changed = ProjectChangedNotification(kind, project_id)
    ctx.session.server.threads.services.broadcast(PROJECT_CHANGED, changed)


def _publish_members(ctx: Context[ClientSession], project_id: str, threads: Sequence[str]) -> None:
    for thread_id in threads:
        updated = ThreadProjectUpdatedNotification(project_id, thread_id)
        ctx.session.server.threads.services.broadcast(THREAD_PROJECT_UPDATED, updated)


def _now(ctx: Context[ClientSession]) -> int:
    return ctx.session.server.threads.services.clock() // 1000
