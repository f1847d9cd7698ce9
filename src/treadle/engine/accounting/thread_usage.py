"""Tracks a thread's token usage: stores and publishes it, and charges its budgets."""

from __future__ import annotations

from collections.abc import Callable

from treadle.engine.accounting.budget import Meter
from treadle.engine.accounting.usage import TokenLedger, breakdown
from treadle.engine.events.log import EventLog
from treadle.engine.turn import ActiveTurn
from treadle.model.base import Completed
from treadle.protocol import notifications as n
from treadle.protocol.extension import Budget
from treadle.protocol.usage import ThreadTokenUsageUpdatedNotification
from treadle.store.records import UsageRecord


class UsageTracker:
    """The token usage of one thread."""

    def __init__(self, log: EventLog, ledger: TokenLedger | None, meter: Meter | None) -> None:
        self.ledger = ledger or TokenLedger()
        # Tokens of the context window in use, by the provider's last count.
        self.fill = self.ledger.last.total_tokens
        self.turn_tokens = 0
        self._log = log
        self._thread_meter = meter
        self._turn_meter: Meter | None = None
        self._parent_meters: Callable[[], list[Meter]] = list

    @property
    def meters(self) -> list[Meter]:
        """The budgets that a model request counts against."""
        return [*self._own, *self._parent_meters()]

    @property
    def _own(self) -> list[Meter]:
        both = (self._thread_meter, self._turn_meter)
        return [meter for meter in both if meter is not None]

    def set_fill(self, tokens: int) -> None:
        """Set how much of the context window is in use."""
        self.fill = tokens

    def charge_parent(self, meters: Callable[[], list[Meter]]) -> None:
        """Count usage against the budgets of a parent thread too."""
        self._parent_meters = meters

    def open_turn(self, budget: Budget | None) -> None:
        """Start counting a turn, perhaps with its own budget."""
        self.turn_tokens = 0
        self._turn_meter = Meter(budget, "turn") if budget else None
        for meter in self._own:
            meter.start()

    def close_turn(self) -> None:
        """Stop counting the turn."""
        for meter in self._own:
            meter.stop()
        self._turn_meter = None

    def count(
        self,
        turn: ActiveTurn,
        completed: Completed,
        response_id: str,
        window: int,
        *,
        fills_context: bool = True,
    ) -> None:
        """Count a response once, however often it is reported, and publish the new totals.

        `fills_context` is false for responses that do not continue the conversation.
        """
        usage = completed.usage
        if usage is None or not self.ledger.add(response_id, usage, window):
            return
        tokens = self.ledger.last.total_tokens
        if fills_context:
            self.fill = tokens
        self.turn_tokens += tokens
        for meter in self.meters:
            meter.charge(tokens)
        record = UsageRecord(turn.id, response_id, breakdown(usage), self.ledger.total, window)
        self._log.record(record)
        self.publish(turn.thread_id, turn.id)

    def publish(self, thread_id: str, turn_id: str) -> None:
        """Publish the current totals."""
        usage = self.ledger.to_protocol()
        params = ThreadTokenUsageUpdatedNotification(
            thread_id=thread_id, token_usage=usage, turn_id=turn_id
        )
        self._log.publish(n.THREAD_TOKEN_USAGE_UPDATED, params)
