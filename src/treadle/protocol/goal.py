"""The goal of a thread."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import Int64, Params, Value

ThreadGoalStatus = Literal[
    "active", "paused", "blocked", "usageLimited", "budgetLimited", "complete"
]


class ThreadGoal(Value, frozen=True):
    """The objective of a thread, its state and its cost so far; times in seconds."""

    created_at: Int64
    objective: str
    status: ThreadGoalStatus
    thread_id: str
    time_used_seconds: Int64
    tokens_used: Int64
    updated_at: Int64
    token_budget: Int64 | None = None


ThreadGoalMutationOrigin = Literal["user", "automatic"]
"""Whether the user requested the change; when absent, do not assume so."""


class ThreadGoalClearParams(Params, frozen=True):
    """Clear a thread's goal."""

    thread_id: str
    origin: ThreadGoalMutationOrigin | None = None


class ThreadGoalClearResponse(Value, frozen=True):
    """Whether there was a goal to clear."""

    cleared: bool


class ThreadGoalClearedNotification(Value, frozen=True):
    """A thread has no goal; also sent on resume so that clients discard a stale one."""

    thread_id: str


class ThreadGoalGetParams(Params, frozen=True):
    """Read a thread's goal."""

    thread_id: str


class ThreadGoalGetResponse(Value, frozen=True):
    """The goal, or null if the thread has none."""

    goal: ThreadGoal | None = None


class ThreadGoalSetParams(Params, frozen=True):
    """Set or change a thread's goal; omitted fields are unchanged."""

    thread_id: str
    objective: str | None = None
    origin: ThreadGoalMutationOrigin | None = None
    status: ThreadGoalStatus | None = None
    token_budget: Int64 | UnsetType | None = UNSET


class ThreadGoalSetResponse(Value, frozen=True):
    """The goal after the change."""

    goal: ThreadGoal


class ThreadGoalUpdatedNotification(Value, frozen=True):
    """A thread's goal changed; the turn is named if one caused it."""

    goal: ThreadGoal
    thread_id: str
    turn_id: str | None = None
