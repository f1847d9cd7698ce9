"""An active turn: its state, its items, and its single terminal event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from treadle.engine.events.log import EventLog
from treadle.engine.project.diffs import TurnDiff
from treadle.engine.step_logs import log_item
from treadle.model.base import Model, ModelItem
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.error import ErrorNotification, TurnError
from treadle.protocol.extension import Budget
from treadle.protocol.input import UserInput
from treadle.protocol.item import (
    AgentMessageThreadItem,
    FunctionCallOutputThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    ThreadItem,
    times_of,
    with_times,
)
from treadle.protocol.turn import (
    Turn as TurnSnapshot,
)
from treadle.protocol.turn import (
    TurnCompletedNotification,
    TurnItemsView,
    TurnStartedNotification,
    TurnStatus,
)
from treadle.store.journal import Event, StorageFailed
from treadle.store.records import AnyRecord, InputConsumed, InputQueued
from treadle.support.clock import NowMs, Stopwatch

if TYPE_CHECKING:
    from treadle.engine.conversation.side import SideConversation

logger = logging.getLogger(__name__)

TurnKind: TypeAlias = Literal["regular", "compact", "review", "shell"]
Step: TypeAlias = Literal["begin", "complete", "fail", "interrupt"]
EndStep: TypeAlias = Literal["complete", "fail", "interrupt"]
State: TypeAlias = Literal["accepted", "running", "completed", "failed", "interrupted"]

NEXT: Final[dict[tuple[State, Step], State]] = {
    ("accepted", "begin"): "running",
    # A turn can be interrupted as soon as it is accepted.
    ("accepted", "interrupt"): "interrupted",
    ("accepted", "fail"): "failed",
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    ("running", "interrupt"): "interrupted",
    # Its completion could not be stored, and no client has received it yet.
    ("completed", "fail"): "failed",
}
STATUS: Final[dict[State, TurnStatus]] = {
    "accepted": "inProgress",
    "running": "inProgress",
    "completed": "completed",
    "failed": "failed",
    "interrupted": "interrupted",
}


class PendingInput(Struct, frozen=True):
    """Input that the turn has not taken yet: as the client sent it, as the model will read it."""

    content: list[UserInput]
    items: list[ModelItem]
    client_id: str | None = None
    # The output of a client tool, instead of a user message.
    output: FunctionCallOutputThreadItem | None = None
    # The id of its `InputQueued` record; `None` if it is not stored.
    id: str | None = None

    @classmethod
    def from_record(cls, record: InputQueued) -> PendingInput:
        """Restore input that an earlier server accepted."""
        return cls(record.content, record.items, record.client_id, record.output, record.id)

    @property
    def consumed_records(self) -> list[InputConsumed]:
        """The records to store when a turn consumes the input."""
        return [] if self.id is None else [InputConsumed(self.id)]


class ItemInProgress(Struct):
    """An item in progress: its start time, and a function that returns its current state."""

    started_at_ms: int
    current: Callable[[], ThreadItem]
    # `None` if an earlier server started the item.
    stopwatch: Stopwatch | None = None


class ActiveTurn(Struct):
    """A turn from acceptance to its end; it ends once, with one terminal event."""

    id: str
    thread_id: str
    log: EventLog
    clock: NowMs
    kind: TurnKind = "regular"
    root_id: str | None = None
    output_schema: JsonValue = None
    budget: Budget | None = None
    # The side conversation that the turn holds instead of the thread's own.
    side: SideConversation | None = None
    # Whether the guardian also reviews actions that need no approval.
    reviews_all: bool = False
    # Settings that differ from the thread's.
    overrides: dict[str, JsonValue] = field(default_factory=dict)
    state: State = "accepted"
    error: TurnError | None = None
    started_at_ms: int | None = None
    completed_at_ms: int | None = None
    duration_ms: int | None = None
    pending_input: list[PendingInput] = field(default_factory=list)
    open_items: dict[str, ItemInProgress] = field(default_factory=dict)
    last_message: AgentMessageThreadItem | None = None
    diff: TurnDiff = field(default_factory=TurnDiff)
    task: asyncio.Task[None] | None = None
    # The model in use; it stays open until the turn ends.
    model: Model | None = None
    # Ids of the tool calls in progress.
    running_calls: set[str] = field(default_factory=set)
    # Whether a response of the model is arriving.
    is_streaming: bool = False
    # Running calls that only wait for sub-agents, mapped to the ids of those sub-agents.
    waits: dict[str, Sequence[str]] = field(default_factory=dict)
    # Whether a stop is due to the server's shutdown, not to a user.
    ends_with_server: bool = False
    # Whether the turn is left for the next server to continue.
    is_suspended: bool = False
    # Whether an interrupt was requested, perhaps before the turn started.
    interrupt_requested: bool = False
    # Why the turn must end as failed in any case: it can no longer be stored.
    failure: TurnError | None = None
    is_ending: bool = False
    # Whether clients know that the sandbox does not work.
    has_sandbox_error: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    # `None` if an earlier server started the turn.
    _stopwatch: Stopwatch | None = None
    _at_end: list[Callable[[], None]] = field(default_factory=list)
    _after_end: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended and published that, if possible."""
        return self.ended.is_set()

    @property
    def is_stopping(self) -> bool:
        """Whether the turn was asked to stop; it may have ended already."""
        is_cancelled = self.task is not None and self.task.cancelling() > 0
        return self.is_over or is_cancelled or self.failure is not None

    def stop(self) -> None:
        """Interrupt the turn; one that has not started is interrupted when it starts."""
        self.interrupt_requested = True
        if self.task is not None:
            self.task.cancel()

    def use_model(self, model: Model) -> None:
        """Hold the model that the turn uses open until the turn ends."""
        self.model = model

    def fail(self, error: TurnError) -> None:
        """Stop at once and end as failed: no further call runs."""
        if self.failure is None and not self.is_over:
            self.failure = error
            if self.task is not None and not self.is_ending:
                self.task.cancel()

    def check_storable(self) -> None:
        """Prevent new actions in a turn that can no longer be stored.

        Raises:
            CancelledError: the turn has failed, but this task is not cancelled yet.
        """
        if self.failure is not None:
            raise asyncio.CancelledError

    def adjust(self, **settings: JsonValue) -> None:
        """Change settings for this turn only; `None` is ignored."""
        self.overrides |= {name: value for name, value in settings.items() if value is not None}

    def advance(self, step: Step) -> None:
        """Take a step of `NEXT`.

        Raises:
            LookupError: the table has no such transition.
        """
        after = NEXT.get((self.state, step))
        if after is None:
            raise LookupError(f"a turn that is {self.state} cannot {step}")
        self.state = after

    def begin(self) -> None:
        """Start, and publish `turn/started`."""
        self.advance("begin")
        self.started_at_ms, self._stopwatch = self.clock(), Stopwatch()
        snapshot = self.snapshot("notLoaded")
        self.log.publish(n.TURN_STARTED, TurnStartedNotification(self.thread_id, snapshot))

    def end(self, step: EndStep, error: TurnError | None) -> None:
        """End, and publish `turn/completed` once it is durable, if the disk works."""
        self.advance(step)
        self.error = error
        if self.started_at_ms is not None:
            self.completed_at_ms = self.clock_after(self.started_at_ms)
            self.duration_ms = self._elapsed_ms(self.started_at_ms, self._stopwatch)
        else:
            self.completed_at_ms = self.clock()
        self.open_items.clear()
        params = self._completed()
        try:
            self.log.publish(n.TURN_COMPLETED, params, on_unsynced=self._on_unsynced)
        except Exception:
            # Cleanup: clients wait for this event. The next server that loads the thread ends the
            # turn.
            logger.exception("could not store end of turn", extra={"turn": self.id})
            self.log.publish_unstored(n.TURN_COMPLETED, params)
        self.ended.set()

    def _completed(self) -> TurnCompletedNotification:
        view: TurnItemsView = "summary" if self.last_message else "notLoaded"
        return TurnCompletedNotification(self.thread_id, self.snapshot(view))

    def _on_unsynced(self, event: Event, failure: StorageFailed) -> None:
        """Change a completed turn to failed: clients must not assume that it is stored."""
        if self.state == "completed":
            self.advance("fail")
            self.error = storage_error(failure)
            params = ErrorNotification(self.error, self.thread_id, self.id, will_retry=False)
            self.log.replace(event, n.ERROR, params)
            self.log.on_failure(failure)
            self.log.publish(n.TURN_COMPLETED, self._completed())

    def at_end(self, action: Callable[[], None]) -> None:
        """Call `action` when the turn ends, before the terminal event."""
        self._at_end.append(action)

    def after_end(self, action: Callable[[], None]) -> None:
        """Call `action` after the terminal event."""
        self._after_end.append(action)

    def run_actions(self, actions: Literal["at_end", "after_end"]) -> None:
        """Run the registered actions; a failure does not prevent the others."""
        pending = self._at_end if actions == "at_end" else self._after_end
        while pending:
            try:
                pending.pop(0)()
            except Exception:  # cleanup: the remaining actions still run
                logger.exception("cleanup failed", extra={"turn": self.id})

    def fail_item(self, item_id: str) -> None:
        """Complete an item as failed, if it is in progress."""
        open_item = self.open_items.get(item_id)
        item = None if open_item is None else open_item.current()
        if item is not None and getattr(item, "status", None) == "inProgress":
            self.complete_item(msgspec.structs.replace(item, status="failed"))

    def start_item(self, item: ThreadItem, current: Callable[[], ThreadItem] | None = None) -> None:
        """Publish `item/started`; `current` returns the item's state at any later time.

        An item that is already in progress is not published again: its call is repeated after a
        restart.
        """
        now = self.clock()
        if item.id in self.open_items:
            self.open_items[item.id].current = current or (lambda: item)
            return
        self.open_items[item.id] = ItemInProgress(now, current or (lambda: item), Stopwatch())
        log_item("item started", self, item)
        self.log.publish(n.ITEM_STARTED, self._started(item, now))

    def complete_item(
        self,
        item: ThreadItem,
        records: Sequence[AnyRecord] = (),
        *,
        content_token_count: int | None = None,
    ) -> None:
        """Publish `item/completed`, after `item/started` if that is missing.

        `records` are stored atomically with the event.
        """
        if self.is_suspended:
            return  # the next server continues it
        # A command may outlive its turn, which clears `open_items`.
        if item.id not in self.open_items and not self.is_over:
            self.start_item(item)
        open_item = self.open_items.pop(item.id, None)
        started = open_item.started_at_ms if open_item else times_of(item)[0]
        completed = self.clock_after(started or 0)
        item = with_times(item, started, completed)
        log_item("item completed", self, item)
        if isinstance(item, AgentMessageThreadItem):
            self.last_message = item
        self.log.publish(
            n.ITEM_COMPLETED,
            ItemCompletedNotification(
                completed_at_ms=completed,
                item=item,
                thread_id=self.thread_id,
                turn_id=self.id,
                content_token_count=content_token_count,
            ),
            records=records,
        )

    def clock_after(self, start_ms: int) -> int:
        """Return the current time, or `start_ms` if the wall clock has been set back."""
        return max(self.clock(), start_ms)

    def item_ms(self, item_id: str) -> int:
        """Return how long an item has been in progress; 0 if it is not."""
        item = self.open_items.get(item_id)
        return 0 if item is None else self._elapsed_ms(item.started_at_ms, item.stopwatch)

    def _elapsed_ms(self, started_at_ms: int, stopwatch: Stopwatch | None) -> int:
        # Only the wall clock is shared by two processes.
        if stopwatch is None:
            return max(0, self.clock() - started_at_ms)
        return stopwatch.milliseconds

    def open_item_events(self) -> list[ItemStartedNotification]:
        """Return the current state of open items, for a client that missed their start."""
        return [
            self._started(item.current(), item.started_at_ms) for item in self.open_items.values()
        ]

    def snapshot(self, view: TurnItemsView = "notLoaded") -> TurnSnapshot:
        """Return the turn as clients see it."""
        started, completed = self.started_at_ms, self.completed_at_ms
        return TurnSnapshot(
            id=self.id,
            items=[self.last_message] if self.last_message and view == "summary" else [],
            status=STATUS[self.state],
            completed_at=None if completed is None else completed // 1000,
            duration_ms=self.duration_ms,
            error=self.error,
            items_view=view,
            root_turn_id=self.root_id or self.id,
            started_at=None if started is None else started // 1000,
        )

    def _started(self, item: ThreadItem, at_ms: int) -> ItemStartedNotification:
        return ItemStartedNotification(
            item=with_times(item, at_ms, None),
            started_at_ms=at_ms,
            thread_id=self.thread_id,
            turn_id=self.id,
        )


def storage_error(failure: StorageFailed) -> TurnError:
    """Return the error of a turn that cannot be stored; the protocol has no kind for it."""
    return TurnError(
        f"the thread cannot be stored: {failure}",
        additional_details=f"{failure.code} in {failure.folder}",
        codex_error_info="other",
    )
