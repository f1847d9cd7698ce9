"""What a server that died left behind: turns without an end, messages that nobody took up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from treadle.engine.conversation import instructions
from treadle.engine.conversation.history import open_calls
from treadle.engine.conversation.input import message
from treadle.engine.stored_threads import SERVER_ENDED
from treadle.engine.tools.agent_calls import WAIT, WaitArguments
from treadle.engine.tools.output import DEFAULT_TOKENS, truncate
from treadle.engine.tools.registry import (
    ToolCall,
    ToolRefused,
    ToolRegistry,
    output_item,
    read_arguments,
    read_call,
)
from treadle.engine.turn import ActiveTurn as LiveTurn
from treadle.engine.turn import ItemInProgress, Message
from treadle.model.base import ModelItem
from treadle.protocol import notifications as n
from treadle.protocol.item import (
    EnteredReviewModeThreadItem,
    ExitedReviewModeThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    ThreadItem,
    UserMessageThreadItem,
)
from treadle.protocol.method import Notification
from treadle.protocol.server_requests import ITEM_TOOL_CALL, ITEM_TOOL_REQUEST_USER_INPUT
from treadle.protocol.turn import Turn, TurnCompletedNotification, TurnStartedNotification
from treadle.store.journal import Entry, Event, Journal
from treadle.store.records import (
    AnyRecord,
    ClientMessage,
    GrantsDropped,
    HistoryItem,
    InputGiven,
    InputTaken,
    RequestOpened,
    TurnAdjusted,
    TurnContext,
)
from treadle.store.rollout.replay import preview
from treadle.store.stored_thread import StoredThread
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread

P = TypeVar("P", bound=msgspec.Struct)

RESTARTED_OUTPUT = "aborted: the server was restarted"
ENDED_BEFORE = "The server was restarted after this call had ended. What is known of its end:"
REVIEW_LOST = "The review was lost: the server ended before the reviewer had finished."


@dataclass(frozen=True, slots=True)
class Waiting:
    """A turn that waits for answers to some of its calls, though its server is gone."""

    turn: Turn
    items: list[ItemStartedNotification]
    calls: list[ToolCall]
    asks: dict[str, RequestOpened]
    context: TurnContext | None = None
    # What it does otherwise than its thread.
    adjusted: TurnAdjusted | None = None
    # What it was given and has not taken up.
    inputs: list[InputGiven] = field(default_factory=list)

    def turn_in(self, thread: LoadedThread) -> LiveTurn:
        """The turn as it stood, in a thread that goes on with it."""
        turn = LiveTurn(self.turn.id, thread.id, thread.log, thread.services.clock)
        turn.state, turn.root_id = "running", self.turn.root_turn_id
        turn.started_at_ms = (self.turn.started_at or 0) * 1000
        if self.context is not None and self.context.turn_id == turn.id:
            turn.output_schema, turn.budget = self.context.output_schema, self.context.budget
        if self.adjusted is not None and self.adjusted.turn_id == turn.id:
            turn.changes = dict(self.adjusted.changes)
        for told in self.items:
            turn.open_items[told.item.id] = ItemInProgress(
                told.started_at_ms, partial(_same, told.item)
            )
        turn.waiting = [Message.left(given) for given in self.inputs]
        return turn


def _same(item: ThreadItem) -> ThreadItem:
    return item


class _Entries:
    """What is written on behalf of a server that is gone; its events follow its last one."""

    def __init__(self, journal: Journal, stored: StoredThread, now_ms: int) -> None:
        self._journal = journal
        self._stored = stored
        self._now_ms = now_ms
        self._seq = journal.last_seq
        self._entries: list[Entry] = []

    def tell(self, method: Notification[P], params: P, *records: AnyRecord) -> None:
        self._seq += 1
        self._entries += [*records, Event(self._seq, self._now_ms, method.method, params)]

    def remember(self, *items: ModelItem) -> list[HistoryItem]:
        """Add to the model's view; gives what has to be stored of that."""
        self._stored.history.extend(items)
        return [HistoryItem(item) for item in items]

    def note(self, *records: AnyRecord) -> None:
        self._entries += records

    def show(self, turn: Turn, item: ThreadItem, *records: AnyRecord) -> None:
        """Let an item begin and end."""
        thread_id, now = self._stored.meta.id, self._now_ms
        self.tell(n.ITEM_STARTED, ItemStartedNotification(item, now, thread_id, turn.id))
        self.complete(turn, item, *records)

    def complete(self, turn: Turn, item: ThreadItem, *records: AnyRecord) -> None:
        thread_id, now = self._stored.meta.id, self._now_ms
        told = ItemCompletedNotification(now, item, thread_id, turn.id)
        self.tell(n.ITEM_COMPLETED, told, *records)
        turn.items.append(item)

    def write(self) -> None:
        self._journal.append(self._entries)


