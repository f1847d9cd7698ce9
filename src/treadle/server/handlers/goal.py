"""A thread's goal."""

from __future__ import annotations

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import ThreadNotLoaded
from treadle.engine.settings import RunSettings
from treadle.engine.thread import LoadedThread
from treadle.jsonrpc.errors import InvalidRequest
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_GOAL_CLEAR,
    THREAD_GOAL_GET,
    THREAD_GOAL_SET,
)
from treadle.protocol.goal import (
    ThreadGoalClearParams,
    ThreadGoalClearResponse,
    ThreadGoalGetParams,
    ThreadGoalGetResponse,
    ThreadGoalSetParams,
    ThreadGoalSetResponse,
)
from treadle.server.session import ClientSession
from treadle.store.journal import ThreadNotFound

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(THREAD_GOAL_SET)
def thread_goal_set(
    ctx: Context[ClientSession], params: ThreadGoalSetParams
) -> ThreadGoalSetResponse:
    """Set or change the goal; an active goal starts turns."""
    thread = _stored(ctx, params.thread_id)
    goal = thread.goals.set(params.objective, params.status, params.token_budget)
    if thread.goals.is_active:
        ctx.after_reply(thread.pursue_goal)
    return ThreadGoalSetResponse(goal)


@router.request(THREAD_GOAL_GET)
async def thread_goal_get(
    ctx: Context[ClientSession], params: ThreadGoalGetParams
) -> ThreadGoalGetResponse:
    """Return the goal of a thread, loaded or not."""
    threads = ctx.session.server.threads
    loaded = threads.find(params.thread_id)
    if loaded is not None:
        check_goals(loaded.settings)
        return ThreadGoalGetResponse(loaded.goals.current)
    try:
        return ThreadGoalGetResponse((await threads.stored.read(params.thread_id)).goal)
    except ThreadNotFound as error:
        raise ThreadNotLoaded(params.thread_id) from error


@router.request(THREAD_GOAL_CLEAR)
def thread_goal_clear(
    ctx: Context[ClientSession], params: ThreadGoalClearParams
) -> ThreadGoalClearResponse:
    """Remove the goal."""
    return ThreadGoalClearResponse(_stored(ctx, params.thread_id).goals.clear())


def check_goals(settings: RunSettings) -> None:
    """Refuse the methods of goals if the feature is off.

    Raises:
        InvalidRequest: it is.
    """
    if not settings.is_enabled("goals"):
        raise InvalidRequest("goals feature is disabled", kind="unsupported", feature="goals")


def _stored(ctx: Context[ClientSession], thread_id: str) -> LoadedThread:
    thread = ctx.session.server.threads.get(thread_id)
    check_goals(thread.settings)
    if thread.meta.ephemeral:
        raise InvalidRequest("an ephemeral thread has no goal", kind="ephemeralThread")
    return thread
