"""A loaded thread: its settings, event log, model context and active turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
from msgspec import UNSET, Struct

from treadle.engine.accounting.goals import Goals
from treadle.engine.apps.tools import SERVER as APPS
from treadle.engine.conversation import instructions
from treadle.engine.conversation.context import environments, turn_context
from treadle.engine.conversation.input import NO_FILES, InputFiles, message
from treadle.engine.conversation.messages import ClientMessages
from treadle.engine.conversation.model_context import ModelContext
from treadle.engine.conversation.queue import SubmissionQueue
from treadle.engine.conversation.sources import Source, written_by
from treadle.engine.errors import (
    InvalidInput,
    NoActiveTurn,
    ThreadNotLoaded,
    TurnNotSteerable,
    WrongTurn,
)
from treadle.engine.hooks.thread_hooks import ThreadHooks
from treadle.engine.loop import AgentLoop
from treadle.engine.mcp.servers import McpServers
from treadle.engine.services import EngineServices
from treadle.engine.settings import Profile, RunSettings
from treadle.engine.state import LoadedState, ThreadState
from treadle.engine.terminals.output_file import discard_outputs
from treadle.engine.terminals.terminals import Terminals
from treadle.engine.tools.registry import ToolCall, ToolRegistry
from treadle.engine.turn import ActiveTurn, PendingInput, TurnKind
from treadle.model.base import ModelItem
from treadle.protocol import notifications as n
from treadle.protocol.item import ItemStartedNotification
from treadle.protocol.settings import ThreadSettingsUpdatedNotification
from treadle.protocol.status import (
    ActiveThreadStatus,
    ThreadStatus,
)
from treadle.protocol.thread import Thread as ThreadSnapshot
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.protocol.turn import (
    TurnSettingsUpdateParams,
    TurnStartParams,
    TurnSteerParams,
)
from treadle.store.journal import Event, Journal, StorageFailed
from treadle.store.records import Granted, SettingsChanged, TurnAdjusted
from treadle.store.stored_thread import ThreadMeta, thread_snapshot
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.approvals.approvals import Approvals


logger = logging.getLogger(__name__)


class ThreadOwner(Protocol):
    """What a loaded thread needs from the collection that it belongs to."""

    def tools_of(self, thread: LoadedThread) -> ToolRegistry:
        """Return the tools of a thread."""
        ...

    def find_conversation(self, thread_id: str) -> tuple[ThreadMeta, Sequence[ModelItem]] | None:
        """Return the metadata and the history of a thread, if it is in memory."""
        ...

    def on_event(self, event: Event) -> None:
        """Broadcast an event if all clients receive its kind."""
        ...

    def on_steered(self) -> None:
        """Wake the calls that wait for sub-agents: a turn has new input."""
        ...

    def on_settings_changed(self, thread: LoadedThread) -> None:
        """Apply new settings of a thread to its sub-agents."""
        ...

    def on_turn_began(self, thread: LoadedThread) -> None:
        """Update the state of a sub-agent."""
        ...

    def on_turn_ended(self, thread: LoadedThread, turn: ActiveTurn) -> None:
        """Update the thread's metadata, and notify the agents that wait for the thread."""
        ...

    def continue_queue(self, thread: LoadedThread) -> None:
        """Start a turn with the first queued input of a thread."""
        ...


