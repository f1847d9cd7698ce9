"""The threads of a server: starts, loads and unloads them, and publishes to all clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from treadle.engine.accounting.budget import Meter, meter_of
from treadle.engine.accounting.usage import TokenLedger
from treadle.engine.errors import EngineError, ThreadNotLoaded
from treadle.engine.events.log import EventLog
from treadle.engine.patch.resources import PatchResources
from treadle.engine.services import LoadedState, Models, new_meta
from treadle.engine.settings import RunSettings
from treadle.engine.stored_threads import StoredThreads
from treadle.model.base import Model
from treadle.model.retry import RetryPolicy
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.extension import Budget
from treadle.protocol.method import Notification
from treadle.protocol.status import NotLoadedThreadStatus
from treadle.protocol.thread import Thread as ThreadSnapshot
from treadle.protocol.thread_manage import ThreadClosedNotification
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.store.journal import Event, Journal, StoreError
from treadle.store.store import Store
from treadle.store.stored_thread import StoredThread, ThreadMeta, to_thread
from treadle.support.clock import NowMs, now_ms
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.support.concurrency.workers import Workers

# Imported with the first thread: these modules pull in everything that an agent can do.
if TYPE_CHECKING:
    from treadle.engine.agents.agents import Agents
    from treadle.engine.commands.rules import Rules, RulesCache
    from treadle.engine.mcp.config import McpSource
    from treadle.engine.thread import LoadedThread
    from treadle.engine.tools.registry import ToolRegistry
    from treadle.engine.turn import ActiveTurn
    from treadle.protocol.skill import SkillMetadata
    from treadle.sandbox.boundary import Boundary
    from treadle.sandbox.opened_roots import OpenedRoots

P = TypeVar("P", bound=msgspec.Struct)

MAX_IDLE: Final = 32
"""The number of idle threads without subscribers that stay in memory."""

MAX_FILE_WORKERS: Final = 32
MAX_TEXT_WORKERS: Final = 4

BROADCAST: Final = frozenset(
    method.method for method in (n.THREAD_STATUS_CHANGED, n.THREAD_NAME_UPDATED, n.THREAD_REVERTED)
)
"""Thread events that every client receives, subscribed or not."""


class Threads(StoredThreads):
    """The threads of one home, and the broadcasts to all clients."""

    def __init__(self, store: Store, models: Models, *, home: Path, clock: NowMs = now_ms) -> None:
        super().__init__(store)
        self.home = home
        self.clock = clock
        self.tasks = BackgroundTasks()
        self.file_workers = Workers("files", MAX_FILE_WORKERS)
        self.text_workers = Workers("texts", MAX_TEXT_WORKERS)
        self.patches = PatchResources()
        self.broadcasts = EventLog(None, clock)
        self.request_ids: Iterator[int] = count()
        # Called with the parent and the child for every sub-agent.
        self.on_spawn: Callable[[LoadedThread, LoadedThread], None] = lambda _parent, _child: None
        # Folders with the rules of a trusted project, besides the user's own.
        self.rule_folders: Callable[[str], Sequence[Path]] = lambda _cwd: ()
        self.skills: Callable[[str], Sequence[SkillMetadata]] = lambda _cwd: ()
        # Configuration folders besides the home, and the folders of trusted projects.
        self.settings_folders: Sequence[str] = ()
        self.trusted_folders: Callable[[], Sequence[str]] = tuple
        # The record of folders that commands were able to write.
        self.opened_roots: Callable[[], OpenedRoots] = self._opened_roots
        self.expects_commands = False
        self._mcp: McpSource | None = None
        self._models = models
        self._subscribers: dict[str, int] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @cached_property
    def agents(self) -> Agents:
        """The sub-agents of all threads."""
        from treadle.engine.agents.agents import Agents

        agents = Agents(self)
        agents.on_spawn = self.on_spawn
        return agents

    @cached_property
    def boundary(self) -> Boundary:
        """Decides what commands and tools may write."""
        from treadle.sandbox.boundary import Boundary
        from treadle.sandbox.protection import server_protection

        protection = server_protection(
            str(self.home), folders=self.settings_folders, trusted=self.trusted_folders
        )
        return Boundary(protection, self.opened_roots())

    def _opened_roots(self) -> OpenedRoots:
        from treadle.sandbox.opened_roots import OpenedRoots

        return OpenedRoots(self.home)

    @cached_property
    def _rules(self) -> RulesCache:
        from treadle.engine.commands.rules import RulesCache

        return RulesCache()

    @property
    def mcp(self) -> McpSource:
        """The source of MCP configuration; empty by default."""
        if self._mcp is None:
            from treadle.engine.mcp.servers import NoMcp

            self._mcp = NoMcp()
        return self._mcp

    @mcp.setter
    def mcp(self, source: McpSource) -> None:
        self._mcp = source

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
        """
        meta = describe(
            new_meta(settings, self.clock() // 1000, budget, metadata, ephemeral=ephemeral)
        )
        journal = self.store.create(meta, ephemeral=ephemeral)
        meta = msgspec.structs.replace(meta, path=journal.path)
        return self.install(
            journal, LoadedState(meta, settings, meter=Meter(budget, "thread") if budget else None)
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
        it continues to wait. `is_waiting` says whether a sub-agent waits (`find_waiting_agents`).
        """
        from treadle.engine.recovery import received_messages, recover

        suspended = recover(journal, stored, self.clock(), is_waiting)
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
                open_requests=suspended.requests if suspended else {},
                last_context=stored.settings,
                closed_agents=stored.closed_agents,
            ),
        )
        thread.log.sync_soon()
        thread.messages.add_past_turns(stored.turns)
        if suspended is not None:
            turn = suspended.restore_turn(thread)
            thread.restore_grants(turn, stored.grants)
            thread.continue_turn(turn, suspended.calls)
        return thread

    async def discard(self, thread: LoadedThread) -> None:
        """Unload a thread that no client knows, and delete what is stored of it."""
        self._loaded.pop(thread.id, None)
        thread.close()
        with suppress(OSError, StoreError):
            await self.store.run(partial(self.store.delete, thread.id))

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
        if self._loaded.pop(thread.id, None) is not None:
            thread.set_status(NotLoadedThreadStatus())
            thread.close()

    def close_thread(self, thread: LoadedThread) -> None:
        """Unload a thread that has lost its last subscriber."""
        self.unload(thread)
        self.broadcast(n.THREAD_CLOSED, ThreadClosedNotification(thread.id))

    def interrupt_turns(self) -> None:
        """Stop every active turn, or suspend it for the next server."""
        from treadle.engine.suspension import stop_or_suspend

        for thread in self._loaded.values():
            stop_or_suspend(thread)

    async def close(self) -> None:
        """End every turn and release all resources."""
        self.interrupt_turns()
        await self.tasks.close()
        for thread in self._loaded.values():
            thread.close()
        self._loaded.clear()
        self.store.close()
        await self._models.close()

    # -- subscribers

    def add_subscriber(self, thread: LoadedThread) -> None:
        """Count one more subscriber."""
        self._subscribers[thread.id] = self._subscribers.get(thread.id, 0) + 1

    def remove_subscriber(self, thread: LoadedThread) -> int:
        """Count one subscriber less; return the remaining number."""
        remaining = self._subscribers.pop(thread.id, 1) - 1
        if remaining > 0:
            self._subscribers[thread.id] = remaining
        else:
            self._trim()
        return remaining

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
            and not thread.meta.ephemeral
            and not self.agents.has_busy(thread)
        ]
        for thread in idle[: max(0, len(idle) - keep)]:
            self.unload(thread)

    # -- services for threads

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """Return the model that these settings name, and its retry policy."""
        return self._models.model(settings)

    def models_in_use(self) -> list[Model]:
        """Return the models of the active turns."""
        turns = (thread.turn for thread in self._loaded.values())
        return [turn.model for turn in turns if turn is not None and turn.model is not None]

    def tools(self, thread: LoadedThread) -> ToolRegistry:
        """Return the tools of a thread."""
        from treadle.engine.tools.toolset import toolbox_of

        return toolbox_of(thread)

    def prepare_sandbox(self) -> None:
        """Prepare the sandbox for commands, once."""
        if not self.expects_commands and not self.tasks.is_closed:
            self.expects_commands = True
            from treadle.engine.terminals.sandbox_status import make_ready

            self.tasks.spawn(make_ready(self), "prepare the sandbox")

    def rules(self, cwd: str) -> Rules:
        """Return the command rules: the user's own, and those of a trusted project."""
        return self._rules.load([self.home / "rules", *self.rule_folders(cwd)])

    def on_rate_limits(self, snapshot: JsonValue) -> None:
        """Broadcast the rate limits that a provider reported."""
        params = msgspec.convert({"rateLimits": snapshot}, n.ACCOUNT_RATE_LIMITS_UPDATED.params)
        self.broadcast(n.ACCOUNT_RATE_LIMITS_UPDATED, params)

    def on_turn_ended(self, thread: LoadedThread, turn: ActiveTurn) -> None:
        """Update the thread's metadata, and notify the agents that wait for the thread."""
        self.agents.turn_ended(thread, turn)
        thread.messages.add_past_turns([turn.snapshot()])
        now = self.clock() // 1000
        thread.meta = msgspec.structs.replace(
            thread.meta,
            updated_at=now,
            recency_at=now,
            model=thread.settings.model,
            reasoning_effort=thread.settings.effort,
        )
        if thread.id not in self._subscribers:
            # Later: the thread still has to record the turn's effect on its goal.
            asyncio.get_running_loop().call_soon(self._trim)

    # -- broadcasts and snapshots

    def broadcast(self, method: Notification[P], params: P) -> None:
        """Publish a notification to all clients."""
        self.broadcasts.publish(method, params)

    def snapshot(self, meta: ThreadMeta, turns: list[TurnSnapshot] | None = None) -> ThreadSnapshot:
        """Return a thread as clients see it, loaded or not."""
        thread = self._loaded.get(meta.id)
        if thread is not None:
            return thread.snapshot(turns)
        return to_thread(meta, NotLoadedThreadStatus(), turns or [])

    def install(self, journal: Journal, loaded: LoadedState) -> LoadedThread:
        """Create a thread in memory; it replaces one with the same id."""
        from treadle.engine.thread import LoadedThread

        thread = LoadedThread(journal, loaded, self)
        thread.log.on_event = self._on_event
        self._loaded[thread.id] = thread
        return thread

    def _on_event(self, event: Event) -> None:
        if event.method in BROADCAST:
            self.broadcasts.forward(event)
