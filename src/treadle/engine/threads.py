"""The threads of a server: starts, loads and unloads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from treadle.engine.accounting.budget import Meter, meter_of
from treadle.engine.accounting.usage import TokenLedger
from treadle.engine.errors import EngineError, ThreadNotLoaded, TooManyThreads
from treadle.engine.services import EngineServices
from treadle.engine.settings import RunSettings
from treadle.engine.state import LoadedState
from treadle.engine.stored.threads import StoredThreads
from treadle.model.base import Model, ModelItem
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.extension import Budget
from treadle.protocol.status import NotLoadedThreadStatus
from treadle.protocol.thread import Thread as ThreadSnapshot
from treadle.protocol.thread_manage import ThreadClosedNotification
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.store.journal import Event, Journal, StoreError
from treadle.store.organization.placement import NOWHERE
from treadle.store.store import Store
from treadle.store.stored_thread import StoredThread, ThreadMeta, thread_snapshot
from treadle.support.files.descriptors import descriptor_limit
from treadle.support.ids import uuid7

# Imported with the first thread: these modules pull in everything that an agent can do.
if TYPE_CHECKING:
    from treadle.engine.agents.agents import Agents
    from treadle.engine.thread import LoadedThread
    from treadle.engine.tools.registry import ToolRegistry
    from treadle.engine.turn import ActiveTurn

P = TypeVar("P", bound=msgspec.Struct)

MAX_IDLE: Final = 32
"""The number of idle threads without subscribers that stay in memory."""
MIN_LOADED: Final = 32
"""The number of threads that may be loaded even if descriptors are very few."""
MAX_IDLE_EPHEMERAL: Final = 64
"""The same for ephemeral threads, which nothing can load again."""

MAX_FILE_WORKERS: Final = 32
MAX_TEXT_WORKERS: Final = 4

BROADCAST: Final = frozenset(
    method.method for method in (n.THREAD_STATUS_CHANGED, n.THREAD_NAME_UPDATED, n.THREAD_REVERTED)
)
"""Thread events that every client receives, subscribed or not."""


class Threads:
    """The threads of one home."""

    def __init__(
        self,
        store: Store,
        services: EngineServices,
        *,
        on_spawn: Callable[[LoadedThread, LoadedThread], None] = lambda _parent, _child: None,
    ) -> None:
        self.store = store
        self.services = services
        self._loaded: dict[str, LoadedThread] = {}
        self.stored = StoredThreads(store, self._loaded)
        # Called with the parent and the child for every sub-agent.
        self._on_spawn = on_spawn
        self._subscribers: dict[str, int] = {}
        # Threads to close when their turn ends, because the last subscriber unsubscribed.
        self._closing: set[str] = set()
        # Hooks that run at the end of unloaded threads.
        self._endings: set[asyncio.Task[None]] = set()
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Threads that are created and not in memory yet: they count toward the limit.
        self._created: set[str] = set()

    @cached_property
    def agents(self) -> Agents:
        """The sub-agents of all threads."""
        from treadle.engine.agents.agents import Agents

        return Agents(self, self._on_spawn)

    # -- life cycle

    def start(
        self,
        settings: RunSettings,
        *,
        describe: Callable[[ThreadMeta], ThreadMeta],
        ephemeral: bool = False,
        budget: Budget | None = None,
        metadata: dict[str, JsonValue] | None = None,
    ) -> LoadedThread:
        """Start a thread; `intake.thread_stored` waits until it is on the disk.

        Raises:
            StorageFailed: the thread cannot be stored.
            TooManyThreads: no further thread may be loaded.
        """
        journal, loaded = self.create(
            settings, describe=describe, ephemeral=ephemeral, budget=budget, metadata=metadata
        )
        return self.install(journal, loaded)

    def create(
        self,
        settings: RunSettings,
        *,
        describe: Callable[[ThreadMeta], ThreadMeta],
        ephemeral: bool = False,
        budget: Budget | None = None,
        metadata: dict[str, JsonValue] | None = None,
    ) -> tuple[Journal, LoadedState]:
        """Create a thread that no client can use until it is installed.

        Raises:
            StorageFailed: the thread cannot be stored.
            TooManyThreads: no further thread may be loaded.
        """
        self._check_room()
        now = self.services.clock() // 1000
        meta = describe(_new_meta(settings, now, budget, metadata, ephemeral=ephemeral))
        journal = self.store.create(meta, ephemeral=ephemeral)
        meta = msgspec.structs.replace(meta, path=journal.path)
        self._created.add(meta.id)
        return journal, LoadedState(
            meta, settings, meter=Meter(budget, "thread") if budget else None
        )

    def opening(self, thread_id: str) -> asyncio.Lock:
        """The lock to hold while a thread is loaded, moved or removed."""
        return self._opening.setdefault(thread_id, asyncio.Lock())

    async def open(self, thread_id: str, path: str | None = None) -> tuple[Journal, StoredThread]:
        """Become the writer of a stored thread and read it in a worker thread."""
        store = self.store
        work = partial(store.open_path, path) if path else partial(store.open, thread_id)
        return await store.run(work, on_abandoned=lambda opened: opened[0].close())

    def load(
        self,
        journal: Journal,
        stored: StoredThread,
        settings: RunSettings,
        is_waiting: Callable[[str], bool],
    ) -> LoadedThread:
        """Load a stored thread.

        A turn that an earlier server did not finish is ended, unless it waits for an answer: then
        it continues to wait. `is_waiting` says whether a sub-agent waits
        (`StoredThreads.find_waiting_agents`).

        Raises:
            TooManyThreads: no further thread may be loaded.
        """
        from treadle.engine.stored.recovery import received_messages, recover

        self._check_room()
        parent = self._loaded.get(stored.meta.parent_thread_id or "")
        if parent is not None:
            # It may have changed while this sub-agent was not loaded.
            settings = settings.following(parent.settings)
        suspended = recover(journal, stored, self.services.clock(), is_waiting)
        usage = stored.usage
        ledger = (
            TokenLedger(usage.total, usage.last, usage.model_context_window)
            if usage
            else TokenLedger()
        )
        ledger.know(stored.response_ids)
        thread = self.install(
            journal,
            LoadedState(
                stored.meta,
                settings,
                stored.history,
                ledger,
                received_messages(stored),
                meter=meter_of(stored),
                goal=stored.goal,
                queue=stored.queue,
                open_requests=suspended.requests if suspended else {},
                last_context=stored.settings,
                closed_agents=stored.closed_agents,
                start="resume",
            ),
        )
        self.on_settings_changed(thread)
        thread.log.sync_soon()
        thread.messages.add_past_turns(stored.turns)
        if suspended is not None:
            turn = suspended.restore_turn(thread.state)
            thread.restore_grants(turn, stored.grants)
            thread.continue_turn(turn, suspended.calls)
        return thread

    def _check_room(self) -> None:
        """Leave descriptors for commands and files: a thread takes two while a turn runs."""
        limit = max(MIN_LOADED, descriptor_limit() // 4)
        if len(self._loaded) + len(self._created) >= limit:
            raise TooManyThreads(limit)

    async def discard(self, thread: LoadedThread) -> None:
        """Unload a thread that no client knows, and delete what is stored of it."""
        self._loaded.pop(thread.id, None)
        thread.close()
        with suppress(OSError, StoreError):
            await self.store.run(partial(self.store.delete, thread.id))

    def leave(self, journal: Journal) -> None:
        """Close a created thread that will not be installed."""
        self._created.discard(journal.thread_id)
        journal.close()

    def get(self, thread_id: str) -> LoadedThread:
        """Return a thread in memory.

        Raises:
            ThreadNotLoaded: the thread is not in memory.
        """
        thread = self._loaded.get(thread_id)
        if thread is None:
            raise ThreadNotLoaded(thread_id)
        return thread

    def find(self, thread_id: str) -> LoadedThread | None:
        """Return a thread if it is in memory."""
        return self._loaded.get(thread_id)

    def loaded_children(self, thread_id: str) -> list[LoadedThread]:
        """Return the sub-agents of a thread that are in memory."""
        loaded = self._loaded.values()
        return [thread for thread in loaded if thread.meta.parent_thread_id == thread_id]

    def loaded_ids(self) -> list[str]:
        """Return the ids of the threads in memory, oldest first."""
        return sorted(self._loaded)

    def unload(self, thread: LoadedThread) -> None:
        """Unload a thread and publish its new status.

        Raises:
            EngineError: the thread has an active turn.
        """
        if thread.turn is not None:
            raise EngineError(f"thread {thread.id} has an active turn")
        self._closing.discard(thread.id)
        if self._loaded.pop(thread.id, None) is not None:
            thread.state.set_status(NotLoadedThreadStatus())
            ending = thread.hooks.on_unload()
            if ending is not None:
                self._endings.add(ending)
                ending.add_done_callback(self._endings.discard)
            thread.close()

    def close_when_idle(self, thread: LoadedThread) -> None:
        """Unload a thread that has lost its last subscriber, after its turn if one is active."""
        self._closing.add(thread.id)
        self._close_if_idle(thread)

    def _close_if_idle(self, thread: LoadedThread) -> None:
        is_left = thread.id in self._closing and thread.id not in self._subscribers
        is_idle = thread.turn is None and not thread.queue.is_starting
        if is_left and is_idle and self._loaded.get(thread.id) is thread:
            self.unload(thread)
            self.services.broadcast(n.THREAD_CLOSED, ThreadClosedNotification(thread.id))

    def interrupt_turns(self) -> None:
        """Stop every active turn, or suspend it for the next server."""
        from treadle.engine.stored.suspension import stop_or_suspend

        waiting = self.stored.only_waiting()
        for thread in self._loaded.values():
            stop_or_suspend(thread.state, is_waiting=thread.id in waiting)

    async def close(self) -> None:
        """End every turn and release all resources."""
        self.interrupt_turns()
        if self._endings:
            await asyncio.wait(self._endings)  # each is limited to a few seconds
        await self.services.tasks.close()
        async with asyncio.TaskGroup() as ends:
            for thread in self._loaded.values():
                if thread.hooks.has_end:
                    ends.create_task(thread.hooks.end_session(), name=f"end {thread.id}")
        for thread in self._loaded.values():
            thread.close()
        self._loaded.clear()
        self.store.close()
        await self.services.close()

    # -- subscribers

    def add_subscriber(self, thread: LoadedThread) -> None:
        """Count one more subscriber."""
        self._closing.discard(thread.id)
        self._subscribers[thread.id] = self._subscribers.get(thread.id, 0) + 1

    def remove_subscriber(self, thread: LoadedThread) -> int:
        """Count one subscriber less; return the remaining number."""
        remaining = self._subscribers.pop(thread.id, 1) - 1
        if remaining > 0:
            self._subscribers[thread.id] = remaining
        else:
            self._trim()
        return remaining

    def is_shared(self, thread: LoadedThread) -> bool:
        """Return whether the thread has more than one subscriber."""
        return self._subscribers.get(thread.id, 0) > 1

    def has_subscribers(self, thread: LoadedThread) -> bool:
        """Whether any client is subscribed to a thread."""
        return thread.id in self._subscribers

    def release_idle(self) -> None:
        """Unload all idle threads without subscribers, to free file descriptors."""
        self._trim(keep=0)

    def _trim(self, keep: int = MAX_IDLE) -> None:
        idle = [
            thread
            for thread in self._loaded.values()
            if thread.id not in self._subscribers
            and thread.turn is None
            and not thread.queue.is_starting
            and not self.agents.has_busy(thread)
        ]
        for is_ephemeral, kept in ((False, keep), (True, MAX_IDLE_EPHEMERAL)):
            alike = [thread for thread in idle if thread.meta.ephemeral == is_ephemeral]
            for thread in alike[: max(0, len(alike) - kept)]:
                self.unload(thread)

    # -- calls of threads

    def tools_of(self, thread: LoadedThread) -> ToolRegistry:
        """Return the tools of a thread."""
        from treadle.engine.tools.toolset import toolbox_of

        return toolbox_of(thread, self.agents)

    def find_conversation(self, thread_id: str) -> tuple[ThreadMeta, Sequence[ModelItem]] | None:
        """Return the metadata and the history of a thread, if it is in memory."""
        thread = self._loaded.get(thread_id)
        return None if thread is None else (thread.meta, thread.context.history.items)

    def on_event(self, event: Event) -> None:
        """Broadcast an event if all clients receive its kind."""
        if event.method in BROADCAST:
            self.services.broadcasts.forward(event)

    def on_steered(self) -> None:
        """Wake the calls that wait for sub-agents: a turn has new input."""
        self.agents.wake()

    def on_settings_changed(self, thread: LoadedThread) -> None:
        """Apply new settings of a thread to its sub-agents."""
        if self.loaded_children(thread.id):
            self.agents.settings_changed(thread)

    def on_turn_began(self, thread: LoadedThread) -> None:
        """Update the state of a sub-agent."""
        self.agents.turn_began(thread)

    def on_turn_ended(self, thread: LoadedThread, turn: ActiveTurn) -> None:
        """Update the thread's metadata, and notify the agents that wait for the thread."""
        self.agents.turn_ended(thread, turn)
        thread.messages.add_past_turns([turn.snapshot()])
        now = self.services.clock() // 1000
        thread.state.update_meta(
            updated_at=now,
            recency_at=now,
            model=thread.settings.model,
            reasoning_effort=thread.settings.effort,
        )
        if thread.id not in self._subscribers:
            # Later: the thread still has to record the turn's effect on its goal.
            loop = asyncio.get_running_loop()
            loop.call_soon(self._close_if_idle, thread)
            loop.call_soon(self._trim)

    def continue_queue(self, thread: LoadedThread) -> None:
        """Start a turn with the first queued input of a thread."""
        from treadle.engine.queued_turns import continue_queue

        if not self.services.tasks.is_closed:
            self.services.tasks.spawn(continue_queue(thread), f"queue of {thread.id}")

    # -- snapshots

    def models_in_use(self) -> list[Model]:
        """Return the models of the active turns."""
        turns = (thread.turn for thread in self._loaded.values())
        return [turn.model for turn in turns if turn is not None and turn.model is not None]

    def snapshot(self, meta: ThreadMeta, turns: list[TurnSnapshot] | None = None) -> ThreadSnapshot:
        """Return a thread as clients see it, loaded or not."""
        thread = self._loaded.get(meta.id)
        if thread is not None:
            return self.placed(thread.snapshot(turns))
        placement = self.store.placement(meta.id)
        return thread_snapshot(meta, NotLoadedThreadStatus(), turns or [], placement)

    def placed(self, snapshot: ThreadSnapshot) -> ThreadSnapshot:
        """Return a snapshot with the section and the project of its thread."""
        placement = self.store.placement(snapshot.id)
        if placement is NOWHERE:
            return snapshot
        return msgspec.structs.replace(
            snapshot,
            section=placement.section,
            section_entered_at=placement.entered_at,
            project_id=placement.project_id or snapshot.project_id,
        )

    def install(self, journal: Journal, loaded: LoadedState) -> LoadedThread:
        """Create a thread in memory."""
        from treadle.engine.thread import LoadedThread

        self._created.discard(loaded.meta.id)
        thread = LoadedThread(journal, loaded, self.services, self)
        self._loaded[thread.id] = thread
        return thread


def _new_meta(
    settings: RunSettings,
    now: int,
    budget: Budget | None,
    metadata: dict[str, JsonValue] | None,
    *,
    ephemeral: bool,
) -> ThreadMeta:
    """Return the metadata of a new thread; `now` is in seconds."""
    extra = {"budget": msgspec.to_builtins(budget), "metadata": metadata}
    return ThreadMeta(
        id=uuid7(),
        created_at=now,
        updated_at=now,
        recency_at=now,
        cwd=settings.cwd,
        model=settings.model,
        model_provider=settings.model_provider,
        reasoning_effort=settings.effort,
        ephemeral=ephemeral,
        base_instructions=settings.base_instructions,
        developer_instructions=settings.developer_instructions,
        dynamic_tools=list(settings.dynamic_tools) or None,
        extra={name: value for name, value in extra.items() if value} or None,
    )