def recover(
    journal: Journal, stored: StoredThread, now_ms: int, waits: Callable[[str], bool]
) -> Waiting | None:
    """Settle what an earlier server left; gives the turn that goes on, if one does.

    `waits` tells of another thread whether it waits for an answer too.
    """
    waiting = _find_waiting(journal, stored, waits)
    _end_left_items(journal, stored, now_ms, waiting)
    if waiting is None:
        _end_left_behind(journal, stored, now_ms)
        if stored.grants:
            # What was allowed for a session goes with it.
            journal.append([GrantsDropped()])
    return waiting


def calls_to_repeat(stored: StoredThread, waits: Callable[[str], bool]) -> list[ToolCall]:
    """The calls that only waited for answers when the server ended: they can be made again.

    Calls that were being carried out then are not tried again: they may have done their work.
    """
    asked = {ask.call_id for ask in _open_asks(stored).values()}
    return [
        call
        for call in _left_calls(stored)
        if call.id in asked or any(map(waits, _agents_waited_for(call, stored.meta.id)))
    ]


def agents_waited_for(stored: StoredThread) -> list[str]:
    """The agents that a thread was waiting for when its server ended."""
    calls = _left_calls(stored)
    return [id_ for call in calls for id_ in _agents_waited_for(call, stored.meta.id)]


def _open_asks(stored: StoredThread) -> dict[str, RequestOpened]:
    return {
        id_: ask
        for id_, ask in stored.open_asks.items()
        if ask.turn_id == stored.running_turn and ask.kind == "resumable"
    }


def _left_calls(stored: StoredThread) -> list[ToolCall]:
    if stored.running_turn is None:
        return []
    return [call for call in map(read_call, open_calls(stored.history)) if call is not None]


def _agents_waited_for(call: ToolCall, thread_id: str) -> Sequence[str]:
    if call.name != WAIT:
        return ()
    try:
        targets = read_arguments(call, WaitArguments).targets
    except ToolRefused:
        return ()
    # Ids grow with time, and an agent is younger than its parent: no circle is followed.
    return [target for target in targets if target > thread_id]


def _find_waiting(
    journal: Journal, stored: StoredThread, waits: Callable[[str], bool]
) -> Waiting | None:
    """The turn that was waiting for answers when its server ended, if there is one."""
    turn, again = _left_turn(stored), calls_to_repeat(stored, waits)
    if turn is None or not again:
        return None
    calls, waiting = _left_calls(stored), {call.id for call in again}
    notes = [_output(stored, call) for call in calls if call.id not in waiting]
    journal.append([HistoryItem(note) for note in notes])
    stored.history.extend(notes)
    items = [told for told in stored.open_items if told.item.id in waiting]
    return Waiting(
        turn,
        items,
        again,
        _open_asks(stored),
        stored.settings,
        stored.adjusted,
        list(stored.inputs.values()),
    )


def _output(stored: StoredThread, call: ToolCall) -> ModelItem:
    """What came of a call that is not carried out again: as far as it is known, the truth."""
    known = stored.outputs.get(call.id)
    if known is not None:
        return known
    # The server died between hearing an answer, or telling the end of an item, and the output.
    method, answer = stored.answers.get(call.id, ("", None))
    if method == ITEM_TOOL_REQUEST_USER_INPUT.method:
        return output_item(call, msgspec.json.encode(answer).decode())
    turn = _left_turn(stored)
    item = next((item for item in turn.items if item.id == call.id), None) if turn else None
    # What a tool of the client's says is all that comes of calling it.
    end = item or (answer if method == ITEM_TOOL_CALL.method else None)
    if end is None:
        return output_item(call, RESTARTED_OUTPUT)
    text = truncate(msgspec.json.encode(end).decode(), DEFAULT_TOKENS)
    return output_item(call, f"{ENDED_BEFORE}\n{text}")


def _end_left_items(
    journal: Journal, stored: StoredThread, now_ms: int, waiting: Waiting | None
) -> None:
    """Complete what was told to be under way and is not, unless it waits for an answer."""
    kept = {told.item.id for told in waiting.items} if waiting else set()
    turns = {turn.id: turn for turn in stored.turns}
    entries = _Entries(journal, stored, now_ms)
    for told in stored.open_items:
        if told.item.id in kept or getattr(told.item, "status", None) != "inProgress":
            continue
        item = msgspec.structs.replace(told.item, status="failed")
        entries.complete(turns[told.turn_id], item)
    entries.write()