class LoadedThread:
    """One conversation in memory; one turn runs at a time."""

    def __init__(
        self, journal: Journal, loaded: LoadedState, services: EngineServices, owner: ThreadOwner
    ) -> None:
        state = ThreadState(
            journal, loaded, services, open_items=self._open_items, on_event=owner.on_event
        )
        self.id = state.id
        self.state = state
        self.journal = journal
        self.services = services
        self.log = state.log
        self.server_requests = state.server_requests
        self.usage = state.usage
        self.messages = ClientMessages(state.log, loaded.client_messages)
        self.context = ModelContext(state, self.messages, loaded)
        self.goals = Goals(self.id, state.log, services.clock, loaded.goal)
        # A server that was killed may have begun the turn of the first input already.
        queued = [each for each in loaded.queue if not self.messages.is_known(each)]
        self.queue = SubmissionQueue(self.id, state.log, queued)
        self.mcp = McpServers(
            services.mcp,
            tasks=services.tasks,
            home=services.home,
            sandbox=services.sandbox,
            thread=state,
        )
        self.hooks = ThreadHooks(state, self.mcp, owner.find_conversation, loaded.start)
        self.terminals = Terminals(services.tasks, services.sandbox)
        self.closed_agents = set(loaded.closed_agents)
        self._owner = owner
        self._is_closed = False
        self._closers: list[Callable[[], None]] = [
            self.server_requests.close,
            self.terminals.close,
            self.mcp.close,
            self.hooks.close,
        ]
        if loaded.meta.ephemeral:
            self._closers.append(partial(discard_outputs, services.home, self.id))

    @property
    def meta(self) -> ThreadMeta:
        """The metadata of the thread."""
        return self.state.meta

    @property
    def settings(self) -> RunSettings:
        """The settings of later turns."""
        return self.state.settings

    @property
    def status(self) -> ThreadStatus:
        """The status that clients see."""
        return self.state.status

    @property
    def turn(self) -> ActiveTurn | None:
        """The active turn."""
        return self.state.turn

    def settings_of(self, turn: ActiveTurn) -> RunSettings:
        """Return the settings of a turn: the thread's, with the turn's own changes."""
        return self.state.settings_of(turn)

    @cached_property
    def approvals(self) -> Approvals:
        """The thread's grants and approval flow; created on first use."""
        from treadle.engine.approvals.approvals import Approvals

        return Approvals(self.state, self.context, self._owner.find_conversation, self.hooks)

    @cached_property
    def tools(self) -> ToolRegistry:
        """The tools of the model; created with the first turn."""
        return self._owner.tools_of(self)

    # -- turns

    def begin_turn(
        self,
        params: TurnStartParams,
        profile: Profile | None = None,
        *,
        files: InputFiles = NO_FILES,
        source: Source | None = None,
    ) -> AcceptedTurn:
        """Accept input for a new turn or for the active one.

        Call `AcceptedTurn.start` after the reply to the client, and await `intake.input_stored`
        before that. `profile` is the permission profile that the turn requests; `files` holds the
        contents of the input's files, and `source` is given if it is not the user's.

        Raises:
            InvalidInput: the input is invalid.
            MessageConflict: the message id was used for other content.
            StorageFailed: the input cannot be stored.
        """
        if turn_id := self.messages.turn_of(params.client_user_message_id, params.input):
            return AcceptedTurn(self, self._earlier_turn(turn_id))
        pending = self.context.message_of(params, files, source)
        if self.turn is not None:
            self._check_steerable(self.turn)
            self._steer_input(self.turn, pending)
            return AcceptedTurn(self, self.turn.snapshot(), params, profile)
        turn = self._new_turn("regular", params)
        try:
            if pending.content or pending.output:
                self.context.queue_input(turn, pending)
            else:
                self.messages.store(pending, turn, ())
        except Exception:
            self.drop(turn)  # cleanup: no client has received it
            raise
        if source is None:
            self.goals.restart()
        return AcceptedTurn(self, turn.snapshot(), params, profile, turn)

    def drop(self, turn: ActiveTurn) -> None:
        """Forget a turn that no client has received."""
        if self.turn is turn:
            self.state.set_turn(None)
        turn.ended.set()

    def _earlier_turn(self, turn_id: str) -> TurnSnapshot:
        """Return the turn that received a repeated message, perhaps on an earlier server."""
        if self.turn is not None and self.turn.id == turn_id:
            return self.turn.snapshot()
        return self.messages.past_turn(turn_id)

    def begin_other(self, kind: TurnKind) -> ActiveTurn:
        """Accept a turn without user input; `start_turn` starts it.

        Raises:
            InvalidInput: a turn is active.
            StorageFailed: events of an earlier turn still cannot be stored.
        """
        if self.turn is not None:
            raise InvalidInput("threadId", f"thread {self.id} has an active turn")
        self._check_loaded()
        # Each turn would add its own events to those that wait in memory.
        self.journal.flush()
        return self._new_turn(kind, None)

    def steer(self, params: TurnSteerParams, *, files: InputFiles = NO_FILES) -> str:
        """Add input to the active turn; the model reads it after its current response.

        Raises:
            EngineError: no turn or another one is active, or the input is invalid.
        """
        if not params.expected_turn_id:
            raise InvalidInput("expectedTurnId", "expectedTurnId must not be empty")
        if turn_id := self.messages.turn_of(params.client_user_message_id, params.input):
            return turn_id
        turn = self.active_turn("steer", params.expected_turn_id)
        self._check_steerable(turn)
        if not params.input:
            raise InvalidInput("input", "input must not be empty")
        self._steer_input(turn, self.context.message_of(params, files))
        return turn.id

    def _steer_input(self, turn: ActiveTurn, pending: PendingInput) -> None:
        try:
            self.context.queue_input(turn, pending)
        except StorageFailed as failure:
            self.state.storage_failed(failure)
            raise
        self._owner.on_steered()

    def adjust_turn(self, params: TurnSettingsUpdateParams) -> bool:
        """Change the settings of the active turn; false if that turn is not active.

        Raises:
            StorageFailed: the change cannot be stored.
        """
        turn = self.turn
        if turn is None or turn.id != params.turn_id:
            return False
        before = dict(turn.overrides)
        turn.adjust(
            model=params.model,
            effort=params.effort,
            summary=params.summary,
            approvals_reviewer=params.approvals_reviewer,
        )
        if params.service_tier is not UNSET:
            turn.overrides["service_tier"] = params.service_tier
        try:
            self.log.store(TurnAdjusted(turn.id, dict(turn.overrides)))
        except StorageFailed:
            turn.overrides = before
            raise
        return True

    def active_turn(self, purpose: Literal["steer", "interrupt"], expected: str) -> ActiveTurn:
        """Return the active turn, which a client names for a purpose.

        Raises:
            EngineError: no turn or another one is active.
        """
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
        self._check_loaded()
        turn = ActiveTurn(uuid7(), self.id, self.log, self.services.clock, kind)
        if params is not None:
            turn.root_id = params.root_turn_id
            turn.output_schema = params.output_schema
            turn.adjust(service_tier=params.service_tier_for_turn)
            turn.budget = params.budget
        self.state.set_turn(turn)
        return turn

    def _check_loaded(self) -> None:
        if self._is_closed:
            # The caller waited meanwhile: nothing of a turn would be stored or reach a client.
            raise ThreadNotLoaded(self.id)

    def start_turn(self, turn: ActiveTurn) -> None:
        """Start an accepted turn."""
        agent = AgentLoop(self, turn)
        try:
            self.usage.open_turn(turn.budget)
            agent.begin()
            self._run(turn, agent)
            self._owner.on_turn_began(self)
        except Exception:
            # Cleanup: the client waits for the end of the turn, which the task publishes if it
            # runs.
            if turn.task is None:
                agent.give_up()
            raise

    def _run(self, turn: ActiveTurn, agent: AgentLoop) -> None:
        self.services.prepare_sandbox()
        turn.task = self.services.tasks.spawn(agent.run(), f"turn {turn.id}")
        turn.task.add_done_callback(lambda _task: agent.ensure_ended())
        if turn.interrupt_requested or turn.failure is not None:
            turn.task.cancel()

    def restore_grants(self, turn: ActiveTurn, grants: Sequence[Granted]) -> None:
        """Restore the grants of a turn that an earlier server started."""
        self.approvals.grants.restore(turn, grants)
        # A grant does not name the account that the tools of apps belonged to.
        tools = {grant.tool for grant in grants if grant.tool is not None}
        self.mcp.approved |= {tool for tool in tools if tool[0] != APPS}

    def continue_turn(self, turn: ActiveTurn, calls: Sequence[ToolCall]) -> None:
        """Continue a turn of an earlier server by repeating the calls that wait for answers."""
        self.state.set_turn(turn)
        self.usage.open_turn(turn.budget)
        self.state.set_status(ActiveThreadStatus(active_flags=[]))
        self._run(turn, AgentLoop(self, turn, calls))

    def at_close(self, action: Callable[[], None]) -> None:
        """Call `action` when the thread is closed."""
        self._closers.append(action)

    def close(self) -> None:
        """Release all resources of the thread."""
        self._is_closed = True
        closers, self._closers = self._closers, []
        for action in closers:
            action()
        self.journal.close()

    async def halt(self) -> None:
        """Interrupt the active turn, and wait until it has ended."""
        while self.turn is not None:
            turn = self.turn
            turn.stop()
            await turn.ended.wait()

    def turn_ended(self, turn: ActiveTurn) -> None:
        """Get ready for the next turn; start it if there is an active goal."""
        self.state.set_turn(None)
        self.usage.close_turn()
        self.context.flush_notes()
        if turn.interrupt_requested and not turn.ends_with_server:
            self.hooks.on_interrupt(turn)
        self._owner.on_turn_ended(self, turn)
        duration_ms = turn.snapshot().duration_ms or 0
        pursues = self.goals.after_turn(turn, self.usage.turn_tokens, duration_ms // 1000)
        if self.queue.continues_after(turn):
            # The goal continues after the last of these turns.
            self.continue_queue()
        elif pursues:
            self.pursue_goal()

    def continue_queue(self) -> None:
        """Start a turn with the first queued input."""
        self._owner.continue_queue(self)

    def pursue_goal(self) -> None:
        """Start a turn that works towards the goal, if no turn is active."""
        goal = self.goals.current
        is_over = self._is_closed or self.services.tasks.is_closed
        is_enabled = self.settings.is_enabled("goals")
        if goal is None or not is_enabled or self.turn is not None or is_over:
            return
        turn = self._new_turn("regular", None)
        # The model may have set the goal.
        prompt = message("user", instructions.goal(goal.objective))
        self.context.history.add(written_by("server", prompt))
        self.start_turn(turn)

    # -- state that clients see

    def update_settings(self, settings: RunSettings) -> None:
        """Set the settings of later turns, and publish them if they changed."""
        is_other = settings.differs_from(self.settings)
        self.state.set_settings(settings)
        if is_other:
            params = ThreadSettingsUpdatedNotification(self.id, settings.to_protocol())
            self.log.publish(n.THREAD_SETTINGS_UPDATED, params)
            self._owner.on_settings_changed(self)

    def snapshot(self, turns: list[TurnSnapshot] | None = None) -> ThreadSnapshot:
        """Return the thread as clients see it."""
        thread = thread_snapshot(self.meta, self.status, turns or [])
        return msgspec.structs.replace(thread, environments=environments(self.settings))

    def rewind(self, history: Sequence[ModelItem], turns: list[TurnSnapshot]) -> None:
        """Return to an earlier point of the conversation."""
        self.context.reset_history(history)
        self.messages.forget_except(turns)
        self.terminals.keep_turns({turn.id for turn in turns})

    def _open_items(self) -> Sequence[ItemStartedNotification]:
        commands = self.terminals.open_items(self.turn)
        return [*commands, *self.turn.open_item_events()] if self.turn is not None else commands


class AcceptedTurn(Struct, frozen=True):
    """A turn whose input a thread has accepted, before it starts."""

    thread: LoadedThread
    snapshot: TurnSnapshot
    # The request; `None` if its message was accepted before.
    params: TurnStartParams | None = None
    profile: Profile | None = None
    # The turn to start; `None` if the input joined an active turn.
    turn: ActiveTurn | None = None

    @property
    def is_repeated(self) -> bool:
        """Whether the message was accepted before."""
        return self.params is None

    def start(self) -> None:
        """Apply the settings of the request, and start the turn if it is new."""
        if self.params is not None:
            thread = self.thread
            settings = thread.settings.overridden_by(self.params, self.profile)
            if self.turn is None and settings.differs_from(thread.settings):
                # A new turn stores its settings when it begins.
                thread.log.record(SettingsChanged(turn_context(settings)))
            thread.update_settings(settings)
        if self.turn is not None:
            self.thread.start_turn(self.turn)
