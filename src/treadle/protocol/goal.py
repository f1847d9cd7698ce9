"""A thread's standing goal."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import Int64, Params, Value

ThreadGoalStatus = Literal[
    "active", "paused", "blocked", "usageLimited", "budgetLimited", "complete"
]


class ThreadGoal(Value, frozen=True):
    """What a thread keeps working towards, how it stands and what it has cost; times in seconds."""

    created_at: Int64
    objective: str
    status: ThreadGoalStatus
    thread_id: str
    time_used_seconds: Int64
    tokens_used: Int64
    updated_at: Int64
    token_budget: Int64 | None = None


ThreadGoalMutationOrigin = Literal["user", "automatic"]
"""Whether the user wished the change; when absent, do not assume so."""


class ThreadGoalClearParams(Params, frozen=True):
    """Drop a thread's goal."""

    thread_id: str
    origin: ThreadGoalMutationOrigin | None = None


class ThreadGoalClearResponse(Value, frozen=True):
    """Whether there was a goal to drop."""

    cleared: bool


class ThreadGoalClearedNotification(Value, frozen=True):
    """A thread has no goal; also sent on resume so that clients drop a stale one."""

    thread_id: str


class ThreadGoalGetParams(Params, frozen=True):
    """Ask for a thread's goal."""

    thread_id: str


class ThreadGoalGetResponse(Value, frozen=True):
    """The goal, or null if the thread has none."""

    goal: ThreadGoal | None = None


class ThreadGoalSetParams(Params, frozen=True):
    """Give a thread a goal or change the one it has; fields left out stay as they are."""

    thread_id: str
    objective: str | None = None
    origin: ThreadGoalMutationOrigin | None = None
    status: ThreadGoalStatus | None = None
    token_budget: Int64 | UnsetType | None = UNSET


class ThreadGoalSetResponse(Value, frozen=True):
    """The goal as it stands after the change."""

    goal: ThreadGoal


class ThreadGoalUpdatedNotification(Value, frozen=True):
    """A thread's goal changed; the turn is named if one caused it."""

    goal: ThreadGoal
    thread_id: str
    turn_id: str | None = None
