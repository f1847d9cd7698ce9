"""Sections and projects of threads, as the handlers use them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from sqlite3 import Connection
from typing import TYPE_CHECKING, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from treadle.engine.errors import InvalidInput
from treadle.engine.thread import LoadedThread
from treadle.jsonrpc.errors import InvalidOptions, InvalidRequest
from treadle.protocol.notifications import THREAD_PROJECT_UPDATED
from treadle.protocol.project import ThreadProjectUpdatedNotification
from treadle.protocol.thread_manage import ThreadListParams
from treadle.server.errors import unknown_thread
from treadle.store.journal import BadCursor, StoreError, ThreadNotFound
from treadle.store.organization.errors import InvalidOrganization
from treadle.store.store import Store
from treadle.store.stored_thread import MAX_LIMIT, ThreadPage, ThreadQuery

if TYPE_CHECKING:
    from treadle.server.server import Server

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ChosenThreads(Struct, frozen=True):
    """The threads to which a list is limited, and those that it leaves out."""

    only: Sequence[str] | None = None
    none_of: Sequence[str] | None = None


async def read(store: Store, operation: Callable[[Connection | None], T]) -> T:
    """Run an operation on the organization that changes nothing.

    Raises:
        InvalidOptions: the request is invalid.
    """
    try:
        return await store.organize(lambda: store.organization.read(operation))
    except InvalidOrganization as error:
        raise InvalidOptions(str(error), kind="invalidParams", path=error.path) from error


async def change(store: Store, operation: Callable[[Connection], T]) -> T:
    """Run an operation on the organization as a whole.

    Raises:
        InvalidOptions: the request is invalid; nothing has changed.
    """
    try:
        return await store.organize(lambda: store.organization.change(operation))
    except InvalidOrganization as error:
        raise InvalidOptions(str(error), kind="invalidParams", path=error.path) from error


async def check_thread(server: Server, thread_id: str) -> None:
    """Refuse a thread that does not exist or is not stored.

    Raises:
        InvalidRequest: it cannot be organized.
    """
    loaded = server.threads.find(thread_id)
    if loaded is not None and loaded.meta.ephemeral:
        raise InvalidRequest("an ephemeral thread cannot be organized", kind="ephemeralThread")
    if loaded is not None:
        return
    try:
        await server.threads.stored.read_meta(thread_id)
    except ThreadNotFound as error:
        raise unknown_thread("thread not found", thread_id) from error


# -- lists


async def chosen_threads(store: Store, params: ThreadListParams) -> ChosenThreads:
    """Return the threads that the filters by section and project select.

    Raises:
        InvalidRequest: the order of sections is requested for all threads.
    """
    section, project = params.section_id, params.project_id
    if params.sort_key == "section_position" and not isinstance(section, str):
        # Upstream's text: its clients show it.
        message = "section-position sorting requires a section filter"
        raise InvalidRequest(message, kind="invalidParams", path="sortKey")
    if section is UNSET and project is UNSET:
        return ChosenThreads()

    def choose(connection: Connection | None) -> ChosenThreads:
        only: list[str] | None = None
        none_of: list[str] = []
        for value, table, column in (
            (section, "section_members", "section_id"),
            (project, "project_members", "project_id"),
        ):
            if value is UNSET:
                continue
            order = "position" if table == "section_members" else "thread_id"
            where, values = (f" where {column} = ?", [value]) if value is not None else ("", [])
            sql = f"select thread_id from {table}{where} order by {order}"  # noqa: S608  fixed names
            rows = [] if connection is None else connection.execute(sql, values).fetchall()
            found = [thread_id for (thread_id,) in rows]
            if value is None:
                none_of += found
            elif only is None:
                only = found
            else:
                both = set(found)
                only = [each for each in only if each in both]
        return ChosenThreads(only, none_of)

    return await read(store, choose)


def page_of_section(store: Store, query: ThreadQuery) -> ThreadPage:
    """Return a page of threads in the order of their section; the cursor is the last id.

    Raises:
        BadCursor: no thread of the section has this id.
    """
    places = {thread_id: at for at, thread_id in enumerate(query.only_ids or ())}
    found = replace(query, cursor=None, limit=MAX_LIMIT)
    metas = []
    while True:
        page = store.list(found)
        metas += page.data
        if page.next_cursor is None:
            break
        found = replace(found, cursor=page.next_cursor)
    metas.sort(key=lambda meta: places[meta.id], reverse=query.sort_direction == "desc")
    start = 0
    if query.cursor is not None:
        ids = [meta.id for meta in metas]
        if query.cursor not in ids:
            raise BadCursor(query.cursor)
        start = ids.index(query.cursor) + 1
    limit = min(max(query.limit or 25, 1), MAX_LIMIT)
    data = metas[start : start + limit]
    is_last = start + limit >= len(metas)
    return ThreadPage(data, next_cursor=None if is_last else data[-1].id)


# -- projects


async def check_project(server: Server, project_id: str | None, *, is_ephemeral: bool) -> None:
    """Refuse a project that does not exist, and a project for an ephemeral thread.

    Raises:
        InvalidInput: the project cannot be used.
    """
    if is_ephemeral:
        raise InvalidInput("projectId", "an ephemeral thread cannot belong to a project")
    if project_id is None:
        return
    from treadle.store.organization.projects import find_project

    try:
        await read(server.threads.store, lambda connection: find_project(connection, project_id))
    except InvalidOptions as error:
        raise InvalidInput("projectId", error.message) from error


async def assign_project(
    server: Server, thread_ids: Sequence[str], project_id: str | None
) -> Callable[[], None]:
    """Add threads to a project, or remove them from theirs; return what notifies the clients."""
    from treadle.store.organization.projects import assign_to_project

    store = server.threads.store
    await change(store, lambda connection: assign_to_project(connection, thread_ids, project_id))
    return partial(_publish_project, server, thread_ids, project_id)


def _publish_project(server: Server, thread_ids: Sequence[str], project_id: str | None) -> None:
    for thread_id in thread_ids:
        updated = ThreadProjectUpdatedNotification(project_id, thread_id)
        server.threads.services.broadcast(THREAD_PROJECT_UPDATED, updated)


async def join_project(server: Server, thread: LoadedThread, project_id: str) -> None:
    """Add a new thread to a project."""
    await assign_project(server, [thread.id], project_id)


async def inherit_project(server: Server, source_id: str, thread: LoadedThread) -> None:
    """Add a fork to the project of its source."""
    store = server.threads.store
    await store.refresh_placements()
    project_id = store.placement(source_id).project_id
    if project_id is None or thread.meta.ephemeral:
        return
    try:
        await assign_project(server, [thread.id], project_id)
    except (InvalidOptions, StoreError) as error:
        # The fork exists: an error would only make the client fork again.
        extra = {"thread_id": thread.id, "reason": str(error)}
        logger.warning("fork without its project", extra=extra)


async def forget_thread(store: Store, thread_id: str) -> None:
    """Remove a deleted thread from its section and project, with its attachments."""
    if not (store.home / "organization.sqlite").exists():
        return
    try:
        await store.organize(lambda: store.organization.forget(thread_id))
    except StoreError as error:
        # The thread is gone, and no other one ever has its id.
        extra = {"thread_id": thread_id, "reason": str(error)}
        logger.warning("thread remains in the organization", extra=extra)
