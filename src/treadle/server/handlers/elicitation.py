"""Questions that clients ask outside the protocol: timeouts of commands wait for the answers."""

from __future__ import annotations

from typing import Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_DECREMENT_ELICITATION,
    THREAD_INCREMENT_ELICITATION,
)
from treadle.protocol.elicitation import (
    ThreadDecrementElicitationParams,
    ThreadDecrementElicitationResponse,
    ThreadIncrementElicitationParams,
    ThreadIncrementElicitationResponse,
)
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_QUESTIONS: Final = 1000
"""The maximum number of questions of one client that are open at the same time."""


@router.request(THREAD_INCREMENT_ELICITATION)
def thread_increment_elicitation(
    ctx: Context[ClientSession], params: ThreadIncrementElicitationParams
) -> ThreadIncrementElicitationResponse:
    """Pause the timeouts of a thread's commands until the client decrements, or disconnects."""
    session = ctx.session
    thread = session.server.threads.get(params.thread_id)
    if sum(session.questions.values()) >= MAX_QUESTIONS:
        raise InvalidInput("threadId", f"a client may have {MAX_QUESTIONS} open elicitations")
    session.questions[thread] = session.questions.get(thread, 0) + 1
    return ThreadIncrementElicitationResponse(thread.terminals.open_question(), paused=True)


@router.request(THREAD_DECREMENT_ELICITATION)
def thread_decrement_elicitation(
    ctx: Context[ClientSession], params: ThreadDecrementElicitationParams
) -> ThreadDecrementElicitationResponse:
    """Undo an increment of this client."""
    session = ctx.session
    thread = session.server.threads.get(params.thread_id)
    open_count = session.questions.pop(thread, 0)
    if not open_count:
        raise InvalidInput("threadId", "out-of-band elicitation count is already zero")
    if open_count > 1:
        session.questions[thread] = open_count - 1
    count = thread.terminals.close_question()
    return ThreadDecrementElicitationResponse(count, paused=count > 0)
