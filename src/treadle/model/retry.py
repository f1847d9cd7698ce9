"""Decides when to retry a model request, so that no part of the response is delivered twice.

A refused request is retried. So is a stream that broke before an item was finished, after a
`Restarted` event that makes the caller discard its partial items. Once an item is finished, the
caller has acted on it: another request, with that item in the history, is up to the caller.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec import Struct

from treadle.model.base import (
    PREAMBLE,
    ItemDone,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    Restarted,
)
from treadle.model.errors import too_many_attempts


class RetryPolicy(Struct, frozen=True):
    """How often to retry, and how long to wait in between."""

    request_max_retries: int = 4
    stream_max_retries: int = 5
    first_delay_s: float = 0.2
    max_delay_s: float = 30.0
    # If a provider asks for a longer delay than this, its error is reported instead.
    max_retry_after_s: float = 300.0
    # Whether to retry a stream that broke in the middle of an item.
    may_restart: bool = True


class Retry(Struct, frozen=True):
    """An attempt failed; the next one follows after the delay."""

    attempt: int
    max: int
    delay_s: float
    error: ModelError


OnRetry = Callable[[Retry], Awaitable[None] | None]


async def stream_with_retries(
    model: Model,
    request: ModelRequest,
    *,
    policy: RetryPolicy,
    on_retry: OnRetry | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    rng: Callable[[], float] = random.random,
) -> AsyncGenerator[ModelEvent, None]:
    """Retry until the model has responded or no retries are left.

    Raises:
        ModelError: the error of the last attempt.
    """
    attempts = {"request": 0, "stream": 0}
    while True:
        emitted = has_item = False
        try:
            async with aclosing(model.stream(request)) as events:
                async for event in events:
                    if not emitted and not isinstance(event, PREAMBLE):
                        emitted = True
                    if isinstance(event, ItemDone):
                        has_item = True
                    yield event
            return
        except ModelError as error:
            error.emitted = emitted
            attempts[error.phase] += 1
            retry = _next(error, attempts[error.phase], policy, rng, has_item=has_item)
            if retry is None:
                raise _final(error) from error
        await _announce(retry, on_retry)
        await sleep(retry.delay_s)
        if emitted:
            yield Restarted()


def _next(
    error: ModelError,
    attempt: int,
    policy: RetryPolicy,
    rng: Callable[[], float],
    *,
    has_item: bool,
) -> Retry | None:
    most = policy.request_max_retries if error.phase == "request" else policy.stream_max_retries
    if not error.is_retryable or has_item or attempt > most:
        return None
    if error.emitted and not policy.may_restart:
        return None
    asked = error.retry_after_s
    if asked is not None and asked > policy.max_retry_after_s:
        return None
    # A jitter of 10 % keeps clients that failed together from retrying together.
    backoff = policy.first_delay_s * 2 ** (attempt - 1) * (0.9 + 0.2 * rng())
    delay = min(backoff, policy.max_delay_s)
    return Retry(attempt, most, delay if asked is None else max(asked, 0.0), error)


def _final(error: ModelError) -> ModelError:
    is_refused = error.http_status == 429 and error.is_retryable
    return too_many_attempts(error) if is_refused else error


async def _announce(retry: Retry, on_retry: OnRetry | None) -> None:
    if on_retry is not None:
        pending = on_retry(retry)
        if pending is not None:
            await pending
