"""Fuzzy search for files by name: once, or as a session that follows what a user types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InternalError, InvalidParams, InvalidRequest
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    FUZZY_FILE_SEARCH,
    FUZZY_FILE_SEARCH_SESSION_START,
    FUZZY_FILE_SEARCH_SESSION_STOP,
    FUZZY_FILE_SEARCH_SESSION_UPDATE,
)
from treadle.protocol.fuzzy_file_search import (
    FuzzyFileSearchParams,
    FuzzyFileSearchResponse,
    FuzzyFileSearchResult,
    FuzzyFileSearchSessionCompletedNotification,
    FuzzyFileSearchSessionStartParams,
    FuzzyFileSearchSessionStartResponse,
    FuzzyFileSearchSessionStopParams,
    FuzzyFileSearchSessionStopResponse,
    FuzzyFileSearchSessionUpdatedNotification,
    FuzzyFileSearchSessionUpdateParams,
    FuzzyFileSearchSessionUpdateResponse,
)
from treadle.protocol.notifications import (
    FUZZY_FILE_SEARCH_SESSION_COMPLETED,
    FUZZY_FILE_SEARCH_SESSION_UPDATED,
)
from treadle.server.folder_limits import check_folders
from treadle.server.query_limits import check_term
from treadle.server.session import ClientSession

if TYPE_CHECKING:
    from treadle.server.file_search.searches import SearchSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_SESSIONS: Final = 16
"""Maximum number of search sessions of one client."""

MAX_QUERY: Final = 4096
"""Maximum number of characters of a query; no path is longer."""

MAX_WORDS: Final = 100
"""Maximum number of words of a query: each is compared with every path."""


@router.request(FUZZY_FILE_SEARCH)
async def fuzzy_file_search(
    ctx: Context[ClientSession], params: FuzzyFileSearchParams
) -> FuzzyFileSearchResponse:
    """Return the files whose paths match a query best."""
    _check_query(params.query)
    _check_roots(params.roots)
    check_term(params.cancellation_token or "", "cancellationToken")
    searches = ctx.session.file_searches
    files = await searches.search(params.query, params.roots, params.cancellation_token)
    return FuzzyFileSearchResponse(files)


@router.request(FUZZY_FILE_SEARCH_SESSION_START)
def fuzzy_file_search_session_start(
    ctx: Context[ClientSession], params: FuzzyFileSearchSessionStartParams
) -> FuzzyFileSearchSessionStartResponse:
    """Start a session; one with the same id ends."""
    from treadle.server.file_search.searches import SearchSession

    session = ctx.session
    if not params.session_id:
        raise InvalidRequest("sessionId must not be empty", kind="invalidParams", path="sessionId")
    check_term(params.session_id, "sessionId")
    _check_roots(params.roots)
    if not params.roots:
        message = "at least one search directory is required"
        raise InternalError(f"failed to start fuzzy file search session: {message}", path="roots")
    _stop(session, params.session_id)
    if len(session.search_sessions) >= MAX_SESSIONS:
        message = f"too many search sessions: a client may have at most {MAX_SESSIONS}"
        raise InvalidRequest(message, kind="tooManySessions", limit=MAX_SESSIONS)
    search = SearchSession(params.roots, session.search_workers, session.found_files)
    session.search_sessions[params.session_id] = search
    ctx.after_reply(partial(_follow, ctx, params.session_id, search))
    return FuzzyFileSearchSessionStartResponse()


@router.request(FUZZY_FILE_SEARCH_SESSION_UPDATE)
def fuzzy_file_search_session_update(
    ctx: Context[ClientSession], params: FuzzyFileSearchSessionUpdateParams
) -> FuzzyFileSearchSessionUpdateResponse:
    """Change what a session searches for."""
    _check_query(params.query)
    search = ctx.session.search_sessions.get(params.session_id)
    if search is None:
        raise InvalidRequest(f"fuzzy file search session not found: {params.session_id}")
    ctx.after_reply(partial(search.update, params.query))
    return FuzzyFileSearchSessionUpdateResponse()


@router.request(FUZZY_FILE_SEARCH_SESSION_STOP)
def fuzzy_file_search_session_stop(
    ctx: Context[ClientSession], params: FuzzyFileSearchSessionStopParams
) -> FuzzyFileSearchSessionStopResponse:
    """End a session; an unknown one has already ended."""
    _stop(ctx.session, params.session_id)
    return FuzzyFileSearchSessionStopResponse()


def _check_query(query: str) -> None:
    if len(query) > MAX_QUERY:
        message = f"query must have at most {MAX_QUERY} characters, not {len(query)}"
        raise InvalidParams(message, path="query")
    if (count := len(query.split())) > MAX_WORDS:
        message = f"query must have at most {MAX_WORDS} words, not {count}"
        raise InvalidParams(message, path="query")


def _check_roots(roots: Sequence[str]) -> None:
    check_folders(roots, "roots")
    for index, root in enumerate(roots):
        if "\0" in root:
            message = f"Invalid request: roots[{index}] must be a path, without a NUL character"
            raise InvalidParams(message, path=f"roots[{index}]")


def _stop(session: ClientSession, session_id: str) -> None:
    search = session.search_sessions.pop(session_id, None)
    if search is not None:
        search.stop()


def _follow(ctx: Context[ClientSession], session_id: str, search: SearchSession) -> None:
    session = ctx.session

    async def publish(query: str, files: list[FuzzyFileSearchResult]) -> None:
        params = FuzzyFileSearchSessionUpdatedNotification(files, query, session_id)
        await session.notify(FUZZY_FILE_SEARCH_SESSION_UPDATED, params)

    async def complete() -> None:
        params = FuzzyFileSearchSessionCompletedNotification(session_id)
        await session.notify(FUZZY_FILE_SEARCH_SESSION_COMPLETED, params)

    ctx.connection.spawn(search.run(publish, complete), f"file search {session_id}")
