"""One turn: its state, its items, and the one event that ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from treadle.engine.events.log import EventLog
from treadle.engine.project.diffs import TurnDiff
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
from treadle.store.records import AnyRecord, InputGiven, InputTaken
from treadle.support.clock import NowMs, Stopwatch

if TYPE_CHECKING:
    from treadle.engine.conversation.side import SideConversation

logger = logging.getLogger(__name__)

TurnKind: TypeAlias = Literal["regular", "compact", "review", "shell"]
Step: TypeAlias = Literal["begin", "complete", "fail", "interrupt"]
State: TypeAlias = Literal["accepted", "running", "completed", "failed", "interrupted"]

NEXT: Final[dict[tuple[State, Step], State]] = {
    ("accepted", "begin"): "running",
    # A turn can be interrupted from the moment it was promised to the client.
    ("accepted", "interrupt"): "interrupted",
    ("accepted", "fail"): "failed",
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    ("running", "interrupt"): "interrupted",
    # Its end could not be put on the disk, and no client has seen it yet.
    ("completed", "fail"): "failed",
}
STATUS: Final[dict[State, TurnStatus]] = {
    "accepted": "inProgress",
    "running": "inProgress",
    "completed": "completed",
    "failed": "failed",
    "interrupted": "interrupted",
}


@dataclass(frozen=True, slots=True)
class Message:
    """Input that waits to be taken up: as it was given, as the model reads it, and its id."""

    content: list[UserInput]
    items: list[ModelItem]
    client_id: str | None = None
    # What a tool of the client's says, in place of the user.
    output: FunctionCallOutputThreadItem | None = None
    # What it is stored under until it is taken up; null if it is not stored.
    id: str | None = None

    @classmethod
    def left(cls, given: InputGiven) -> Message:
        """Input that an earlier server was given."""
        return cls(given.content, given.items, given.client_id, given.output, given.id)

    @property
    def taken(self) -> list[InputTaken]:
        """What is stored when it is taken up."""
        return [] if self.id is None else [InputTaken(self.id)]


@dataclass(slots=True)
class ItemInProgress:
    """An item under way: what was told of it, and how to say it as it stands now."""

    started_at_ms: int
    current: Callable[[], ThreadItem]
    # Null if it was begun by an earlier server.
    stopwatch: Stopwatch | None = None


@dataclass(slots=True)
class ActiveTurn:
    """A turn from its promise to its end; it ends once, and says so once."""

    id: str
    thread_id: str
    log: EventLog
    clock: NowMs
    kind: TurnKind = "regular"
    root_id: str | None = None
    output_schema: JsonValue = None
    budget: Budget | None = None
    # Whom it talks to, if not to the thread's own agent.
    aside: SideConversation | None = None
    # Whether the automatic reviewer sees even what nobody would have to approve.
    reviews_all: bool = False
    # What this turn does otherwise than its thread.
    changes: dict[str, JsonValue] = field(default_factory=dict)
    state: State = "accepted"
    error: TurnError | None = None
    started_at_ms: int | None = None
    completed_at_ms: int | None = None
    duration_ms: int | None = None
    waiting: list[Message] = field(default_factory=list)
    open_items: dict[str, ItemInProgress] = field(default_factory=dict)
    last_message: AgentMessageThreadItem | None = None
    diff: TurnDiff = field(default_factory=TurnDiff)
    task: asyncio.Task[None] | None = None
    # What it asks: kept open until the turn ends.
    model: Model | None = None
    # Calls of the model that are being carried out; none of them while it still speaks.
    running_calls: set[str] = field(default_factory=set)
    is_listening: bool = False
    # Those of them that do nothing but wait for agents, with the agents' ids.
    waits: dict[str, Sequence[str]] = field(default_factory=dict)
    # Stopped, if it is stopped, because the server ends: nobody wanted it to.
    ends_with_server: bool = False
    # Left as it is for the next server, which goes on with it.
    is_suspended: bool = False
    # Interrupted before it could be started.
    is_unwanted: bool = False
    # Why it has to end as failed, whatever else happens: it can no longer be stored.
    failure: TurnError | None = None
    is_ending: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    # Null if it was begun by an earlier server.
    _stopwatch: Stopwatch | None = None
    _at_end: list[Callable[[], None]] = field(default_factory=list)
    _after_end: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and said so if there was a way to."""
        return self.ended.is_set()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, and has perhaps done so."""
        is_cancelled = self.task is not None and self.task.cancelling() > 0
        return self.is_over or is_cancelled or self.failure is not None

    def fail(self, error: TurnError) -> None:
        """Stop at once and end as failed: no call is carried out from now on."""
        if self.failure is None and not self.is_over:
            self.failure = error
            if self.task is not None and not self.is_ending:
                self.task.cancel()

    def check_storable(self) -> None:
        """Refuse to begin anything in a turn that can no longer be stored.

        Raises:
            CancelledError: the turn has failed, and this task has not been cancelled yet.
        """
        if self.failure is not None:
            raise asyncio.CancelledError

    def adjust(self, **settings: JsonValue) -> None:
        """Change settings for this turn alone; null changes nothing."""
        self.changes |= {name: value for name, value in settings.items() if value is not None}

    def move(self, step: Step) -> None:
        """Take a step of the table.

        Raises:
            LookupError: the table has no such step from here.
        """
        after = NEXT.get((self.state, step))
        if after is None:
            raise LookupError(f"a turn that is {self.state} cannot {step}")
        self.state = after

    def begin(self) -> None:
        """Start to run, and tell."""
        self.move("begin")
        self.started_at_ms, self._stopwatch = self.clock(), Stopwatch()
        snapshot = self.snapshot("notLoaded")
        self.log.publish(n.TURN_STARTED, TurnStartedNotification(self.thread_id, snapshot))

    def end(self, step: Literal["complete", "fail", "interrupt"], error: TurnError | None) -> None:
        """Finish, and publish that: durable before any client gets it, if the disk works."""
        self.move(step)
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
            # Clients wait for this event; the next server that loads the thread ends the turn.
            logger.exception("end of turn is not stored", extra={"turn": self.id})
            self.log.publish_unstored(n.TURN_COMPLETED, params)
        self.ended.set()

    def _completed(self) -> TurnCompletedNotification:
        view: TurnItemsView = "summary" if self.last_message else "notLoaded"
        return TurnCompletedNotification(self.thread_id, self.snapshot(view))

    def _on_unsynced(self, event: Event, failure: StorageFailed) -> None:
        """End as failed after all, if clients would otherwise take the turn for stored."""
        if self.state == "completed":
            self.move("fail")
            self.error = storage_error(failure)
            told = ErrorNotification(self.error, self.thread_id, self.id, will_retry=False)
            self.log.replace(event, n.ERROR, told)
            self.log.on_failure(failure)
            self.log.publish(n.TURN_COMPLETED, self._completed())

    def at_end(self, action: Callable[[], None]) -> None:
        """Call this when the turn ends, however it ends, before anybody is told."""
        self._at_end.append(action)

    def after_end(self, action: Callable[[], None]) -> None:
        """Call this when clients have been told that the turn is over."""
        self._after_end.append(action)

    def run_actions(self, actions: Literal["at_end", "after_end"]) -> None:
        """Do what was left for the end; one failure keeps nothing else from being done."""
        waiting = self._at_end if actions == "at_end" else self._after_end
        while waiting:
            try:
                waiting.pop(0)()
            except Exception:
                logger.exception("clean-up failed", extra={"turn": self.id})

    def fail_item(self, item_id: str) -> None:
        """Complete an item as failed, if it is under way."""
        begun = self.open_items.get(item_id)
        item = None if begun is None else begun.current()
        if item is not None and getattr(item, "status", None) == "inProgress":
            self.complete_item(msgspec.structs.replace(item, status="failed"))

    def start_item(self, item: ThreadItem, current: Callable[[], ThreadItem] | None = None) -> None:
        """Tell that an item has begun; `current` gives it as it stands at any later time.

        One that is under way already is not told again: its call is run anew after a restart.
        """
        now = self.clock()
        if item.id in self.open_items:
            self.open_items[item.id].current = current or (lambda: item)
            return
        self.open_items[item.id] = ItemInProgress(now, current or (lambda: item), Stopwatch())
        self.log.publish(n.ITEM_STARTED, self._started(item, now))

    def complete_item(self, item: ThreadItem, records: Sequence[AnyRecord] = ()) -> None:
        """Tell that an item is finished; one that was never started is started first.

        `records` are stored together with it, or not at all.
        """
        if self.is_suspended:
            return  # the next server goes on with it
        # A command may outlive its turn, and everything that was open with the turn is closed.
        if item.id not in self.open_items and not self.is_over:
            self.start_item(item)
        begun = self.open_items.pop(item.id, None)
        if isinstance(item, AgentMessageThreadItem):
            self.last_message = item
        self.log.publish(
            n.ITEM_COMPLETED,
            ItemCompletedNotification(
                completed_at_ms=self.clock_after(begun.started_at_ms if begun else 0),
                item=item,
                thread_id=self.thread_id,
                turn_id=self.id,
            ),
            records=records,
        )

    def clock_after(self, start_ms: int) -> int:
        """The time now, and not before a start: the wall clock may have been set back since."""
        return max(self.clock(), start_ms)

    def item_ms(self, item_id: str) -> int:
        """How long an item has been under way; 0 if it is not."""
        item = self.open_items.get(item_id)
        return 0 if item is None else self._elapsed_ms(item.started_at_ms, item.stopwatch)

    def _elapsed_ms(self, started_at_ms: int, stopwatch: Stopwatch | None) -> int:
        # Between two processes there is only the wall clock to go by.
        if stopwatch is None:
            return max(0, self.clock() - started_at_ms)
        return stopwatch.milliseconds

    def open_item_events(self) -> list[ItemStartedNotification]:
        """The items under way as they stand now, for a client that missed their beginning."""
        return [
            self._started(item.current(), item.started_at_ms) for item in self.open_items.values()
        ]

    def snapshot(self, view: TurnItemsView = "notLoaded") -> TurnSnapshot:
        """The turn as clients see it."""
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
            item=item, started_at_ms=at_ms, thread_id=self.thread_id, turn_id=self.id
        )


def storage_error(failure: StorageFailed) -> TurnError:
    """Why a turn failed that cannot be stored: the protocol has no narrower kind than `other`."""
    return TurnError(
        f"the thread cannot be stored: {failure}",
        additional_details=f"{failure.code} in {failure.folder}",
        codex_error_info="other",
    )
