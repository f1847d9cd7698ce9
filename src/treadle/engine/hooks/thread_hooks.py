"""The hooks of one thread: which are in force, and what is still to run or to be read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from treadle.engine.hooks.hook import NOTHING, FoundHooks, Hook, HookSet
from treadle.engine.hooks.start import StartSource
from treadle.model.base import ModelEvent, ModelItem
from treadle.protocol import notifications as n
from treadle.protocol.error import WarningNotification
from treadle.protocol.hook import HookEventName
from treadle.store.stored_thread import ThreadMeta

if TYPE_CHECKING:
    from treadle.engine.hooks.running import HookRunner
    from treadle.engine.mcp.servers import McpServers
    from treadle.engine.state import ThreadState
    from treadle.engine.turn import ActiveTurn

FindThread: TypeAlias = Callable[[str], tuple[ThreadMeta, Sequence[ModelItem]] | None]
"""Returns the metadata and the history of a thread, if it is in memory."""

_MAX_PARENTS: Final = 64
MAX_LATE_TEXTS: Final = 20
"""How many outputs of background hooks wait for the user's next input."""


class ThreadHooks:
    """Knows the hooks of a thread; without any, every question about them is one look-up."""

    def __init__(
        self,
        thread: ThreadState,
        servers: McpServers,
        find_thread: FindThread,
        source: StartSource,
    ) -> None:
        self.thread = thread
        self._servers = servers
        self._find_thread = find_thread
        self._set = HookSet()
        self._was_read = False
        self._warned: set[str] = set()
        # How the session starts, until its hooks have run.
        self.pending_start: StartSource | None = source
        # What hooks in the background had to say, with their events.
        self.late_texts: deque[tuple[str, str]] = deque(maxlen=MAX_LATE_TEXTS)
        self.background: set[asyncio.Task[None]] = set()
        # Calls that a hook wants the user to approve, and why.
        self.asked: dict[str, str] = {}
        # Whether a turn has run, so that the session has an end too.
        self._has_session = False

    async def refresh(self) -> str | None:
        """Read the configured hooks, as they are now; return why no turn can run without them.

        A configuration that becomes invalid later changes nothing.
        """
        self._has_session = True
        services, settings = self.thread.services, self.thread.settings
        found = await services.file_workers.run(services.find_hooks, settings)
        if found.failure is not None:
            return None if self._was_read else f"hooks cannot be read: {found.failure}"
        self._was_read = True
        if found is not NOTHING or not self._set.is_empty:
            self._set = found.in_force()
            self._warn(found)
        return None

    def _warn(self, found: FoundHooks) -> None:
        waiting = found.waiting()
        texts = [f"hooks: {error.path}: {error.message}" for error in found.errors]
        if waiting:
            keys = ", ".join(hook.key for hook in waiting[:3])
            more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
            texts.append(
                f"hooks that are not trusted do not run: {keys}{more}; review them with hooks/list"
            )
        for text in texts:
            if text not in self._warned:
                self._warned.add(text)
                self.warn(text)

    def warn(self, text: str) -> None:
        """Publish a warning to the clients of the thread."""
        self.thread.log.publish(n.WARNING, WarningNotification(text, self.thread.id))

    @property
    def is_empty(self) -> bool:
        """Whether no hook is in force."""
        return self._set.is_empty

    def has(self, *events: HookEventName) -> bool:
        """Whether a hook for one of the events is in force."""
        return self._set.has(*events)

    def select(self, event: HookEventName, names: Sequence[str] = ()) -> list[Hook]:
        """Return the hooks of an event whose matcher accepts one of the names."""
        return self._set.of(event, names)

    @property
    def has_end(self) -> bool:
        """Whether a session has begun, and hooks run at its end."""
        return self._has_session and self.has("sessionEnd")

    async def end_session(self) -> None:
        """Run the hooks of the end of the session; limited to a few seconds."""
        from treadle.engine.hooks.points import end_session

        await end_session(self)

    def on_unload(self) -> asyncio.Task[None] | None:
        """Run the hooks of the end of the session in the background, as the thread closes."""
        tasks = self.thread.services.tasks
        if not self.has_end or tasks.is_closed:
            return None
        self.runner.stop_recording()
        return tasks.spawn(self.end_session(), f"end {self.thread.id}")

    def in_background(self, work: Coroutine[None, None, None], name: str) -> None:
        """Run hooks until they end, or the thread does."""
        if self.thread.services.tasks.is_closed:
            work.close()
            return
        task = self.thread.services.tasks.spawn(work, name)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    def close(self) -> None:
        """End the hooks that run in the background."""
        for task in list(self.background):
            task.cancel()

    def on_interrupt(self, turn: ActiveTurn) -> None:
        """Run the hooks after a turn that the user interrupted, in the background."""
        if self.has("interrupt"):
            from treadle.engine.hooks.points import interrupted

            self.in_background(interrupted(self, turn), f"hooks of {turn.id}")

    async def around(
        self, turn: ActiveTurn, stream: AsyncGenerator[ModelEvent]
    ) -> AsyncGenerator[ModelEvent]:
        """Run the hooks before a request to the model; return its stream, after which others run.

        Raises:
            ModelError: a hook denies the request.
        """
        if self.has("preModelRequest"):
            from treadle.engine.hooks.points import before_model

            await before_model(self, turn)
        if not self.has("postModelRequest"):
            return stream
        from treadle.engine.hooks.points import observed

        return observed(self, turn, stream)

    def parent(self) -> ThreadMeta | None:
        """Return the parent of a sub-agent, if it is in memory."""
        return self._parent_of(self.thread.meta)

    def session_id(self) -> str:
        """Return the id of the session, which sub-agents share with the thread above them."""
        top = self.thread.meta
        for _ in range(_MAX_PARENTS):
            parent = self._parent_of(top)
            if parent is None:
                break
            top = parent
        return top.session_id or top.id

    def _parent_of(self, meta: ThreadMeta) -> ThreadMeta | None:
        found = self._find_thread(meta.parent_thread_id) if meta.parent_thread_id else None
        return None if found is None else found[0]

    @cached_property
    def runner(self) -> HookRunner:
        """Runs hooks; created for the first one."""
        from treadle.engine.hooks.running import HookRunner

        return HookRunner(self.thread, self._servers)
