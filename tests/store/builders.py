"""Builds threads as a server writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.input import TextUserInput
from treadle.protocol.item import (
    AgentMessageThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    ThreadItem,
    UserMessageThreadItem,
    with_times,
)
from treadle.protocol.policy import ReadOnlySandboxPolicy
from treadle.protocol.turn import (
    Turn,
    TurnCompletedNotification,
    TurnStartedNotification,
    TurnStatus,
)
from treadle.protocol.usage import TokenUsageBreakdown
from treadle.store.journal import Entry, Event, Journal
from treadle.store.records import HistoryItem, ModelItem, TurnContext, UsageRecord
from treadle.store.stored_thread import ThreadMeta
from treadle.support.ids import uuid7

START_MS = 1_790_000_000_000


class Clock:
    """A clock that a test advances."""

    def __init__(self, now: int = START_MS) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def tick(self, ms: int = 1000) -> None:
        self.now += ms


def meta(clock: Clock, **changes: JsonValue) -> ThreadMeta:
    """Describe a new thread."""
    seconds = clock.now // 1000
    fields: dict[str, JsonValue] = {
        "id": uuid7(),
        "created_at": seconds,
        "updated_at": seconds,
        "cwd": "/workspace",
        "model_provider": "mock_provider",
        "originator": "tests",
        "cli_version": "0.1.0",
        "base_instructions": "be useful",
    }
    return ThreadMeta(**(fields | changes))


def message(role: str, text: str) -> ModelItem:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def breakdown(tokens: int) -> TokenUsageBreakdown:
    return TokenUsageBreakdown(
        cached_input_tokens=0,
        input_tokens=tokens,
        output_tokens=0,
        reasoning_output_tokens=0,
        total_tokens=tokens,
    )


def context(turn_id: str, **changes: JsonValue) -> TurnContext:
    fields: dict[str, JsonValue] = {
        "turn_id": turn_id,
        "cwd": "/workspace",
        "model": "mock-model",
        "provider": "mock_provider",
        "approval_policy": "never",
        "sandbox_policy": ReadOnlySandboxPolicy(),
    }
    return TurnContext(**(fields | changes))


def user_item(text: str, id_: str) -> UserMessageThreadItem:
    return UserMessageThreadItem(content=[TextUserInput(text)], id=id_)


@dataclass
class Writer:
    """Appends turns to a journal in the order in which a server does."""

    journal: Journal
    clock: Clock
    events: list[Event] = field(default_factory=list)

    def event(self, method: str, params: Struct) -> Event:
        seq = (self.events[-1].seq if self.events else self.journal.last_seq) + 1
        event = Event(seq, self.clock.now, method, params)
        self.events.append(event)
        return event

    def begin(self, turn_id: str) -> Iterator[Entry]:
        turn = Turn(
            id=turn_id,
            items=[],
            status="inProgress",
            items_view="notLoaded",
            root_turn_id=turn_id,
            started_at=self.clock.now // 1000,
        )
        yield self.event(
            n.TURN_STARTED.method, TurnStartedNotification(self.journal.thread_id, turn)
        )
        yield context(turn_id)

    def item(self, turn_id: str, item: ThreadItem) -> Iterator[Entry]:
        thread_id, now = self.journal.thread_id, self.clock.now
        begun, done = with_times(item, now, None), with_times(item, now, now)
        yield self.event(
            n.ITEM_STARTED.method, ItemStartedNotification(begun, now, thread_id, turn_id)
        )
        yield self.event(
            n.ITEM_COMPLETED.method, ItemCompletedNotification(now, done, thread_id, turn_id)
        )

    def end(self, turn_id: str, status: TurnStatus = "completed", **changes: JsonValue) -> Event:
        fields: dict[str, JsonValue] = {
            "started_at": self.clock.now // 1000,
            "completed_at": self.clock.now // 1000,
            "duration_ms": 5,
        }
        turn = Turn(
            id=turn_id,
            items=[],
            status=status,
            items_view="notLoaded",
            root_turn_id=turn_id,
            **(fields | changes),
        )
        return self.event(
            n.TURN_COMPLETED.method, TurnCompletedNotification(self.journal.thread_id, turn)
        )

    def turn(self, message_text: str, answer: str, *, items: Sequence[ThreadItem] = ()) -> Turn:
        """Write a whole turn, and return it as it should be read back."""
        turn_id = uuid7()
        user = user_item(message_text, f"{turn_id}-user")
        agent = AgentMessageThreadItem(id=f"{turn_id}-agent", text=answer)
        self.journal.append(list(self.begin(turn_id)))
        self.journal.append([HistoryItem(message("user", message_text))])
        self.journal.append(list(self.item(turn_id, user)))
        for item in items:
            self.journal.append(list(self.item(turn_id, item)))
        self.journal.append([HistoryItem(message("assistant", answer))])
        self.journal.append(list(self.item(turn_id, agent)))
        self.journal.append(
            [UsageRecord(turn_id, f"resp-{turn_id}", breakdown(10), breakdown(10), 1000)]
        )
        self.journal.append([self.end(turn_id)])
        now = self.clock.now
        seconds = now // 1000
        return Turn(
            id=turn_id,
            items=[with_times(item, now, now) for item in (user, *items, agent)],
            status="completed",
            root_turn_id=turn_id,
            started_at=seconds,
            completed_at=seconds,
            duration_ms=5,
        )
