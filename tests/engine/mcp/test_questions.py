"""The time of a call while questions to the user are open."""

from __future__ import annotations

import asyncio

import pytest

from treadle.engine.mcp.connection.limits import MAX_QUESTIONS
from treadle.engine.mcp.questions import CallTime


async def test_the_timeout_continues_when_the_last_open_elicitation_closes() -> None:
    call = CallTime(600)
    async with call.limit:
        deadline = call.limit.when()
        call.pause()
        call.pause()
        call.resume()
        assert call.limit.when() is None
        call.resume()
        # Later by the time in which a question was open, and not by more.
        assert deadline is not None
        assert deadline <= (call.limit.when() or 0) < deadline + 600


async def test_a_call_ends_with_its_first_elicitation_beyond_the_limit() -> None:
    call = CallTime(600)
    allowed: list[bool] = []

    async def wait() -> None:
        async with call.limit:
            allowed.extend(call.count_question() for _ in range(MAX_QUESTIONS + 1))
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait()
    assert allowed == [True] * MAX_QUESTIONS + [False]
    assert call.has_too_many_questions


async def test_an_elicitation_may_be_closed_after_its_call() -> None:
    call = CallTime(600)
    async with call.limit:
        call.pause()
    call.resume()
