"""Recovers from a server that died: ends or continues its turn, and adds pending messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct, field

from treadle.engine.conversation import instructions
from treadle.engine.conversation.history import open_calls
from treadle.engine.conversation.input import message
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
from treadle.engine.turn import ItemInProgress, PendingInput
from treadle.model.base import ModelItem
from treadle.protocol import notifications as n
from treadle.protocol.error import TurnError
from treadle.protocol.item import (
    EnteredReviewModeThreadItem,
    ExitedReviewModeThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    ThreadItem,
    UserMessageThreadItem,
    times_of,
    with_times,
)
from treadle.protocol.method import Notification
from treadle.protocol.queue import QueuedSubmission
from treadle.protocol.server_requests import ITEM_TOOL_CALL, ITEM_TOOL_REQUEST_USER_INPUT
from treadle.protocol.turn import Turn, TurnCompletedNotification, TurnStartedNotification
from treadle.store.journal import Entry, Event, Journal
from treadle.store.records import (
    AnyRecord,
    ClientMessage,
    GrantsDropped,
    HistoryItem,
    InputConsumed,
    InputQueued,
    RequestOpened,
    TurnAdjusted,
    TurnContext,
)
from treadle.store.rollout.replay import preview
from treadle.store.stored_thread import MAX_PREVIEW_CHARACTERS, StoredThread
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.state import ThreadState

P = TypeVar("P", bound=msgspec.Struct)

SERVER_ENDED: Final = TurnError(
    "the server ended while this turn was running", codex_error_info="other"
)
RESTARTED_OUTPUT = "aborted: the server was restarted"
ENDED_BEFORE = "The server was restarted after this call had ended. Known result:"
REVIEW_LOST = "The review was lost: the server ended before the reviewer had finished."


class SuspendedTurn(Struct, frozen=True):
    """A turn of an earlier server with calls that wait for answers."""

    turn: Turn
    items: list[ItemStartedNotification]
    calls: list[ToolCall]
    requests: dict[str, RequestOpened]
    context: TurnContext | None = None
    # Settings that differ from the thread's.
    adjusted: TurnAdjusted | None = None
    # Accepted input that the turn has not consumed.
    inputs: list[InputQueued] = field(default_factory=list)

    def restore_turn(self, thread: ThreadState) -> LiveTurn:
        """Restore the turn in a loaded thread."""
        turn = LiveTurn(self.turn.id, thread.id, thread.log, thread.services.clock)
        turn.state, turn.root_id = "running", self.turn.root_turn_id
        turn.started_at_ms = (self.turn.started_at or 0) * 1000
        if self.context is not None and self.context.turn_id == turn.id:
            turn.output_schema, turn.budget = self.context.output_schema, self.context.budget
        if self.adjusted is not None and self.adjusted.turn_id == turn.id:
            turn.overrides = dict(self.adjusted.changes)
        for started in self.items:
            turn.open_items[started.item.id] = ItemInProgress(
                started.started_at_ms, partial(_same, started.item)
            )
        turn.pending_input = [PendingInput.from_record(record) for record in self.inputs]
        return turn


def _same(item: ThreadItem) -> ThreadItem:
    return item


class _Entries:
    """Journal entries written on behalf of the earlier server; numbered after its last event."""

    def __init__(self, journal: Journal, stored: StoredThread, now_ms: int) -> None:
        self._journal = journal
        self._stored = stored
        self._now_ms = now_ms
        self._seq = journal.last_seq
        self._entries: list[Entry] = []

    def publish(self, method: Notification[P], params: P, *records: AnyRecord) -> None:
        self._seq += 1
        self._entries += [*records, Event(self._seq, self._now_ms, method.method, params)]

    def remember(self, *items: ModelItem) -> list[HistoryItem]:
        """Add items to the model's history; return the records to store."""
        self._stored.history.extend(items)
        return [HistoryItem(item) for item in items]

    def record(self, *records: AnyRecord) -> None:
        self._entries += records

    def publish_item(self, turn: Turn, item: ThreadItem, *records: AnyRecord) -> None:
        """Publish the start and the end of an item."""
        thread_id, now = self._stored.meta.id, self._now_ms
        item = with_times(item, now, None)
        self.publish(n.ITEM_STARTED, ItemStartedNotification(item, now, thread_id, turn.id))
        self.complete(turn, item, *records)

    def complete(self, turn: Turn, item: ThreadItem, *records: AnyRecord) -> None:
        thread_id, now = self._stored.meta.id, self._now_ms
        item = with_times(item, times_of(item)[0], now)
        params = ItemCompletedNotification(now, item, thread_id, turn.id)
        self.publish(n.ITEM_COMPLETED, params, *records)
        turn.items.append(item)

    def write(self) -> None:
        self._journal.append(self._entries, may_fill=True)


