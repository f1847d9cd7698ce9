"""Replays the lines of a rollout into the state of a thread.

Lines with our mark are read in our own form; all others by their payload. This module does no
file access.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET

from treadle.protocol import notifications as n
from treadle.protocol.input import TextUserInput, UserInput
from treadle.protocol.item import (
    ItemCompletedNotification,
    ItemStartedNotification,
    UserMessageThreadItem,
)
from treadle.protocol.queue import QueuedSubmission
from treadle.protocol.turn import TurnCompletedNotification, TurnStartedNotification
from treadle.protocol.usage import ThreadTokenUsage
from treadle.store.records import (
    AgentClosed,
    CallCompleted,
    ClientMessage,
    Compacted,
    Decided,
    GoalChanged,
    Granted,
    GrantsDropped,
    HistoryItem,
    InputConsumed,
    InputQueued,
    MetadataChanged,
    Named,
    QueueOrder,
    ReadStateChanged,
    RequestAnswered,
    RequestOpened,
    RolledBack,
    SettingsChanged,
    SubmissionQueued,
    ToolsChanged,
    TurnAdjusted,
    TurnContext,
    UsageRecord,
)
from treadle.store.rollout.foreign.lines import ForeignReader
from treadle.store.rollout.format import Copy, Mark, OwnEvent, OwnMeta, RolloutLine, parse_time
from treadle.store.rollout.timeline import Timeline
from treadle.store.stored_thread import MAX_PREVIEW_CHARACTERS, StoredThread, ThreadMeta

logger = logging.getLogger(__name__)


class _Named(msgspec.Struct):
    id: str


class _Start(msgspec.Struct, rename="camel"):
    """The fields of a started item that every reader needs."""

    item: _Named
    started_at_ms: int
    turn_id: str


_STARTED: Final = n.ITEM_STARTED.method
_COMPLETED: Final = n.ITEM_COMPLETED.method
_item_completed: Final = msgspec.json.Decoder(ItemCompletedNotification)
_item_started: Final = msgspec.json.Decoder(ItemStartedNotification)
_start_of: Final = msgspec.json.Decoder(_Start)
_turn_started: Final = msgspec.json.Decoder(TurnStartedNotification)
_turn_completed: Final = msgspec.json.Decoder(TurnCompletedNotification)


class Replay:
    """Replays the lines of one thread, oldest first."""

    def __init__(
        self,
        meta: ThreadMeta,
        *,
        last_turn_id: str | None = None,
        before_turn_id: str | None = None,
    ) -> None:
        self._timeline = Timeline()
        self._foreign = ForeignReader(self._timeline, meta.model_provider)
        self._stored = StoredThread(meta)
        self._pending_after: TurnContext | None = None
        self._last_turn_id = last_turn_id
        self._before_turn_id = before_turn_id
        # Items in progress by id, needed only if their server died. A command may outlive its turn.
        self._started: dict[str, OwnEvent] = {}
        self._time = ""
        self._is_over = False
        self.last_ordinal = -1

    def feed(self, lines: Iterable[RolloutLine]) -> None:
        """Replay lines, up to the turn at which the thread is to be cut."""
        for line in lines:
            if self._is_over:
                return
            if line.ordinal is not None:
                self.last_ordinal = line.ordinal
            mark = line.treadle
            if not isinstance(mark, ReadStateChanged):  # reading does not change the thread
                self._time = line.timestamp or self._time
            try:
                if mark is UNSET:
                    self._foreign.read(line)
                elif isinstance(mark, OwnEvent):
                    self._event(mark)
                else:
                    self._record(mark)
            except Exception as error:  # noqa: BLE001  boundary: any program may have written it
                logger.warning("rollout line skipped", extra={"reason": str(error)})
            self._check_cut()

    def result(self) -> StoredThread:
        """Return the state of the thread so far."""
        stored, timeline = self._stored, self._timeline
        running = timeline.current
        if running is not None:
            stored.running_turn = running.id
        stored.open_items = self._open_items()
        stored.turns = [turn.to_turn() for turn in timeline.turns]
        stored.history = timeline.history
        stored.views = [(turn.history, turn.length) for turn in timeline.turns]
        stored.settings = self._foreign.settings
        if stored.settings is not self._pending_after:
            stored.pending_settings = None  # a later turn had its own settings
        stored.usage = self._foreign.usage
        stored.response_ids = self._foreign.response_ids
        stored.meta = self._final_meta()
        return stored

    def _final_meta(self) -> ThreadMeta:
        stored = self._stored
        meta, settings = stored.meta, stored.pending_settings or stored.settings
        updated = parse_time(self._time)
        starts = [turn.started_at for turn in self._timeline.turns if turn.started_at is not None]
        return msgspec.structs.replace(
            meta,
            preview=(meta.preview or _preview(stored))[:MAX_PREVIEW_CHARACTERS],
            updated_at=meta.updated_at if updated is None else updated // 1000,
            recency_at=starts[-1] if starts else meta.created_at,
            model=settings.model if settings else meta.model,
            model_provider=settings.provider if settings else meta.model_provider,
            reasoning_effort=settings.effort if settings else meta.reasoning_effort,
            cwd=settings.cwd if settings else meta.cwd,
        )

    def _open_items(self) -> list[ItemStartedNotification]:
        started = []
        for event in self._started.values():
            try:
                started.append(_item_started.decode(event.params))
            except msgspec.DecodeError as error:
                logger.warning("stored event skipped", extra={"reason": str(error)})
        return [event for event in started if self._timeline.find(event.turn_id) is not None]

    def _check_cut(self) -> None:
        if self._before_turn_id is not None:
            if self._timeline.find(self._before_turn_id) is not None:
                self._timeline.roll_back(None, self._before_turn_id)
                self._is_over = True
        elif self._last_turn_id is not None:
            last = self._timeline.find(self._last_turn_id)
            self._is_over = last is not None and last.status != "inProgress"

    def _event(self, event: OwnEvent) -> None:
        stored = self._stored
        stored.last_seq = max(stored.last_seq, event.seq)
        if event.method == _COMPLETED:
            done = _item_completed.decode(event.params)
            self._started.pop(done.item.id, None)
            self._timeline.add_item(done.turn_id, done.item, done.completed_at_ms)
        elif event.method == _STARTED:
            begun_item = _start_of.decode(event.params)
            at_ms, item_id = begun_item.started_at_ms, begun_item.item.id
            self._timeline.note_start(begun_item.turn_id, item_id, at_ms)
            self._started[item_id] = event
        elif event.method == n.TURN_STARTED.method:
            begun = _turn_started.decode(event.params).turn
            self._timeline.begin_turn(begun.id, begun.started_at or event.at_ms // 1000)
        elif event.method == n.TURN_COMPLETED.method:
            self._end_turn(_turn_completed.decode(event.params))

    def _end_turn(self, params: TurnCompletedNotification) -> None:
        ended = params.turn
        turn = self._timeline.begin_turn(ended.id, ended.started_at)
        turn.status = ended.status
        turn.error = ended.error
        turn.completed_at = ended.completed_at
        turn.duration_ms = ended.duration_ms
        turn.root_turn_id = ended.root_turn_id
        self._stored.outputs.clear()
        self._stored.answers.clear()

    def _record(self, mark: Mark) -> None:  # noqa: C901, PLR0912, PLR0915  one line for each kind
        stored, foreign = self._stored, self._foreign
        match mark:
            case TurnContext():
                foreign.settings = mark
            case SettingsChanged():
                stored.pending_settings, self._pending_after = mark.settings, foreign.settings
            case TurnAdjusted():
                stored.adjusted = mark
            case UsageRecord():
                foreign.usage = ThreadTokenUsage(mark.usage, mark.total, mark.context_window)
                foreign.response_ids.add(mark.response_id)
            case RolledBack():
                self._timeline.roll_back(mark.num_turns, mark.before_turn_id)
            case Named():
                stored.meta = msgspec.structs.replace(stored.meta, name=mark.name)
            case MetadataChanged():
                stored.meta = msgspec.structs.replace(stored.meta, git_info=mark.git_info)
            case ReadStateChanged():
                stored.meta = msgspec.structs.replace(stored.meta, read_state=mark.read_state)
            case GoalChanged():
                stored.goal = mark.goal
            case SubmissionQueued():
                stored.queue = _with_submission(stored.queue, mark.submission)
            case QueueOrder():
                by_id = {each.id: each for each in stored.queue}
                stored.queue = [by_id[id_] for id_ in mark.ids if id_ in by_id]
            case ToolsChanged():
                tools = mark.dynamic_tools or None
                stored.meta = msgspec.structs.replace(stored.meta, dynamic_tools=tools)
            case RequestOpened():
                stored.open_requests[mark.id] = mark
            case RequestAnswered():
                opened = stored.open_requests.pop(mark.id, None)
                if opened is not None and opened.call_id is not None and mark.answer is not None:
                    stored.answers[opened.call_id] = (opened.method, mark.answer)
            case Decided():
                pass  # for human readers
            case ClientMessage():
                stored.client_messages[mark.client_id] = mark
            case InputQueued():
                stored.inputs[mark.id] = mark
                stored.last_seq = max(stored.last_seq, mark.next_seq)
            case InputConsumed():
                stored.inputs.pop(mark.id, None)
            case Granted():
                stored.grants.append(mark)
            case GrantsDropped():
                stored.grants.clear()
            case AgentClosed():
                closed = stored.closed_agents
                (closed.add if mark.is_closed else closed.discard)(mark.id)
            case CallCompleted():
                stored.outputs[str(mark.item.get("call_id"))] = mark.item
            case HistoryItem():
                self._timeline.history.append(mark.item)
            case Compacted():
                self._timeline.replace_history(list(mark.replacement))
            case Copy() | OwnMeta() | OwnEvent():
                pass


def _preview(stored: StoredThread) -> str:
    for turn in stored.turns:
        for item in turn.items:
            if isinstance(item, UserMessageThreadItem):
                return preview(item)
    # Acknowledged, though no turn has consumed it.
    waiting = (given.content for given in stored.inputs.values() if given.content)
    return preview_of(next(waiting, []))


def preview(message: UserMessageThreadItem) -> str:
    """Return the text of a message."""
    return preview_of(message.content)


def preview_of(content: Iterable[UserInput]) -> str:
    """Return the text of input."""
    return "\n".join(part.text for part in content if isinstance(part, TextUserInput))


def _with_submission(
    queue: list[QueuedSubmission], submission: QueuedSubmission
) -> list[QueuedSubmission]:
    """Replace input with the same id, or append it."""
    if any(each.id == submission.id for each in queue):
        return [submission if each.id == submission.id else each for each in queue]
    return [*queue, submission]
