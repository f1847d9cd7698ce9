"""A loaded thread: its settings, its log, the model's view of it, and the turn that runs in it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from treadle.engine import instructions
from treadle.engine.agent import Agent
from treadle.engine.budget import Meter
from treadle.engine.context import describe, turn_context
from treadle.engine.docs import ProjectDocs, read_project_docs
from treadle.engine.errors import (
    InvalidInput,
    MessageConflict,
    NoActiveTurn,
    TurnNotSteerable,
    WrongTurn,
)
from treadle.engine.goal import Goals
from treadle.engine.history import History
from treadle.engine.input import message, to_model_items
from treadle.engine.log import EventLog
from treadle.engine.settings import Settings
from treadle.engine.tools.registry import Toolbox
from treadle.engine.turn import STATUS, Message, Turn, TurnKind
from treadle.engine.usage import Ledger, breakdown
from treadle.model.base import Completed, Model, ModelItem
from treadle.model.retry import RetryPolicy
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.extension import Budget
from treadle.protocol.goal import ThreadGoal
from treadle.protocol.input import TextUserInput, UserInput
from treadle.protocol.item import ItemStartedNotification
from treadle.protocol.response_item import RawResponseItemCompletedNotification
from treadle.protocol.settings import ThreadSettingsUpdatedNotification
from treadle.protocol.status import (
    IdleThreadStatus,
    ThreadStatus,
    ThreadStatusChangedNotification,
)
from treadle.protocol.thread import Thread as ThreadSnapshot
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.protocol.turn import TurnStartParams, TurnSteerParams
from treadle.protocol.usage import ThreadTokenUsageUpdatedNotification
from treadle.store.journal import Journal
from treadle.store.records import ClientMessage, UsageRecord
from treadle.store.thread import ThreadMeta, to_thread
from treadle.support.clock import NowMs
from treadle.support.ids import uuid7
from treadle.support.tasks import Nursery


class Surroundings(Protocol):
    """What a thread needs of the server around it."""

    clock: NowMs
    tasks: Nursery
    home: Path

    def model(self, settings: Settings) -> tuple[Model, RetryPolicy]:
        """The model provider that these settings name, ready to be asked."""
        ...

    def tools(self, thread: Thread) -> Toolbox:
        """The tools that a thread has."""
        ...

    def on_rate_limits(self, snapshot: JsonValue) -> None:
        """Pass on what a provider said of its limits."""
        ...

    def on_turn_ended(self, thread: Thread, turn: Turn) -> None:
        """Look after a thread whose turn is over."""
        ...


@dataclass(slots=True)
class Loaded:
    """What is known of a thread when it is loaded."""

    meta: ThreadMeta
    settings: Settings
    history: Sequence[ModelItem] = ()
    ledger: Ledger | None = None
    client_messages: dict[str, ClientMessage] | None = None
    budget: Budget | None = None
    goal: ThreadGoal | None = None
    # Whether the model was told of its surroundings before.
    has_context: bool = False


class Thread:
    """One conversation in memory; one turn runs at a time."""

    def __init__(self, journal: Journal, loaded: Loaded, around: Surroundings) -> None:
        self.id = loaded.meta.id
        self.meta = loaded.meta
        self.settings = loaded.settings
        self.journal = journal
        self.log = EventLog(journal, around.clock, open_items=self._open_items)
        self.history = History(journal, loaded.history)
        self.ledger = loaded.ledger or Ledger()
        self.status: ThreadStatus = IdleThreadStatus()
        self.turn: Turn | None = None
        self.goals = Goals(self.id, journal, self.log, around.clock, loaded.goal)
        self.tools = around.tools(self)
        self._around = around
        self._client_messages = loaded.client_messages or {}
        self._told_context: tuple[object, ...] | None = None
        self._has_context = loaded.has_context
        self._meter = Meter(loaded.budget, "thread") if loaded.budget else None
        self._turn_meter: Meter | None = None
        self._turn_tokens = 0

    # -- turns

    def begin_turn(self, params: TurnStartParams) -> tuple[Turn, Callable[[], None] | None]:
        """Accept input: for a new turn, or for the one that runs.

        Gives the turn, and what starts it once the client has had its answer.

        Raises:
            InvalidInput: the input cannot be used.
            MessageConflict: the message id was used for other content.
        """
        known = self._known_turn(params.client_user_message_id, params.input)
        if known is not None:
            return known, None
        # Refuses what cannot be read before anything is promised.
        said = _message(params)
        self.update_settings(self.settings.overridden_by(params))
        if self.turn is not None:
            self._check_steerable(self.turn)
            self.turn.waiting.append(said)
            self._note(said, self.turn)
            return self.turn, None
        turn = self._new_turn("regular", params)
        turn.waiting = [said] if params.input else []
        self._note(said, turn)
        return turn, lambda: self._start(turn)

    def begin_compaction(self) -> Callable[[], None]:
        """Accept a compaction; gives what starts it.

        Raises:
            InvalidInput: a turn is running.
        """
        if self.turn is not None:
            raise InvalidInput("threadId", f"thread {self.id} has an active turn")
        turn = self._new_turn("compact", None)
        return lambda: self._start(turn)

    def steer(self, params: TurnSteerParams) -> Turn:
        """Give more input to the turn that runs; the model reads it after its current answer.

        Raises:
            EngineError: nothing runs, something else runs, or the input cannot be used.
        """
        if not params.expected_turn_id:
            raise InvalidInput("expectedTurnId", "expectedTurnId must not be empty")
        known = self._known_turn(params.client_user_message_id, params.input)
        if known is not None:
            return known
        turn = self._active("steer", params.expected_turn_id)
        self._check_steerable(turn)
        if not params.input:
            raise InvalidInput("input", "input must not be empty")
        said = _message(params)
        turn.waiting.append(said)
        self._note(said, turn)
        return turn

    def interrupt(self, turn_id: str) -> Callable[[], None]:
        """Agree to stop the turn that runs; gives what stops it.

        Raises:
            EngineError: nothing runs, or another turn.
        """
        turn = self._active("interrupt", turn_id)
        return lambda: self._stop(turn)

    def _active(self, purpose: Literal["steer", "interrupt"], expected: str) -> Turn:
        if self.turn is None:
            raise NoActiveTurn(purpose)
        if self.turn.id != expected:
            raise WrongTurn(expected, self.turn.id)
        return self.turn

    def _check_steerable(self, turn: Turn) -> None:
        if turn.kind in ("review", "compact"):
            raise TurnNotSteerable(turn.kind)

    def _new_turn(self, kind: TurnKind, params: TurnStartParams | None) -> Turn:
        turn = Turn(uuid7(), self.id, self.log, self._around.clock, kind)
        if params is not None:
            turn.root_id = params.root_turn_id
            turn.output_schema = params.output_schema
            turn.budget = params.budget
        self._turn_meter = Meter(turn.budget, "turn") if turn.budget else None
        self.turn = turn
        return turn

    def _start(self, turn: Turn) -> None:
        agent = Agent(self, turn)
        agent.begin()
        turn.task = self._around.tasks.spawn(agent.run(), f"turn {turn.id}")
        turn.task.add_done_callback(lambda _task: agent.ensure_ended())

    def _stop(self, turn: Turn) -> None:
        if turn.task is not None:
            turn.task.cancel()

    def turn_ended(self, turn: Turn) -> None:
        """Be ready for the next turn; while there is a goal, begin it."""
        self.turn = None
        self._turn_meter = None
        self._around.on_turn_ended(self, turn)
        took = turn.snapshot().duration_ms or 0
        used, self._turn_tokens = self._turn_tokens, 0
        status = STATUS[turn.state]
        if self.goals.after_turn(status, used, took // 1000, turn.id):
            self.pursue_goal()

    def pursue_goal(self) -> None:
        """Begin a turn that works towards the goal, if none runs."""
        goal = self.goals.current
        if goal is None or self.turn is not None or self._around.tasks.is_closed:
            return
        turn = self._new_turn("regular", None)
        self.history.add(message("user", instructions.goal(goal.objective)))
        self._start(turn)

    # -- idempotency

    def _known_turn(self, client_id: str | None, content: list[UserInput]) -> Turn | None:
        known = self._client_messages.get(client_id) if client_id is not None else None
        if known is None or client_id is None:
            return None
        if known.digest != _digest(content):
            raise MessageConflict(client_id)
        if self.turn is not None and self.turn.id == known.turn_id:
            return self.turn
        # It ended before, perhaps under another server: the answer is the same turn.
        past = Turn(known.turn_id, self.id, self.log, self._around.clock)
        past.state = "completed"
        return past

    def _note(self, said: Message, turn: Turn) -> None:
        if said.client_id is not None:
            record = ClientMessage(said.client_id, _digest(said.content), turn.id, turn.kind)
            self._client_messages[said.client_id] = record
            self.journal.append([record], sync=True)

    # -- what the agent asks for

    def model(self) -> tuple[Model, RetryPolicy]:
        """The model to ask."""
        return self._around.model(self.settings)

    def meters(self, turn: Turn) -> list[Meter]:
        """The budgets that a model request of this turn counts against."""
        meters = (self._meter, self._turn_meter if turn is self.turn else None)
        return [meter for meter in meters if meter is not None]

    def count(self, turn: Turn, completed: Completed) -> None:
        """Enter a response into the ledger and tell the new totals."""
        usage = completed.usage
        response_id = completed.response_id or uuid7()
        if usage is None or not self.ledger.add(response_id, usage):
            return
        self._turn_tokens += self.ledger.last.total_tokens
        self.ledger.context_window = self.settings.context_window
        for meter in self.meters(turn):
            meter.charge(self.ledger.last.total_tokens)
        self.journal.append(
            [
                UsageRecord(
                    turn.id,
                    response_id,
                    breakdown(usage),
                    self.ledger.total,
                    self.ledger.context_window,
                )
            ]
        )
        self.log.tell(
            n.THREAD_TOKEN_USAGE_UPDATED,
            ThreadTokenUsageUpdatedNotification(
                thread_id=self.id, token_usage=self.ledger.to_protocol(), turn_id=turn.id
            ),
        )

    def is_nearly_full(self) -> bool:
        """Whether the next request might not fit into the model's context."""
        window = self.settings.context_window
        limit = self.settings.auto_compact_limit or (window and window * 9 // 10)
        return bool(limit) and self.ledger.last.total_tokens >= (limit or 0) and self._can_shrink()

    def _can_shrink(self) -> bool:
        return any(item.get("role") == "assistant" for item in self.history.items)

    def on_rate_limits(self, snapshot: JsonValue) -> None:
        """Pass on what the provider said of its limits."""
        self._around.on_rate_limits(snapshot)

    def remember(self, turn: Turn, *items: ModelItem) -> None:
        """Add to the model's view; clients that asked for it are shown the raw items."""
        self.history.add(*items)
        if self.settings.tells_raw_events:
            for item in items:
                raw: JsonValue = item
                params = RawResponseItemCompletedNotification(raw, self.id, turn.id)
                self.log.tell(n.RAW_RESPONSE_ITEM_COMPLETED, params)

    def said(self, message: Message) -> None:
        """Note the user's first words: a list of threads shows them."""
        if self.meta.preview:
            return
        texts = [part.text for part in message.content if isinstance(part, TextUserInput)]
        if any(texts):
            self.meta = msgspec.structs.replace(self.meta, preview="\n".join(texts))

    def tell_context(self, turn: Turn) -> None:
        """Store what the turn runs under; tell the model where it is, once and after a change."""
        self.journal.append([turn_context(self.settings, turn)])
        told = (self.settings.cwd, self.settings.sandbox, self.settings.approval_policy)
        is_known = self._told_context == told or (self._told_context is None and self._has_context)
        self._told_context = told
        if not is_known:
            self._has_context = True
            self.remember(turn, *self.context_items())

    def context_items(self) -> list[ModelItem]:
        """The messages that describe the surroundings."""
        return describe(self.settings, self.project_docs(), self._around.clock())

    def project_docs(self) -> ProjectDocs:
        """The AGENTS.md files that apply here."""
        return read_project_docs(Path(self.settings.cwd), home=self._around.home)

    # -- what clients are told

    def set_status(self, status: ThreadStatus) -> None:
        """Change the status and tell it, if it is another."""
        if status != self.status:
            self.status = status
            params = ThreadStatusChangedNotification(status=status, thread_id=self.id)
            self.log.tell(n.THREAD_STATUS_CHANGED, params)

    def update_settings(self, settings: Settings) -> None:
        """Run later turns under other settings, and tell."""
        if settings != self.settings:
            self.settings = settings
            params = ThreadSettingsUpdatedNotification(self.id, settings.to_protocol())
            self.log.tell(n.THREAD_SETTINGS_UPDATED, params)

    def snapshot(self, turns: list[TurnSnapshot] | None = None) -> ThreadSnapshot:
        """The thread as clients see it."""
        return to_thread(self.meta, self.status, turns or [])

    def rewind(self, history: Sequence[ModelItem]) -> None:
        """Go on from an earlier view of the conversation."""
        self.history = History(self.journal, history)
        self._told_context = None
        self._has_context = bool(history)

    def _open_items(self) -> Sequence[ItemStartedNotification]:
        return self.turn.open_item_events() if self.turn is not None else ()


def _message(params: TurnStartParams | TurnSteerParams) -> Message:
    items = to_model_items(params.input)
    return Message(params.input, items, params.client_user_message_id)


def _digest(content: list[UserInput]) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()
