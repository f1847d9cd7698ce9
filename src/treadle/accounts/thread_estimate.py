"""What a thread has cost, as the backend of a ChatGPT account estimates it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treadle.accounts.backend import AccountService, BackendError
from treadle.protocol.base import Int64
from treadle.protocol.thread import ThreadUsage, ThreadUsageBreakdownGroup

MAX_GROUPS: Final = 1000
"""Maximum number of groups that are passed on: combinations of model, effort and speed."""

_NOT_FOUND: Final = 404


class _Group(Struct):
    estimated_usage_credits_micros: Int64
    model: str | None = None
    reasoning_effort: str | None = None
    speed: str | None = None
    net_new_input_tokens: Int64 | None = None
    cached_input_tokens: Int64 | None = None
    input_tokens: Int64 | None = None
    output_tokens: Int64 | None = None
    total_tokens: Int64 | None = None


class _Estimate(Struct):
    thread_id: str
    # Null for a thread that the backend does not know.
    estimated_usage_credits_micros: Int64 | None = None
    estimated_usage_usd_micros: Int64 | None = None
    native_usage_usd_micros: Int64 | None = None
    groups: list[_Group] | None = None


class _Estimates(Struct):
    threads: list[_Estimate]


async def read_thread_usage(backend: AccountService, thread_id: str) -> ThreadUsage | None:
    """Return the estimate for a thread; a backend without the feature has none.

    Raises:
        BackendError: it cannot be read, or is about another thread.
        CredentialsRejected: the login was rejected and cannot be renewed.
    """
    body = {"thread_ids": [thread_id]}
    try:
        answer = await backend.post("usage/thread_usage/query", body, _Estimates)
    except BackendError as error:
        if error.status == _NOT_FOUND:
            return None
        raise
    ids = [each.thread_id for each in answer.threads]
    if len(ids) > 1 or set(ids) - {thread_id}:
        raise BackendError("thread usage returned unexpected threads")
    if not ids or answer.threads[0].estimated_usage_credits_micros is None:
        raise BackendError("thread usage response omitted requested thread")
    return _usage(answer.threads[0], answer.threads[0].estimated_usage_credits_micros)


def _usage(estimate: _Estimate, credits_micros: int) -> ThreadUsage:
    return ThreadUsage(
        estimated_usage_credits_micros=credits_micros,
        groups=[_group(each) for each in (estimate.groups or ())[:MAX_GROUPS]],
        thread_id=estimate.thread_id,
        estimated_usage_usd_micros=estimate.estimated_usage_usd_micros,
        native_usage_usd_micros=estimate.native_usage_usd_micros,
    )


def _group(group: _Group) -> ThreadUsageBreakdownGroup:
    return ThreadUsageBreakdownGroup(
        estimated_usage_credits_micros=group.estimated_usage_credits_micros,
        cached_input_tokens=group.cached_input_tokens,
        input_tokens=group.input_tokens,
        model=group.model,
        net_new_input_tokens=group.net_new_input_tokens,
        output_tokens=group.output_tokens,
        reasoning_effort=group.reasoning_effort,
        speed=group.speed,
        total_tokens=group.total_tokens,
    )
