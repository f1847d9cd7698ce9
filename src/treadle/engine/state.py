"""The state of a loaded thread that its parts share: settings, events, requests, usage, turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from treadle.engine.accounting.budget import Meter
from treadle.engine.accounting.thread_usage import UsageTracker
from treadle.engine.accounting.usage import TokenLedger, breakdown
from treadle.engine.events.log import EventLog, OpenedRequest
from treadle.engine.events.server_requests import ServerRequests
from treadle.engine.hooks.start import StartSource
from treadle.engine.services import EngineServices
from treadle.engine.settings import RunSettings
from treadle.engine.turn import ActiveTurn, storage_error
from treadle.model.base import Completed, Model, ModelItem
from treadle.model.catalog import traits_of
from treadle.model.retry import RetryPolicy
from treadle.protocol import notifications as n
from treadle.protocol.goal import ThreadGoal
from treadle.protocol.item import ItemStartedNotification
from treadle.protocol.queue import QueuedSubmission
from treadle.protocol.response_item import RawResponseCompletedNotification
from treadle.protocol.status import (
    ActiveThreadStatus,
    IdleThreadStatus,
    SystemErrorThreadStatus,
    ThreadStatus,
    ThreadStatusChangedNotification,
)
from treadle.store.journal import Event, Journal, StorageFailed
from treadle.store.records import ClientMessage, RequestOpened, TurnContext
from treadle.store.stored_thread import ThreadMeta
from treadle.support.ids import uuid7

logger = logging.getLogger(__name__)


class LoadedState(Struct):
    """The state of a thread when it is loaded."""

    meta: ThreadMeta
    settings: RunSettings
    history: Sequence[ModelItem] = ()
    ledger: TokenLedger | None = None
    client_messages: dict[str, ClientMessage] | None = None
    meter: Meter | None = None
    goal: ThreadGoal | None = None
    queue: Sequence[QueuedSubmission] = ()
    # Server requests that an earlier server left open.
    open_requests: dict[str, RequestOpened] = field(default_factory=dict)
    # The settings of the last turn, if known.
    last_context: TurnContext | None = None
    # Ids of its closed sub-agents.
    closed_agents: set[str] = field(default_factory=set)
    # How its session starts, for hooks.
    start: StartSource = "startup"


class ThreadState:
    """The state of one loaded thread, without the behaviour of its parts."""

    def __init__(
        self,
        journal: Journal,
        loaded: LoadedState,
        services: EngineServices,
        *,
        open_items: Callable[[], Sequence[ItemStartedNotification]],
        on_event: Callable[[Event], None],
    ) -> None:
        self.id = loaded.meta.id
        self.meta = loaded.meta
        self.settings = loaded.settings
        self.services = services
        self.status: ThreadStatus = IdleThreadStatus()
        self.turn: ActiveTurn | None = None
        self.log = EventLog(
            journal,
            services.clock,
            open_items=open_items,
            open_requests=self._open_requests,
            on_event=on_event,
            on_failure=self.storage_failed,
        )
        limits = loaded.settings.request_deadline
        deadline_ms = limits.deadline_ms if limits is not None else None
        self.server_requests = ServerRequests(
            self.id,
            self.log,
            services.request_ids,
            self._on_requests_changed,
            services.clock,
            timeout_s=None if deadline_ms is None else deadline_ms / 1000,
            left_open=loaded.open_requests,
        )
        self.usage = UsageTracker(self.log, loaded.ledger, loaded.meter)

    def _open_requests(self) -> Sequence[OpenedRequest]:
        return self.server_requests.open_events()

    def settings_of(self, turn: ActiveTurn) -> RunSettings:
        """Return the settings of a turn: the thread's, with the turn's own changes."""
        return replace(self.settings, **turn.overrides) if turn.overrides else self.settings

    def set_settings(self, settings: RunSettings) -> None:
        """Set the settings of later turns; the thread's folder is theirs."""
        self.settings = settings
        self.update_meta(cwd=settings.cwd)

    def set_turn(self, turn: ActiveTurn | None) -> None:
        """Set or clear the active turn."""
        self.turn = turn

    def update_meta(self, **fields: object) -> None:
        """Change fields of the metadata; what is stored of them is up to the caller."""
        self.meta = msgspec.structs.replace(self.meta, **fields)

    def set_status(self, status: ThreadStatus) -> None:
        """Set the status, and publish it if it changed."""
        if status != self.status:
            self.status = status
            params = ThreadStatusChangedNotification(status=status, thread_id=self.id)
            self.log.publish(n.THREAD_STATUS_CHANGED, params)

    def _on_requests_changed(self) -> None:
        """Show in the status what the thread waits for; also calls outside a turn can wait."""
        flags = self.server_requests.flags()
        if self.turn is None:
            self.set_status(ActiveThreadStatus(flags) if flags else IdleThreadStatus())
        elif self.turn.state == "running":
            self.set_status(ActiveThreadStatus(active_flags=flags))

    def storage_failed(self, failure: StorageFailed) -> None:
        """Fail the active turn, which can no longer be stored, or set an error status."""
        logger.warning("thread not stored", extra={"thread_id": self.id, "reason": str(failure)})
        if self.turn is not None:
            self.turn.fail(storage_error(failure))
        else:
            self.set_status(SystemErrorThreadStatus())

    # -- the model

    def model(self, turn: ActiveTurn) -> tuple[Model, RetryPolicy]:
        """Return the model of a turn, and its retry policy."""
        return self.services.model(self.settings_of(turn))

    @property
    def context_window(self) -> int:
        """The size of the context window in tokens: configured, or from the model catalog."""
        return self.settings.context_window or traits_of(self.settings.model).context_window

    def count(self, turn: ActiveTurn, completed: Completed, *, fills_context: bool = True) -> None:
        """Count the usage of a response; `fills_context` if it continues the conversation."""
        response_id = completed.response_id or uuid7()
        if self.settings.publishes_raw_events:
            usage = breakdown(completed.usage) if completed.usage is not None else None
            raw = RawResponseCompletedNotification(response_id, self.id, turn.id, usage)
            self.log.publish(n.RAW_RESPONSE_COMPLETED, raw)
        self.usage.count(
            turn, completed, response_id, self.context_window, fills_context=fills_context
        )

    @property
    def subagent(self) -> str | None:
        """The kind of sub-agent in requests to the model; `None` for other threads."""
        return "collab_spawn" if self.meta.parent_thread_id is not None else None
