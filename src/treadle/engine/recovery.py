"""What a server that died left behind: turns without an end, messages that nobody took up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from treadle.engine import instructions
from treadle.engine.history import open_calls
from treadle.engine.input import message
from treadle.engine.tools.registry import Toolbox, ToolCall, output_item, read_call
from treadle.engine.turn import OpenItem
from treadle.engine.turn import Turn as LiveTurn
from treadle.protocol import notifications as n
from treadle.protocol.error import TurnError
from treadle.protocol.item import (
    EnteredReviewModeThreadItem,
    ExitedReviewModeThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    ThreadItem,
    UserMessageThreadItem,
)
from treadle.protocol.turn import Turn, TurnCompletedNotification
from treadle.store.journal import Event, Journal
from treadle.store.records import AskOpened, ClientMessage, HistoryItem, TurnContext
from treadle.store.thread import StoredThread
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.thread import Thread

RESTARTED_OUTPUT = "aborted: the server was restarted"
REVIEW_LOST = "The review was lost: the server ended before the reviewer had finished."


@dataclass(frozen=True, slots=True)
class Waiting:
    """A turn that waits for answers to some of its calls, though its server is gone."""

    turn: Turn
    items: list[ItemStartedNotification]
    calls: list[ToolCall]
    asks: dict[str, AskOpened]
    context: TurnContext | None = None

    def turn_in(self, thread: Thread) -> LiveTurn:
        """The turn as it stood, in a thread that goes on with it."""
        turn = LiveTurn(self.turn.id, thread.id, thread.log, thread.around.clock)
        turn.state, turn.root_id = "running", self.turn.root_turn_id
        turn.started_at_ms = (self.turn.started_at or 0) * 1000
        if self.context is not None and self.context.turn_id == turn.id:
            turn.output_schema, turn.budget = self.context.output_schema, self.context.budget
        for told in self.items:
            turn.open_items[told.item.id] = OpenItem(told.started_at_ms, partial(_same, told.item))
        return turn


def _same(item: ThreadItem) -> ThreadItem:
    return item


def find_waiting(journal: Journal, stored: StoredThread) -> Waiting | None:
    """The turn that was only waiting for answers when its server ended, if there is one.

    Calls that were being carried out then are not tried again: they may have done their work.
    """
    turn = next((turn for turn in stored.turns if turn.id == stored.running_turn), None)
    asks = {
        id_: ask
        for id_, ask in stored.open_asks.items()
        if ask.turn_id == stored.running_turn and ask.kind == "resumable"
    }
    if turn is None or not asks:
        return None
    waiting = {ask.call_id for ask in asks.values()}
    calls = [call for call in map(read_call, open_calls(stored.history)) if call is not None]
    again = [call for call in calls if call.id in waiting]
    if not again:
        return None
    notes = [output_item(call, RESTARTED_OUTPUT) for call in calls if call.id not in waiting]
    journal.append([HistoryItem(note) for note in notes])
    stored.history.extend(notes)
    items = [told for told in stored.open_items if told.item.id in waiting]
    return Waiting(turn, items, again, asks, stored.settings)


def end_left_items(
    journal: Journal, stored: StoredThread, now_ms: int, waiting: Waiting | None
) -> None:
    """Complete what was told to be under way and is not, unless it waits for an answer."""
    kept = {told.item.id for told in waiting.items} if waiting else set()
    turns = {turn.id: turn for turn in stored.turns}
    events: list[Event] = []
    for told in stored.open_items:
        if told.item.id in kept or getattr(told.item, "status", None) != "inProgress":
            continue
        item = msgspec.structs.replace(told.item, status="failed")
        params = ItemCompletedNotification(now_ms, item, told.thread_id, told.turn_id)
        seq = journal.last_seq + 1 + len(events)
        events.append(Event(seq, now_ms, n.ITEM_COMPLETED.method, params))
        if told.turn_id in turns:
            turns[told.turn_id].items.append(item)
    if events:
        journal.append(events)


def end_orphans(turn: LiveTurn, calls: Sequence[ToolCall], tools: Toolbox) -> None:
    """Complete what was begun by tools that are not there any more."""
    for call in calls:
        begun = turn.open_items.get(call.id)
        if begun is None or tools.find(call) is not None:
            continue
        item = begun.current()
        if getattr(item, "status", None) == "inProgress":
            turn.complete_item(msgspec.structs.replace(item, status="failed"))


def end_left_behind(journal: Journal, stored: StoredThread, now_ms: int) -> None:
    """End the turn that was running when its server died, if there is one."""
    if stored.running_turn is None:
        return
    turn = next((turn for turn in stored.turns if turn.id == stored.running_turn), None)
    turn = turn or Turn(id=stored.running_turn, items=[], status="inProgress")
    ended = msgspec.structs.replace(
        turn,
        status="interrupted",
        completed_at=now_ms // 1000,
        error=TurnError("the server ended while this turn was running", codex_error_info="other"),
    )
    calls = [read_call(item) for item in open_calls(stored.history)]
    notes = [output_item(call, RESTARTED_OUTPUT) for call in calls if call]
    notes.append(message("user", instructions.RESTARTED))
    told = msgspec.structs.replace(ended, items=[], items_view="notLoaded")
    params = TurnCompletedNotification(stored.meta.id, told)
    events = _leave_review(journal, stored.meta.id, ended, now_ms)
    seq = journal.last_seq + 1 + len(events)
    events.append(Event(seq, now_ms, n.TURN_COMPLETED.method, params))
    journal.append([*(HistoryItem(note) for note in notes), *events], sync=True)
    stored.history.extend(notes)
    stored.running_turn = None
    stored.turns = [ended if each.id == ended.id else each for each in stored.turns]


def _leave_review(journal: Journal, thread_id: str, turn: Turn, now_ms: int) -> list[Event]:
    """Leave review mode, if a turn has entered it and not left it."""
    kinds = {type(item) for item in turn.items}
    if EnteredReviewModeThreadItem not in kinds or ExitedReviewModeThreadItem in kinds:
        return []
    item = ExitedReviewModeThreadItem(uuid7(), REVIEW_LOST)
    turn.items.append(item)
    started = ItemStartedNotification(item, now_ms, thread_id, turn.id)
    completed = ItemCompletedNotification(now_ms, item, thread_id, turn.id)
    seq = journal.last_seq + 1
    return [
        Event(seq, now_ms, n.ITEM_STARTED.method, started),
        Event(seq + 1, now_ms, n.ITEM_COMPLETED.method, completed),
    ]


def heard_messages(stored: StoredThread) -> dict[str, ClientMessage]:
    """The messages that arrived: one whose turn ended before it was taken up may be sent again."""
    ids = {
        item.client_id
        for turn in stored.turns
        for item in turn.items
        if isinstance(item, UserMessageThreadItem)
    }
    return {id_: known for id_, known in stored.client_messages.items() if id_ in ids}
