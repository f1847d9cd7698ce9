"""Single answers of a thread's model that become no part of the thread."""

from __future__ import annotations

import asyncio
from typing import Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.accounting.budget import BudgetExceeded
from treadle.engine.errors import InvalidInput
from treadle.engine.thread import LoadedThread
from treadle.jsonrpc.errors import InternalError, InvalidRequest
from treadle.model.base import ModelError
from treadle.protocol.client_requests import CLIENT_REQUESTS, THREAD_SAMPLE, THREAD_SAMPLE_CANCEL
from treadle.protocol.sample import (
    ThreadSampleCancelParams,
    ThreadSampleCancelResponse,
    ThreadSampleParams,
    ThreadSampleResponse,
)
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_PROMPT_BYTES: Final = 4000
MAX_SAMPLES: Final = 16
"""The maximum number of samples of one client at the same time."""


@router.request(THREAD_SAMPLE)
async def thread_sample(
    ctx: Context[ClientSession], params: ThreadSampleParams
) -> ThreadSampleResponse:
    """Ask the model of a loaded thread one question; the thread does not change."""
    from treadle.engine.conversation.sample import sample

    session, id_ = ctx.session, ctx.answered_id
    if not params.expected_turn_id or not params.prompt or _size(params.prompt) > MAX_PROMPT_BYTES:
        limit = f"a prompt of at most {MAX_PROMPT_BYTES} bytes"
        raise InvalidInput("prompt", f"thread/sample requires expectedTurnId and {limit}")
    thread = session.server.threads.find(params.thread_id)
    if thread is None:
        raise InvalidInput("threadId", "thread/sample requires a loaded source")
    if id_ in session.samples:
        raise InvalidRequest("the id of the request is that of a sample which has not ended")
    if len(session.samples) >= MAX_SAMPLES:
        raise InvalidRequest(f"a client may have {MAX_SAMPLES} samples", kind="unsupported")
    scope = session.samples[id_] = asyncio.timeout(None)
    try:
        async with scope:
            await _check_source(session, thread, params)
            answer = await sample(thread, params.prompt, effort=params.effort)
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise InternalError("sample canceled", kind="cancelled") from error
    except ModelError as error:
        raise InternalError(error.message, kind="model", codexErrorInfo=error.info) from error
    except BudgetExceeded as error:
        raise InvalidRequest(str(error), kind="budgetExceeded") from error
    finally:
        session.samples.pop(id_, None)
    usage = answer.usage
    return ThreadSampleResponse(
        response_id=answer.response_id,
        source_turn_id=params.expected_turn_id,
        cached_input_tokens=usage.cached_input_tokens if usage else None,
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        text=answer.text,
    )


@router.request(THREAD_SAMPLE_CANCEL)
def thread_sample_cancel(
    ctx: Context[ClientSession], params: ThreadSampleCancelParams
) -> ThreadSampleCancelResponse:
    """Cancel a sample of this client; one that has ended needs no action."""
    scope = ctx.session.samples.get(params.request_id)
    if scope is not None:
        scope.reschedule(asyncio.get_running_loop().time())
    return ThreadSampleCancelResponse()


async def _check_source(
    session: ClientSession, thread: LoadedThread, params: ThreadSampleParams
) -> None:
    """Check that the caller knows the latest turn of the thread."""
    active = thread.turn
    if active is not None:
        if not params.allow_in_progress_turn:
            raise InvalidInput("threadId", "sample source must be idle")
        latest: str | None = active.id
    else:
        stored = await session.server.threads.stored.read(thread.id, None)
        latest = stored.turns[-1].id if stored.turns else None
    if latest != params.expected_turn_id:
        message = "sample source turn must be the latest finished turn"
        raise InvalidInput("expectedTurnId", message)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