def recover(
    journal: Journal, stored: StoredThread, now_ms: int, is_waiting: Callable[[str], bool]
) -> SuspendedTurn | None:
    """Clean up after an earlier server; return the turn to continue, if there is one.

    `is_waiting` says whether another thread waits for an answer too.
    """
    suspended = _find_suspended(journal, stored, is_waiting)
    _end_open_items(journal, stored, now_ms, suspended)
    if suspended is None:
        _end_unfinished_turn(journal, stored, now_ms)
        if stored.grants:
            # Session grants end with the session.
            journal.append([GrantsDropped()], may_fill=True)
    return suspended


def calls_to_repeat(stored: StoredThread, is_waiting: Callable[[str], bool]) -> list[ToolCall]:
    """Return the calls that only waited for answers when the server ended.

    Calls that were running are not repeated: they may have had effects.
    """
    requesting = _requesting_calls(stored)
    return [
        call
        for call in _unfinished_calls(stored)
        if call.id in requesting or any(map(is_waiting, _agents_waited_for(call, stored.meta.id)))
    ]


def has_open_call(stored: StoredThread) -> bool:
    """Whether a call of the thread itself, not of a sub-agent, waited for an answer."""
    requesting = _requesting_calls(stored)
    return any(call.id in requesting for call in _unfinished_calls(stored))


def agents_waited_for(stored: StoredThread) -> Sequence[str]:
    """Return the sub-agents that a thread was waiting for when its server ended, each once."""
    calls = _unfinished_calls(stored)
    ids = (id_ for call in calls for id_ in _agents_waited_for(call, stored.meta.id))
    return list(dict.fromkeys(ids))


def _requesting_calls(stored: StoredThread) -> set[str | None]:
    return {request.call_id for request in _open_requests(stored).values()}


def _open_requests(stored: StoredThread) -> dict[str, RequestOpened]:
    return {
        id_: request
        for id_, request in stored.open_requests.items()
        if request.turn_id == stored.running_turn and request.kind == "resumable"
    }


def _unfinished_calls(stored: StoredThread) -> list[ToolCall]:
    if stored.running_turn is None:
        return []
    return [call for call in map(read_call, open_calls(stored.history)) if call is not None]


def _agents_waited_for(call: ToolCall, thread_id: str) -> Sequence[str]:
    if call.name != WAIT:
        return ()
    try:
        targets = read_arguments(call, WaitArguments).distinct_targets()
    except ToolRefused:
        return ()
    # Ids grow with time, and a sub-agent is younger than its parent: this excludes cycles.
    return [target for target in targets if target > thread_id]


def _find_suspended(
    journal: Journal, stored: StoredThread, is_waiting: Callable[[str], bool]
) -> SuspendedTurn | None:
    """Return the turn that only waited for answers when its server ended, if there is one."""
    turn, repeated = _unfinished_turn(stored), calls_to_repeat(stored, is_waiting)
    if turn is None or not repeated:
        return None
    calls, repeated_ids = _unfinished_calls(stored), {call.id for call in repeated}
    outputs = [_output(stored, call) for call in calls if call.id not in repeated_ids]
    journal.append([HistoryItem(output) for output in outputs], may_fill=True)
    stored.history.extend(outputs)
    items = [started for started in stored.open_items if started.item.id in repeated_ids]
    return SuspendedTurn(
        turn,
        items,
        repeated,
        _open_requests(stored),
        stored.settings,
        stored.adjusted,
        list(stored.inputs.values()),
    )


def _output(stored: StoredThread, call: ToolCall) -> ModelItem:
    """Return the output of a call that is not repeated, as far as it is known."""
    output = stored.outputs.get(call.id)
    if output is not None:
        return output
    # The server may have died after an answer or an item's end, before it stored the output.
    method, answer = stored.answers.get(call.id, ("", None))
    if method == ITEM_TOOL_REQUEST_USER_INPUT.method:
        return output_item(call, msgspec.json.encode(answer).decode())
    turn = _unfinished_turn(stored)
    item = next((item for item in turn.items if item.id == call.id), None) if turn else None
    # The answer of a client tool is its complete result.
    result = item or (answer if method == ITEM_TOOL_CALL.method else None)
    if result is None:
        return output_item(call, RESTARTED_OUTPUT)
    text = truncate(msgspec.json.encode(result).decode(), DEFAULT_TOKENS)
    return output_item(call, f"{ENDED_BEFORE}\n{text}")


def _end_open_items(
    journal: Journal, stored: StoredThread, now_ms: int, suspended: SuspendedTurn | None
) -> None:
    """Complete the open items as failed, except those that wait for an answer."""
    kept = {started.item.id for started in suspended.items} if suspended else set()
    turns = {turn.id: turn for turn in stored.turns}
    entries = _Entries(journal, stored, now_ms)
    for started in stored.open_items:
        if started.item.id in kept or getattr(started.item, "status", None) != "inProgress":
            continue
        item = msgspec.structs.replace(
            started.item, status="failed", started_at_ms=started.started_at_ms
        )
        entries.complete(turns[started.turn_id], item)
    entries.write()


def end_orphans(turn: LiveTurn, calls: Sequence[ToolCall], tools: ToolRegistry) -> None:
    """Complete as failed the open items of tools that no longer exist."""
    for call in calls:
        open_item = turn.open_items.get(call.id)
        if open_item is None or tools.find(call) is not None:
            continue
        item = open_item.current()
        if getattr(item, "status", None) == "inProgress":
            turn.complete_item(msgspec.structs.replace(item, status="failed"))