def end_orphans(turn: LiveTurn, calls: Sequence[ToolCall], tools: ToolRegistry) -> None:
    """Complete what was begun by tools that are not there any more."""
    for call in calls:
        begun = turn.open_items.get(call.id)
        if begun is None or tools.find(call) is not None:
            continue
        item = begun.current()
        if getattr(item, "status", None) == "inProgress":
            turn.complete_item(msgspec.structs.replace(item, status="failed"))


def _end_left_behind(journal: Journal, stored: StoredThread, now_ms: int) -> None:
    """End the turn that was running when its server died, and have what was said heard."""
    entries = _Entries(journal, stored, now_ms)
    turn = _left_turn(stored) or _promised_turn(entries, stored, now_ms)
    if turn is not None:
        outputs = [_output(stored, call) for call in _left_calls(stored)]
        entries.note(*entries.remember(*outputs))
    _hear(entries, stored, turn)
    if turn is not None:
        _end(entries, stored, turn, now_ms)
    entries.write()


def _left_turn(stored: StoredThread) -> Turn | None:
    return next((turn for turn in stored.turns if turn.id == stored.running_turn), None)


def _promised_turn(entries: _Entries, stored: StoredThread, now_ms: int) -> Turn | None:
    """Begin the turn that a client was promised, if the server died before it could."""
    known = {turn.id for turn in stored.turns}
    ids = [given.turn_id for given in stored.inputs.values()]
    turn_id = next((id_ for id_ in ids if id_ is not None and id_ not in known), None)
    if turn_id is None:
        return None
    turn = Turn(turn_id, [], "inProgress", started_at=now_ms // 1000, root_turn_id=turn_id)
    told = msgspec.structs.replace(turn, items_view="notLoaded")
    entries.tell(n.TURN_STARTED, TurnStartedNotification(stored.meta.id, told))
    stored.turns.append(turn)
    return turn


def _hear(entries: _Entries, stored: StoredThread, turn: Turn | None) -> None:
    """Take up what was given to the turn, in its place."""
    for given in stored.inputs.values():
        records: list[AnyRecord] = [*entries.remember(*given.items), InputTaken(given.id)]
        item: ThreadItem | None = given.output
        if given.content:
            item = message_item(given)
            if not stored.meta.preview:
                stored.meta = msgspec.structs.replace(stored.meta, preview=preview(item))
        if item is None or turn is None or given.turn_id != turn.id:
            entries.note(*records)
        else:
            entries.show(turn, item, *records)
    stored.inputs.clear()


def message_item(given: InputGiven) -> UserMessageThreadItem:
    """The message of a user that no turn has taken up; its id is the same each time."""
    return UserMessageThreadItem(given.content, id=given.id, client_id=given.client_id)


def show_promised(stored: StoredThread) -> None:
    """Add what clients were promised to the turns of a thread that is only read.

    Whoever loads the thread settles it in the same way, and stores that.
    """
    for given in stored.inputs.values():
        item = message_item(given) if given.content else given.output
        if item is None or given.turn_id is None:
            continue
        turn = next((turn for turn in stored.turns if turn.id == given.turn_id), None)
        if turn is None:
            turn = Turn(
                given.turn_id, [], "interrupted", error=SERVER_ENDED, root_turn_id=given.turn_id
            )
            stored.turns.append(turn)
        turn.items.append(item)


def _end(entries: _Entries, stored: StoredThread, turn: Turn, now_ms: int) -> None:
    _leave_review(entries, turn)
    entries.note(*entries.remember(message("user", instructions.RESTARTED)))
    ended = msgspec.structs.replace(
        turn,
        status="interrupted",
        completed_at=now_ms // 1000,
        error=SERVER_ENDED,
    )
    told = msgspec.structs.replace(ended, items=[], items_view="notLoaded")
    entries.tell(n.TURN_COMPLETED, TurnCompletedNotification(stored.meta.id, told))
    stored.running_turn = None
    stored.turns = [ended if each.id == ended.id else each for each in stored.turns]


def _leave_review(entries: _Entries, turn: Turn) -> None:
    """Leave review mode, if the turn has entered it and not left it."""
    kinds = {type(item) for item in turn.items}
    if EnteredReviewModeThreadItem in kinds and ExitedReviewModeThreadItem not in kinds:
        entries.show(turn, ExitedReviewModeThreadItem(uuid7(), REVIEW_LOST))


def heard_messages(stored: StoredThread) -> dict[str, ClientMessage]:
    """The messages that arrived: one whose turn ended before it was taken up may be sent again."""
    ids = {
        item.client_id
        for turn in stored.turns
        for item in turn.items
        if isinstance(item, UserMessageThreadItem)
    }
    ids |= {given.client_id for given in stored.inputs.values()}
    return {id_: known for id_, known in stored.client_messages.items() if id_ in ids}
