"""What a server that died left behind: turns without an end, messages that nobody took up."""

from __future__ import annotations

import msgspec

from treadle.engine import instructions
from treadle.engine.history import open_calls
from treadle.engine.input import message
from treadle.engine.tools.registry import output_item, read_call
from treadle.protocol import notifications as n
from treadle.protocol.error import TurnError
from treadle.protocol.item import UserMessageThreadItem
from treadle.protocol.turn import Turn, TurnCompletedNotification
from treadle.store.journal import Event, Journal
from treadle.store.records import ClientMessage, HistoryItem
from treadle.store.thread import StoredThread


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
    notes = [output_item(call, "aborted: the server was restarted") for call in calls if call]
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
