"""The goal of a thread: while it is active, each finished turn starts another one."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from treadle.engine.errors import InvalidInput
from treadle.engine.events.log import EventLog
from treadle.engine.turn import ActiveTurn
from treadle.model.base import MAX_TOKENS
from treadle.protocol import notifications as n
from treadle.protocol.goal import (
    ThreadGoal,
    ThreadGoalClearedNotification,
    ThreadGoalStatus,
    ThreadGoalUpdatedNotification,
)
from treadle.store.records import GoalChanged
from treadle.support.clock import NowMs

MAX_CONTINUATIONS: Final = 100
"""The maximum number of consecutive turns that a goal starts without a user."""
MAX_OBJECTIVE_CHARACTERS: Final = 4096
"""The length of an objective: it is stored with each turn, and each of these turns shows it."""

# The status of the goal after a failed turn, by cause.
_BY_CAUSE: Final[dict[str, ThreadGoalStatus]] = {
    "usageLimitExceeded": "usageLimited",
    "sessionBudgetExceeded": "budgetLimited",
}


class Goals:
    """The goal of one thread; every change is stored and published."""

    def __init__(
        self, thread_id: str, log: EventLog, clock: NowMs, goal: ThreadGoal | None
    ) -> None:
        self.current = goal
        self._thread_id = thread_id
        self._log = log
        self._clock = clock
        self._continuations = 0

    @property
    def is_active(self) -> bool:
        """Whether the goal starts further turns."""
        return self.current is not None and self.current.status == "active"

    def set(
        self,
        objective: str | None = None,
        status: ThreadGoalStatus | None = None,
        token_budget: int | UnsetType | None = UNSET,
        *,
        turn_id: str | None = None,
    ) -> ThreadGoal:
        """Set a goal, or change the current one.

        Raises:
            InvalidInput: there is no goal to change, the objective is blank or too long, or the
                budget is not one.
            StorageFailed: the goal cannot be stored, and stays as it is.
        """
        if objective is not None and not objective.strip():
            raise InvalidInput("objective", "goal objective must not be empty")
        if objective is not None and len(objective) > MAX_OBJECTIVE_CHARACTERS:
            limit = f"at most {MAX_OBJECTIVE_CHARACTERS} characters, not {len(objective)}"
            raise InvalidInput("objective", f"objective must have {limit}")
        if isinstance(token_budget, int) and not 0 < token_budget <= MAX_TOKENS:
            raise InvalidInput("tokenBudget", f"tokenBudget must be between 1 and {MAX_TOKENS}")
        now = self._clock() // 1000
        goal = self.current
        if objective is not None:
            goal = ThreadGoal(
                created_at=now,
                objective=objective,
                status="active",
                thread_id=self._thread_id,
                time_used_seconds=0,
                tokens_used=0,
                updated_at=now,
            )
        if goal is None:
            reason = f"cannot update goal for thread {self._thread_id}: no goal exists"
            raise InvalidInput("objective", reason)
        changed = msgspec.structs.replace(goal, updated_at=now, status=status or goal.status)
        if not isinstance(token_budget, UnsetType):
            changed = msgspec.structs.replace(changed, token_budget=token_budget)
        self._log.store(GoalChanged(changed))
        self._log.sync_soon()
        if turn_id is None:
            # Not for the model: it could set goal after goal without end.
            self.restart()
        self._publish(changed, turn_id)
        return changed

    def restart(self) -> None:
        """Let the goal start as many turns as a new one: the user takes part."""
        self._continuations = 0

    def clear(self) -> bool:
        """Clear the goal; false if there is none.

        Raises:
            StorageFailed: the change cannot be stored, and the goal stays.
        """
        if self.current is None:
            return False
        self._log.store(GoalChanged(None))
        self._log.sync_soon()
        self.current = None
        self._log.publish(n.THREAD_GOAL_CLEARED, ThreadGoalClearedNotification(self._thread_id))
        return True

    def after_turn(self, turn: ActiveTurn, tokens: int, seconds: int) -> bool:
        """Count a turn towards the goal; true if another turn should start."""
        goal = self.current
        if goal is None or goal.status != "active":
            return False
        used = msgspec.structs.replace(
            goal,
            tokens_used=goal.tokens_used + tokens,
            time_used_seconds=goal.time_used_seconds + seconds,
            updated_at=self._clock() // 1000,
            status=_after(turn) or goal.status,
        )
        self._continuations += 1
        is_spent = used.token_budget is not None and used.tokens_used >= used.token_budget
        if used.status == "active" and (is_spent or self._continuations > MAX_CONTINUATIONS):
            used = msgspec.structs.replace(used, status="budgetLimited")
        self._log.record(GoalChanged(used))
        self._publish(used, turn.id)
        return used.status == "active" and not turn.ends_with_server

    def _publish(self, goal: ThreadGoal, turn_id: str | None) -> None:
        self.current = goal
        params = ThreadGoalUpdatedNotification(goal, self._thread_id, turn_id)
        self._log.publish(n.THREAD_GOAL_UPDATED, params)


def _after(turn: ActiveTurn) -> ThreadGoalStatus | None:
    if turn.state == "interrupted":
        return None if turn.ends_with_server else "paused"
    if turn.error is None:
        return None
    return _BY_CAUSE.get(str(turn.error.codex_error_info), "blocked")
