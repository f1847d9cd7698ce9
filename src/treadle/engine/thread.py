"""A loaded thread: its settings, its log, the model's view of it, and the turn that runs in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET

from treadle.engine.accounting.goals import Goals
from treadle.engine.accounting.thread_usage import UsageTracker
from treadle.engine.accounting.usage import breakdown
from treadle.engine.conversation import instructions
from treadle.engine.conversation.context import environments
from treadle.engine.conversation.input import NO_FILES, InputFiles, message
from treadle.engine.conversation.messages import ClientMessages
from treadle.engine.conversation.model_context import ModelContext
from treadle.engine.errors import InvalidInput, NoActiveTurn, TurnNotSteerable, WrongTurn
from treadle.engine.events.log import EventLog, OpenedRequest
from treadle.engine.events.server_requests import ServerRequests
from treadle.engine.loop import AgentLoop
from treadle.engine.mcp.servers import McpServers
from treadle.engine.services import EngineServices, LoadedState
from treadle.engine.settings import Profile, RunSettings
from treadle.engine.terminals.output_file import discard_outputs
from treadle.engine.terminals.terminals import Terminals
from treadle.engine.tools.registry import ToolCall, ToolRegistry
from treadle.engine.turn import ActiveTurn, Message, TurnKind, storage_error
from treadle.model.base import Completed, Model, ModelItem
from treadle.model.retry import RetryPolicy
from treadle.protocol import notifications as n
from treadle.protocol.item import ItemStartedNotification
from treadle.protocol.response_item import RawResponseCompletedNotification
from treadle.protocol.settings import ThreadSettingsUpdatedNotification
from treadle.protocol.status import (
    ActiveThreadStatus,
    IdleThreadStatus,
    SystemErrorThreadStatus,
    ThreadStatus,
    ThreadStatusChangedNotification,
)
from treadle.protocol.thread import Thread as ThreadSnapshot
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.protocol.turn import (
    TurnSettingsUpdateParams,
    TurnStartParams,
    TurnSteerParams,
)
from treadle.store.journal import Journal, StorageFailed
from treadle.store.records import Granted, TurnAdjusted
from treadle.store.stored_thread import to_thread
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.approvals.approvals import Approvals


logger = logging.getLogger(__name__)


class LoadedThread(ModelContext):
    """One conversation in memory; one turn runs at a time."""

    def __init__(self, journal: Journal, loaded: LoadedState, services: EngineServices) -> None:
        self.id = loaded.meta.id
        self.meta = loaded.meta
        self.settings = loaded.settings
        self.journal = journal
        self.services = services
        self.log = EventLog(
            journal,
            services.clock,
            open_items=self._open_items,
            open_asks=self._open_asks,
        )
        self.server_requests = ServerRequests(
            self.id, self.log, services.request_ids, self._on_asks, services.clock
        )
        self.server_requests.left = loaded.open_asks
        if (limits := loaded.settings.asks) is not None and limits.deadline_ms is not None:
            self.server_requests.deadline_s = limits.deadline_ms / 1000
        self.log.on_failure = self.storage_failed
        super().__init__(loaded)
        self.usage = UsageTracker(self.log, loaded.ledger, loaded.meter)
        self.status: ThreadStatus = IdleThreadStatus()
        self.turn: ActiveTurn | None = None
        self.closed_agents = set(loaded.closed_agents)
        self.goals = Goals(self.id, self.log, services.clock, loaded.goal)
        self.mcp = McpServers(services.mcp, tasks=services.tasks, home=services.home, thread=self)
        self.messages = ClientMessages(self.log, loaded.client_messages)
        self.terminals = Terminals(services.tasks)
        self._closers: list[Callable[[], None]] = [
            self.server_requests.close,
            self.terminals.close,
            self.mcp.close,
        ]
        if loaded.meta.ephemeral:
            self._closers.append(partial(discard_outputs, services.home, self.id))

    @cached_property
    def approvals(self) -> Approvals:
        """What was approved, and how to come by more; made when something wants approval."""
        from treadle.engine.approvals.approvals import Approvals

        return Approvals(self)

    @cached_property
    def tools(self) -> ToolRegistry:
        """What the model can call; made with the first turn, as not every thread gets one."""
        return self.services.tools(self)

    # -- turns

    def begin_turn(
        self,
        params: TurnStartParams,
        profile: Profile | None = None,
        *,
        files: InputFiles = NO_FILES,
    ) -> tuple[TurnSnapshot, Callable[[], None] | None]:
        """Accept input: for a new turn, or for the one that runs.

        Gives the turn, and what starts it once the client has had its answer; before that,
        `intake.input_stored` waits for the disk. The turn asks for the permissions of the profile.
        `files` holds what the input's files hold.

        Raises:
            InvalidInput: the input cannot be used.
            MessageConflict: the message id was used for other content.
            StorageFailed: the input cannot be stored.
        """
        if known := self.messages.turn_of(params.client_user_message_id, params.input):
            return self._known_turn(known), None
        said = self._message(params, files)

        def change_settings() -> None:
            self.update_settings(self.settings.overridden_by(params, profile))

        if self.turn is not None:
            self._check_steerable(self.turn)
            self._add_input(self.turn, said)
            return self.turn.snapshot(), change_settings
        turn = self._new_turn("regular", params)
        try:
            if said.content or said.output:
                self.expect(turn, said)
            else:
                self.messages.note(said, turn, ())
        except Exception:
            self.drop(turn)  # what could not be stored was not promised
            raise

        def start() -> None:
            change_settings()
            self._start(turn)

        return turn.snapshot(), start

    def drop(self, turn: ActiveTurn) -> None:
        """Forget a turn that was not promised to any client."""
        if self.turn is turn:
            self.turn = None
        turn.ended.set()

    def _known_turn(self, turn_id: str) -> TurnSnapshot:
        """The turn that took a message before, perhaps under another server."""
        if self.turn is not None and self.turn.id == turn_id:
            return self.turn.snapshot()
        return self.messages.past_turn(turn_id)

    def begin_other(self, kind: TurnKind) -> tuple[ActiveTurn, Callable[[], None]]:
        """Accept a turn that no input begins; gives it, and what starts it.

        Raises:
            InvalidInput: a turn is running.
        """
        if self.turn is not None:
            raise InvalidInput("threadId", f"thread {self.id} has an active turn")
        turn = self._new_turn(kind, None)
        return turn, lambda: self._start(turn)

    def steer(self, params: TurnSteerParams, *, files: InputFiles = NO_FILES) -> str:
        """Give more input to the turn that runs; the model reads it after its current answer.

        Raises:
            EngineError: nothing runs, something else runs, or the input cannot be used.
        """
        if not params.expected_turn_id:
            raise InvalidInput("expectedTurnId", "expectedTurnId must not be empty")
        if known := self.messages.turn_of(params.client_user_message_id, params.input):
            return known
        turn = self._active("steer", params.expected_turn_id)
        self._check_steerable(turn)
        if not params.input:
            raise InvalidInput("input", "input must not be empty")
        said = self._message(params, files)
        self._add_input(turn, said)
        return turn.id

    def _add_input(self, turn: ActiveTurn, said: Message) -> None:
        try:
            self.expect(turn, said)
        except StorageFailed as failure:
            self.storage_failed(failure)
            raise
        # Whoever waits for other agents has something better to do now.
        self.services.agents.wake()

    def adjust_turn(self, params: TurnSettingsUpdateParams) -> bool:
        """Let the turn that runs go on under other settings; false if it does not run."""
        turn = self.turn
        if turn is None or turn.id != params.turn_id:
            return False
        turn.adjust(
            model=params.model,
            effort=params.effort,
            summary=params.summary,
            approvals_reviewer=params.approvals_reviewer,
        )
        if params.service_tier is not UNSET:
            turn.changes["service_tier"] = params.service_tier
        self.log.record(TurnAdjusted(turn.id, dict(turn.changes)))
        return True

    def interrupt(self, turn_id: str) -> Callable[[], None]:
        """Agree to stop the turn that runs; gives what stops it.

        Raises:
            EngineError: nothing runs, or another turn.
        """
        turn = self._active("interrupt", turn_id)
        return lambda: self.stop(turn)

    def _active(self, purpose: Literal["steer", "interrupt"], expected: str) -> ActiveTurn:
        turn = self.turn
        if turn is None:
            raise NoActiveTurn(purpose)
        if turn.id != expected:
            raise WrongTurn(purpose, expected, turn.id)
        return turn

    def _check_steerable(self, turn: ActiveTurn) -> None:
        if turn.kind in ("review", "compact"):
            raise TurnNotSteerable(turn.kind)

    def _new_turn(self, kind: TurnKind, params: TurnStartParams | None) -> ActiveTurn:
        turn = ActiveTurn(uuid7(), self.id, self.log, self.services.clock, kind)
        if params is not None:
            turn.root_id = params.root_turn_id
            turn.output_schema = params.output_schema
            turn.adjust(service_tier=params.service_tier_for_turn)
            turn.budget = params.budget
        self.turn = turn
        return turn

    def _start(self, turn: ActiveTurn) -> None:
        agent = AgentLoop(self, turn)
        try:
            self.usage.open_turn(turn.budget)
            agent.begin()
            self._run(turn, agent)
            self.services.agents.turn_began(self)
        except Exception:
            # The client knows the turn and waits for its end. If its task runs, that brings it.
            if turn.task is None:
                agent.give_up()
            raise

    def _run(self, turn: ActiveTurn, agent: AgentLoop) -> None:
        self.services.prepare_sandbox()
        turn.task = self.services.tasks.spawn(agent.run(), f"turn {turn.id}")
        turn.task.add_done_callback(lambda _task: agent.ensure_ended())
        if turn.is_unwanted or turn.failure is not None:
            turn.task.cancel()

    def stop(self, turn: ActiveTurn) -> None:
        """Interrupt a turn; one that has not started yet is interrupted as soon as it does."""
        turn.is_unwanted = True
        if turn.task is not None:
            turn.task.cancel()

    def storage_failed(self, failure: StorageFailed) -> None:
        """End the turn that can no longer be stored; without one, show that something is wrong."""
        logger.warning("thread not stored", extra={"thread_id": self.id, "reason": str(failure)})
        if self.turn is not None:
            self.turn.fail(storage_error(failure))
        else:
            self.set_status(SystemErrorThreadStatus())

    def restore_grants(self, turn: ActiveTurn, given: Sequence[Granted]) -> None:
        """Let a turn that an earlier server left have what the user had allowed it."""
        self.approvals.grants.recall(turn, given)
        self.mcp.approved |= {grant.tool for grant in given if grant.tool is not None}

    def continue_turn(self, turn: ActiveTurn, calls: Sequence[ToolCall]) -> None:
        """Go on with a turn that an earlier server left waiting for answers to these calls."""
        self.turn = turn
        self.usage.open_turn(turn.budget)
        self.set_status(ActiveThreadStatus(active_flags=[]))
        self._run(turn, AgentLoop(self, turn, calls))

    def at_close(self, action: Callable[[], None]) -> None:
        """Call this when the thread is let go of."""
        self._closers.append(action)

    def close(self) -> None:
        """Let go of everything that belongs to the thread."""
        closers, self._closers = self._closers, []
        for action in closers:
            action()
        self.journal.close()

    async def halt(self) -> None:
        """Interrupt whatever runs, and wait until it has ended."""
        while self.turn is not None:
            turn = self.turn
            self.stop(turn)
            await turn.ended.wait()

    def turn_ended(self, turn: ActiveTurn) -> None:
        """Be ready for the next turn; while there is a goal, begin it."""
        self.turn = None
        self.usage.close_turn()
        self.pass_notes()
        self.services.on_turn_ended(self, turn)
        took = turn.snapshot().duration_ms or 0
        if self.goals.after_turn(turn, self.usage.turn_tokens, took // 1000):
            self.pursue_goal()

    def pursue_goal(self) -> None:
        """Begin a turn that works towards the goal, if none runs."""
        goal = self.goals.current
        if goal is None or self.turn is not None or self.services.tasks.is_closed:
            return
        turn = self._new_turn("regular", None)
        self.history.add(message("user", instructions.goal(goal.objective)))
        self._start(turn)

    # -- what the agent asks for

    def model(self, turn: ActiveTurn) -> tuple[Model, RetryPolicy]:
        """The model to ask."""
        return self.services.model(self.settings_of(turn))

    def count(self, turn: ActiveTurn, completed: Completed) -> None:
        """Enter a response into the books."""
        response_id = completed.response_id or uuid7()
        if self.settings.publishes_raw_events:
            spent = breakdown(completed.usage) if completed.usage is not None else None
            raw = RawResponseCompletedNotification(response_id, self.id, turn.id, spent)
            self.log.publish(n.RAW_RESPONSE_COMPLETED, raw)
        self.usage.count(turn, completed, response_id, self.context_window)

    @property
    def subagent(self) -> str | None:
        """How requests to the model name an agent that works for another one."""
        return "collab_spawn" if self.meta.parent_thread_id is not None else None

    # -- what clients are told

    def set_status(self, status: ThreadStatus) -> None:
        """Change the status and tell it, if it is another."""
        if status != self.status:
            self.status = status
            params = ThreadStatusChangedNotification(status=status, thread_id=self.id)
            self.log.publish(n.THREAD_STATUS_CHANGED, params)

    def _on_asks(self) -> None:
        """Tell whether somebody is waited for: by the turn, or by a call that a client makes."""
        flags = self.server_requests.flags()
        if self.turn is None:
            self.set_status(ActiveThreadStatus(flags) if flags else IdleThreadStatus())
        elif self.turn.state == "running":
            self.set_status(ActiveThreadStatus(active_flags=flags))

    def update_settings(self, settings: RunSettings) -> None:
        """Run later turns under other settings, and tell."""
        if settings != self.settings:
            self.settings = settings
            params = ThreadSettingsUpdatedNotification(self.id, settings.to_protocol())
            self.log.publish(n.THREAD_SETTINGS_UPDATED, params)
            self.services.agents.settings_changed(self)

    def snapshot(self, turns: list[TurnSnapshot] | None = None) -> ThreadSnapshot:
        """The thread as clients see it."""
        thread = to_thread(self.meta, self.status, turns or [])
        return msgspec.structs.replace(thread, environments=environments(self.settings))

    def rewind(self, history: Sequence[ModelItem], turns: list[TurnSnapshot]) -> None:
        """Go on from an earlier view of the conversation."""
        self.look_back(history)
        self.messages.keep(turns)
        self.terminals.keep_turns({turn.id for turn in turns})

    def _open_asks(self) -> Sequence[OpenedRequest]:
        return self.server_requests.open_events()

    def _open_items(self) -> Sequence[ItemStartedNotification]:
        left = self.terminals.open_items(self.turn)
        return [*left, *self.turn.open_item_events()] if self.turn is not None else left