def _end_unfinished_turn(journal: Journal, stored: StoredThread, now_ms: int) -> None:
    """End the turn that was active when its server died, and add its pending input."""
    entries = _Entries(journal, stored, now_ms)
    turn = _unfinished_turn(stored) or _start_accepted_turn(entries, stored, now_ms)
    if turn is not None:
        outputs = [_output(stored, call) for call in _unfinished_calls(stored)]
        entries.record(*entries.remember(*outputs))
    _add_pending_input(entries, stored, turn)
    if turn is not None:
        _end(entries, stored, turn, now_ms)
    entries.write()


def _unfinished_turn(stored: StoredThread) -> Turn | None:
    return next((turn for turn in stored.turns if turn.id == stored.running_turn), None)


def _start_accepted_turn(entries: _Entries, stored: StoredThread, now_ms: int) -> Turn | None:
    """Start the turn that the server had accepted but not started when it died."""
    known = {turn.id for turn in stored.turns}
    ids = [record.turn_id for record in stored.inputs.values()]
    turn_id = next((id_ for id_ in ids if id_ is not None and id_ not in known), None)
    if turn_id is None:
        return None
    turn = Turn(turn_id, [], "inProgress", started_at=now_ms // 1000, root_turn_id=turn_id)
    snapshot = msgspec.structs.replace(turn, items_view="notLoaded")
    entries.publish(n.TURN_STARTED, TurnStartedNotification(stored.meta.id, snapshot))
    stored.turns.append(turn)
    return turn


def _add_pending_input(entries: _Entries, stored: StoredThread, turn: Turn | None) -> None:
    """Consume the pending input on behalf of the turn."""
    for record in stored.inputs.values():
        records: list[AnyRecord] = [*entries.remember(*record.items), InputConsumed(record.id)]
        item: ThreadItem | None = record.output
        if record.content:
            item = message_item(record)
            if not stored.meta.preview:
                text = preview(item)[:MAX_PREVIEW_CHARACTERS]
                stored.meta = msgspec.structs.replace(stored.meta, preview=text)
        if item is None or turn is None or record.turn_id != turn.id:
            entries.record(*records)
        else:
            entries.publish_item(turn, item, *records)
    stored.inputs.clear()


def message_item(record: InputQueued) -> UserMessageThreadItem:
    """Return the item of a pending user message; its id is the same each time."""
    return UserMessageThreadItem(record.content, id=record.id, client_id=record.client_id)


def add_accepted_input(stored: StoredThread, *, is_running: bool = False) -> None:
    """Add accepted input to the turns of a thread that is only read.

    Loading the thread does the same and stores the result. A server that runs the thread will
    publish the same items.
    """
    for record in stored.inputs.values():
        item = message_item(record) if record.content else record.output
        if item is None or record.turn_id is None:
            continue
        turn = next((turn for turn in stored.turns if turn.id == record.turn_id), None)
        if turn is None:
            turn = Turn(record.turn_id, [], "inProgress", root_turn_id=record.turn_id)
            if not is_running:
                turn = msgspec.structs.replace(turn, status="interrupted", error=SERVER_ENDED)
            stored.turns.append(turn)
        turn.items.append(item)


def _end(entries: _Entries, stored: StoredThread, turn: Turn, now_ms: int) -> None:
    _leave_review(entries, turn)
    entries.record(*entries.remember(message("user", instructions.RESTARTED)))
    ended = msgspec.structs.replace(
        turn,
        status="interrupted",
        completed_at=now_ms // 1000,
        error=SERVER_ENDED,
    )
    snapshot = msgspec.structs.replace(ended, items=[], items_view="notLoaded")
    entries.publish(n.TURN_COMPLETED, TurnCompletedNotification(stored.meta.id, snapshot))
    stored.running_turn = None
    stored.turns = [ended if each.id == ended.id else each for each in stored.turns]


def _leave_review(entries: _Entries, turn: Turn) -> None:
    """Leave review mode if the turn is in it."""
    kinds = {type(item) for item in turn.items}
    if EnteredReviewModeThreadItem in kinds and ExitedReviewModeThreadItem not in kinds:
        entries.publish_item(turn, ExitedReviewModeThreadItem(uuid7(), REVIEW_LOST))


def waiting(stored: StoredThread) -> list[QueuedSubmission]:
    """Return the queued input that no turn has received.

    A server that is killed while a turn takes its input leaves it in both.
    """
    received = received_messages(stored)
    return [each for each in stored.queue if each.client_user_message_id not in received]


def received_messages(stored: StoredThread) -> dict[str, ClientMessage]:
    """Return the messages that are in a turn or pending; a client may send others again."""
    ids = {
        item.client_id
        for turn in stored.turns
        for item in turn.items
        if isinstance(item, UserMessageThreadItem)
    }
    ids |= {record.client_id for record in stored.inputs.values()}
    return {id_: known for id_, known in stored.client_messages.items() if id_ in ids}
