"""A failed attempt is retried only while nothing would be published twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
import pytest

from tests.model.double import request
from treadle.model.base import Model, ModelError, ModelEvent, ModelRequest, ModelTextDelta
from treadle.model.retry import Retry, RetryPolicy, stream_with_retries
from treadle.model.scripted.model import ScriptedModel, drops, fails, says
from treadle.model.scripted.script import ScriptLike
from treadle.protocol.error import CodexErrorInfoDetail, HttpStatus

BUSY = fails("busy", info="serverOverloaded", status=503, is_retryable=True)


class Run:
    """One call with retries: the events, the announced retries, the delays."""

    def __init__(self, script: ScriptLike, **policy: int) -> None:
        self.model: Model = ScriptedModel(script)
        self.policy = msgspec.convert(policy, RetryPolicy)
        self.events: list[ModelEvent] = []
        self.retries: list[Retry] = []
        self.slept: list[float] = []

    async def play(self) -> Run:
        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        stream = stream_with_retries(
            self.model,
            request(),
            policy=self.policy,
            on_retry=self.retries.append,
            sleep=sleep,
            rng=lambda: 0.5,
        )
        async for event in stream:
            self.events.append(event)
        return self

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


async def test_a_refused_request_is_retried_with_growing_delays() -> None:
    run = await Run([BUSY, BUSY, BUSY, "done"]).play()
    assert run.slept == pytest.approx([0.2, 0.4, 0.8])
    assert [(retry.attempt, retry.max) for retry in run.retries] == [(1, 4), (2, 4), (3, 4)]
    assert [str(retry.error) for retry in run.retries] == ["busy"] * 3
    assert run.kinds == ["Created", "ItemStarted", "ItemDone", "Completed"]


async def test_jitter_is_a_tenth_either_way() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    for rng in (lambda: 0.0, lambda: 1.0):
        model = ScriptedModel([BUSY, "done"])
        policy = RetryPolicy()
        stream = stream_with_retries(model, request(), policy=policy, sleep=sleep, rng=rng)
        assert [event async for event in stream]
    assert slept == pytest.approx([0.18, 0.22])


async def test_retries_are_limited() -> None:
    run = Run([BUSY] * 3, request_max_retries=2)
    with pytest.raises(ModelError, match="busy"):
        await run.play()
    assert len(run.retries) == 2


async def test_the_delay_that_a_provider_requests_is_used_and_visible() -> None:
    limited = fails(info="rateLimitExceeded", status=429, retry_after=7, is_retryable=True)
    run = await Run([limited, "done"]).play()
    assert run.slept == [7]
    assert run.retries[0].delay_s == 7


async def test_a_provider_that_requests_too_long_a_delay_is_not_waited_for() -> None:
    limited = fails(info="rateLimitExceeded", status=429, retry_after=7200, is_retryable=True)
    run = Run([limited, "done"])
    with pytest.raises(ModelError) as caught:
        await run.play()
    assert (caught.value.retry_after_s, run.slept) == (7200, [])


async def test_too_many_429_have_their_own_cause() -> None:
    """Upstream: also when retries are turned off."""
    limited = fails("slow", info="rateLimitExceeded", status=429, is_retryable=True)
    with pytest.raises(ModelError) as caught:
        await Run([limited], request_max_retries=0).play()
    error = caught.value
    assert error.message == "exceeded retry limit, last status: 429 Too Many Requests"
    assert error.details == "slow"
    assert error.info == CodexErrorInfoDetail(
        response_too_many_failed_attempts=HttpStatus(http_status_code=429)
    )


async def test_errors_that_cannot_be_fixed_by_a_retry_are_not_retried() -> None:
    run = Run([fails("no", info="badRequest", status=400), "done"])
    with pytest.raises(ModelError, match="no"):
        await run.play()
    assert run.retries == []


async def test_a_stream_that_broke_before_its_first_event_is_retried() -> None:
    run = await Run([drops(), drops(), "whole"]).play()
    assert run.kinds == ["Created", "Created", "Created", "ItemStarted", "ItemDone", "Completed"]
    assert [(retry.attempt, retry.max) for retry in run.retries] == [(1, 5), (2, 5)]


class Interrupted:
    """Breaks off in the middle of its first message."""

    provider_id = "interrupted"

    def __init__(self) -> None:
        self._model = ScriptedModel([says("half", deltas=["ha", "lf"]), "whole"])

    async def stream(self, model_request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Play, and break off after the first delta of the first request."""
        is_first = not self._model.requests
        async with aclosing(self._model.stream(model_request)) as events:
            async for event in events:
                yield event
                if is_first and isinstance(event, ModelTextDelta):
                    raise ModelError("cut", is_retryable=True, phase="stream")

    async def list_models(self) -> None:
        """Return an empty list."""

    async def close(self) -> None:
        """Do nothing."""


async def test_a_stream_that_broke_inside_an_item_restarts_and_announces_it() -> None:
    run = Run([])
    run.model = Interrupted()
    await run.play()
    assert run.kinds == [
        "Created",
        "ItemStarted",
        "ModelTextDelta",
        "Restarted",
        "Created",
        "ItemStarted",
        "ItemDone",
        "Completed",
    ]
    assert run.retries[0].error.emitted


async def test_a_policy_can_forbid_a_restart() -> None:
    run = Run([], may_restart=False)
    run.model = Interrupted()
    with pytest.raises(ModelError, match="cut"):
        await run.play()


async def test_after_a_completed_item_the_retry_is_left_to_the_caller() -> None:
    run = Run([["whole", drops()], "again"])
    with pytest.raises(ModelError) as caught:
        await run.play()
    assert (caught.value.emitted, run.retries) == (True, [])


async def test_closing_the_stream_closes_the_attempt() -> None:
    closed = []

    class Watched(Interrupted):
        """Records when its stream is closed."""

        async def stream(self, model_request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            """Play, and record the end."""
            try:
                async for event in self._model.stream(model_request):
                    yield event
            finally:
                closed.append(True)

    stream = stream_with_retries(Watched(), request(), policy=RetryPolicy())
    await anext(stream)
    await stream.aclose()
    assert closed == [True]


async def test_an_announcement_may_be_awaited() -> None:
    announced: list[Retry] = []

    async def announce(retry: Retry) -> None:
        announced.append(retry)

    model = ScriptedModel([BUSY, "done"])
    policy = RetryPolicy(first_delay_s=0)
    stream = stream_with_retries(model, request(), policy=policy, on_retry=announce)
    assert [event async for event in stream]
    assert len(announced) == 1
