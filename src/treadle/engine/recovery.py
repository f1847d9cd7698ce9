"""What a server that died left behind: turns without an end, messages that nobody took up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from treadle.engine import instructions
from treadle.engine.history import open_calls
from treadle.engine.input import message
from treadle.engine.tools.registry import ToolCall, output_item, read_call
from treadle.engine.turn import OpenItem
from treadle.engine.turn import Turn as LiveTurn
from treadle.protocol import notifications as n
from treadle.protocol.error import TurnError
from treadle.protocol.item import ThreadItem, UserMessageThreadItem
from treadle.protocol.turn import Turn, TurnCompletedNotification
from treadle.store.journal import Event, Journal
from treadle.store.records import AskOpened, ClientMessage, HistoryItem
from treadle.store.thread import StoredThread

if TYPE_CHECKING:
    from treadle.engine.thread import Thread

RESTARTED_OUTPUT = "aborted: the server was restarted"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A turn that waits for answers to some of its calls, though its server is gone."""

    turn: Turn
    items: list[ThreadItem]
    calls: list[ToolCall]
    asks: dict[str, AskOpened]

    def turn_in(self, thread: Thread) -> LiveTurn:
        """The turn as it stood, in a thread that goes on with it."""
        started = (self.turn.started_at or 0) * 1000
        turn = LiveTurn(self.turn.id, thread.id, thread.log, thread.around.clock)
        turn.state, turn.started_at_ms, turn.root_id = "running", started, self.turn.root_turn_id
        for item in self.items:
            turn.open_items[item.id] = OpenItem(started, partial(_same, item))
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
    return Waiting(turn, stored.open_items, again, asks)


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
    event = Event(journal.last_seq + 1, now_ms, n.TURN_COMPLETED.method, params)
    journal.append([*(HistoryItem(note) for note in notes), event], sync=True)
    stored.history.extend(notes)
    stored.running_turn = None
    stored.turns = [ended if each.id == ended.id else each for each in stored.turns]


def heard_messages(stored: StoredThread) -> dict[str, ClientMessage]:
    """The messages that arrived: one whose turn ended before it was taken up may be sent again."""
    ids = {
        item.client_id
        for turn in stored.turns
        for item in turn.items
        if isinstance(item, UserMessageThreadItem)
    }
    return {id_: known for id_, known in stored.client_messages.items() if id_ in ids}
