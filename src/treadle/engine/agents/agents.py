"""Sub-agents: threads with a parent, and their states.

A child is an ordinary thread with its own events, clients and server requests. This module owns
the rest: its parent, the limits, and the notice to the parent's model when it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.engine.accounting.budget import Meter
from treadle.engine.agents.roles import ROLES, free_name
from treadle.engine.agents.setup import (
    depth_of,
    describe_child,
    messages_of,
    settings_for,
)
from treadle.engine.agents.states import PENDING, RUNNING, SHUTDOWN, outcome, state_after, word_for
from treadle.engine.conversation.context import turn_context
from treadle.engine.conversation.input import InputFiles, message, to_model_items
from treadle.engine.errors import TooManyThreads
from treadle.engine.settings import RunSettings
from treadle.engine.stored.permissions import restore_choices
from treadle.protocol import notifications as n
from treadle.protocol.input import UserInput
from treadle.protocol.item import CollabAgentState
from treadle.protocol.status import ThreadStatusChangedNotification
from treadle.protocol.turn import TurnStartParams
from treadle.store.journal import StorageFailed, StoreError
from treadle.store.records import AgentClosed, SettingsChanged

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.threads import Threads
    from treadle.engine.turn import ActiveTurn
    from treadle.store.stored_thread import ThreadMeta

logger = logging.getLogger(__name__)

MAX_LINE: Final = 64
"""How many stored threads are read to find out whether an agent descends from a thread."""


class AgentRefused(Exception):
    """The operation is not possible; the text is for the model."""


class SubAgent(Struct):
    """A thread that works for a parent thread."""

    id: str
    parent_id: str
    nickname: str
    settings: RunSettings
    state: CollabAgentState = PENDING
    is_open: bool = True
    # The number of calls that wait for its end; while there are any, no notice is needed.
    waiters: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the agent is idle or closed."""
        return self.state.status not in ("pendingInit", "running")


class Agents:
    """The children of all threads of a server."""

    def __init__(
        self, threads: Threads, on_spawn: Callable[[LoadedThread, LoadedThread], None]
    ) -> None:
        self._threads = threads
        self._children: dict[str, SubAgent] = {}
        self._change = asyncio.Event()
        self._on_spawn = on_spawn

    # -- operations of the agent tools

    def spawn(
        self,
        parent: LoadedThread,
        turn: ActiveTurn,
        content: list[UserInput],
        files: InputFiles,
        *,
        role: str | None = None,
        model: str | None = None,
        effort: str | None = None,
        forks: bool = False,
    ) -> SubAgent:
        """Start a sub-agent with a task.

        `files` holds the contents of the input's files.

        Raises:
            AgentRefused: a limit is reached, or the role is unknown.
            InvalidInput: the task is invalid.
        """
        if role is not None and role not in ROLES:
            known = ", ".join(ROLES)
            raise AgentRefused(f"unknown agent_type {role!r}; known types: {known}")
        self._check_room(parent)
        # Rejects invalid input before anything is created.
        to_model_items(content, files)
        settings = settings_for(parent.settings_of(turn), role, model, effort)
        name = free_name({child.nickname for child in self._family(parent.id)})
        thread = self._threads.start(
            settings,
            describe=lambda meta: describe_child(meta, parent.meta, name, role),
            ephemeral=parent.meta.ephemeral,
        )
        if forks:
            thread.context.history.add(*messages_of(parent.context.history.items))
        child = SubAgent(thread.id, parent.id, name, settings)
        self._adopt(parent, thread, child)
        self._give(child, thread, content, files, turn)
        return child

    async def send(
        self,
        parent: LoadedThread,
        turn: ActiveTurn,
        child: SubAgent,
        content: list[UserInput],
        files: InputFiles,
    ) -> str:
        """Send input to a child, for a new turn or its active one; return the turn's id.

        Raises:
            AgentRefused: the child is closed.
        """
        if not child.is_open:
            raise AgentRefused(f"agent {child.id} is closed; resume it first")
        owner = self._threads.find(child.parent_id) or parent
        thread = self._threads.find(child.id)
        if thread is None:
            # It was unloaded because it had no subscribers.
            thread = await self._load(child)
            self._adopt(owner, thread, child)
        _follow(thread, parent.settings_of(turn) if owner is parent else owner.settings)
        return self._give(child, thread, content, files, turn)

    async def interrupt(self, child: SubAgent) -> None:
        """Interrupt the active turn of a child."""
        thread = self._threads.find(child.id)
        if thread is not None:
            await thread.halt()

    async def wait(self, turn: ActiveTurn, children: Sequence[SubAgent], timeout_s: float) -> None:
        """Wait until a child is done, the turn receives input, or the timeout expires."""
        for child in children:
            child.waiters += 1
        try:
            async with asyncio.timeout(timeout_s):
                while not (turn.pending_input or any(child.is_done for child in children)):
                    await self._change.wait()
                for child in children:
                    # Clients receive the end of a child before the result of this call.
                    thread = self._threads.find(child.id) if child.is_done else None
                    if thread is not None:
                        await thread.log.published()
        except TimeoutError:
            pass
        finally:
            for child in children:
                child.waiters -= 1

    async def close(self, child: SubAgent) -> CollabAgentState:
        """Stop and unload a child and its own children; return its previous state."""
        before = child.state
        self._retire(child)
        self._record_closed(child, is_closed=True)
        for below in self._below(child.id):
            await self.close(below)
        thread = self._threads.find(child.id)
        if thread is not None:
            await thread.halt()
            if self._threads.find(child.id) is thread:
                self._threads.unload(thread)
        return before

    async def resume(self, parent: LoadedThread, child_id: str) -> SubAgent:
        """Reopen a closed child; an open one is left unchanged.

        Raises:
            AgentRefused: there is no such child, or a limit is reached.
        """
        child = await self.find(parent, child_id)
        if child is None:
            raise AgentRefused(f"agent with id {child_id} not found")
        if child.is_open:
            return child
        self._check_room(parent)
        thread = self._threads.find(child_id) or await self._load(child)
        child.is_open, child.state = True, RUNNING if thread.turn is not None else PENDING
        self._record_closed(child, is_closed=False)
        self._adopt(self._threads.find(child.parent_id) or parent, thread, child)
        return child

    async def find(self, parent: LoadedThread, child_id: str) -> SubAgent | None:
        """Find a descendant of a thread.

        A child from an earlier server is loaded, unless it is closed.
        """
        child = self._children.get(child_id) or await self._find_stored(parent, child_id)
        return child if child is not None and self._is_below(child, parent.id) else None

    # -- events of threads

    def turn_began(self, thread: LoadedThread) -> None:
        """Set the state of a child to running."""
        child = self._children.get(thread.id)
        if child is not None and child.is_open:
            self._set(child, RUNNING)

    def turn_ended(self, thread: LoadedThread, turn: ActiveTurn) -> None:
        """Set the state of a child; when a parent is interrupted, close its children."""
        child = self._children.get(thread.id)
        if child is not None and child.is_open:
            self._finish(child, outcome(turn))
        if turn.state == "interrupted" and not turn.ends_with_server:
            for below in self._below(thread.id):
                self._record_closed(below, is_closed=True)
            self.dismiss(thread.id)

    def settings_changed(self, parent: LoadedThread) -> None:
        """Have the children of a thread keep to what it may do from now on."""
        for thread in self._threads.loaded_children(parent.id):
            _follow(thread, parent.settings)

    def wake(self) -> None:
        """Wake the calls that wait for sub-agents."""
        changed, self._change = self._change, asyncio.Event()
        changed.set()

    def dismiss(self, parent_id: str) -> None:
        """Close the children of a thread in the background."""
        for child in self._below(parent_id):
            if child.is_open and not self._threads.services.tasks.is_closed:
                self._retire(child)
                self._threads.services.tasks.spawn(
                    self._close_in_background(child), f"close agent {child.id}"
                )

    def open_threads(self, parent: LoadedThread) -> list[LoadedThread]:
        """Return the loaded threads of the open children."""
        children = (child for child in self._below(parent.id) if child.is_open)
        threads = (self._threads.find(child.id) for child in children)
        return [thread for thread in threads if thread is not None]

    def has_busy(self, parent: LoadedThread) -> bool:
        """Whether a sub-agent of the thread has an active turn."""
        return any(thread.turn is not None for thread in self.open_threads(parent))

    # -- internals

    def _check_room(self, parent: LoadedThread) -> None:
        limits = parent.settings.agents
        if depth_of(parent.meta) >= limits.max_depth:
            raise AgentRefused("an agent at this depth cannot spawn agents")
        if sum(child.is_open for child in self._family(parent.id)) >= limits.max_threads:
            raise AgentRefused(
                f"{limits.max_threads} agents are open, which is the limit: close one first"
            )

    def _adopt(self, parent: LoadedThread, thread: LoadedThread, child: SubAgent) -> None:
        self._add(parent, child)
        _follow(thread, parent.settings)
        # A child's usage counts against its parent's budgets.
        thread.usage.charge_parent(lambda: parent.usage.meters)
        self._on_spawn(parent, thread)

    def _add(self, parent: LoadedThread, child: SubAgent) -> None:
        """Keep a child for as long as its parent is loaded."""
        if not self._below(parent.id):
            parent.at_close(lambda: self._forget(parent.id))
        self._children[child.id] = child

    def _give(
        self,
        child: SubAgent,
        thread: LoadedThread,
        content: list[UserInput],
        files: InputFiles,
        turn: ActiveTurn,
    ) -> str:
        params = TurnStartParams(
            input=content, thread_id=thread.id, root_turn_id=turn.root_id or turn.id
        )
        accepted = thread.begin_turn(params, files=files)
        self._share_budgets(child, thread, accepted.snapshot.id)
        self._set(child, RUNNING)
        accepted.start()
        return accepted.snapshot.id

    def _share_budgets(self, child: SubAgent, thread: LoadedThread, turn_id: str) -> None:
        """Count a child's turn against the budgets of the turn that it works for.

        Also after that turn has ended: otherwise a model could spawn an agent to escape its budget.
        """
        parent = self._threads.find(child.parent_id)
        if parent is None:
            return
        of_turn = parent.usage.meters

        def meters() -> list[Meter]:
            is_active = thread.turn is not None and thread.turn.id == turn_id
            return of_turn if is_active else parent.usage.meters

        thread.usage.charge_parent(meters)

    async def _find_stored(self, parent: LoadedThread, child_id: str) -> SubAgent | None:
        """Find a descendant that was not used since the server started.

        Those between it and the parent are found first: the parent may not know them either.
        """
        line: list[ThreadMeta] = []
        above: str | None = child_id
        while above != parent.id and above not in self._children:
            if above is None or len(line) >= max(MAX_LINE, parent.settings.agents.max_depth):
                return None
            try:
                line.append(await self._threads.stored.read_meta(above))
            except StoreError:
                return None
            above = line[-1].parent_thread_id
        owner: LoadedThread | None = parent
        child: SubAgent | None = None
        for meta in reversed(line):
            if meta.parent_thread_id != parent.id:
                owner = self._threads.find(meta.parent_thread_id or "")
            if owner is None:
                return None
            # Another call may have found it meanwhile.
            child = self._children.get(meta.id) or await self._find_below(owner, meta)
            if child is None or not self._is_below(child, parent.id):
                return None
        return child

    async def _find_below(self, owner: LoadedThread, meta: ThreadMeta) -> SubAgent | None:
        """Find a stored child of a loaded thread."""
        known = self._children.get(owner.id)
        if meta.id == owner.id or (known is not None and self._is_below(known, meta.id)):
            return None  # only a damaged or foreign file names a descendant as its parent
        child = SubAgent(meta.id, owner.id, meta.agent_nickname or "", owner.settings)
        child.settings = settings_for(owner.settings, None, meta.model, meta.reasoning_effort)
        if meta.id in owner.closed_agents:
            child.is_open, child.state = False, SHUTDOWN
            self._add(owner, child)
            return child
        try:
            thread = self._threads.find(meta.id) or await self._load(child)
        except AgentRefused:
            return None
        is_busy = thread.turn is not None
        child.state = RUNNING if is_busy else state_after(await self._threads.stored.turns(thread))
        self._adopt(owner, thread, child)
        return child

    async def _load(self, child: SubAgent) -> LoadedThread:
        async with self._threads.opening(child.id):
            # A client may have loaded it meanwhile.
            return self._threads.find(child.id) or await self._open(child)

    async def _open(self, child: SubAgent) -> LoadedThread:
        try:
            journal, stored = await self._threads.open(child.id)
        except StoreError as error:
            raise AgentRefused(f"agent with id {child.id} not found") from error
        if stored.meta.archived:
            journal.close()
            raise AgentRefused(f"agent with id {child.id} not found")
        # Its task is its own, and so is what a client chose; the rest comes from the parent.
        instructions = stored.meta.developer_instructions
        settings = replace(child.settings, developer_instructions=instructions)
        last = stored.pending_settings or stored.settings
        if last is not None:
            settings = self._threads.services.limit(restore_choices(settings, last), settings)
        is_waiting = await self._threads.stored.find_waiting_agents(stored)
        try:
            thread = self._threads.load(journal, stored, settings, is_waiting)
        except (StorageFailed, TooManyThreads) as error:
            journal.close()
            raise AgentRefused(f"agent with id {child.id} cannot be resumed: {error}") from error
        params = ThreadStatusChangedNotification(status=thread.status, thread_id=thread.id)
        self._threads.services.broadcast(n.THREAD_STATUS_CHANGED, params)
        return thread

    def _record_closed(self, child: SubAgent, *, is_closed: bool) -> None:
        """Record whether a child is closed, for the next server that loads its parent."""
        parent = self._threads.find(child.parent_id)
        if parent is None or (child.id in parent.closed_agents) == is_closed:
            return
        parent.closed_agents ^= {child.id}
        parent.log.record(AgentClosed(child.id, is_closed))

    def _finish(self, child: SubAgent, state: CollabAgentState) -> None:
        """Set the final state of a child, and notify the parent's model unless it waits."""
        self._set(child, state)
        parent = self._threads.find(child.parent_id)
        if parent is not None and not child.waiters:
            status = {"agent_path": child.id, "nickname": child.nickname, "status": word_for(state)}
            text = msgspec.json.encode(status).decode()
            note = f"<subagent_notification>\n{text}\n</subagent_notification>"
            parent.context.add_note(message("user", note))

    def _forget(self, parent_id: str) -> None:
        """Forget the children of a thread that is unloaded; the store still has them."""
        self.dismiss(parent_id)
        for child in self._below(parent_id):
            del self._children[child.id]

    def _retire(self, child: SubAgent) -> None:
        child.is_open = False
        self._set(child, SHUTDOWN)

    def _set(self, child: SubAgent, state: CollabAgentState) -> None:
        child.state = state
        self.wake()

    async def _close_in_background(self, child: SubAgent) -> None:
        await self.close(child)

    def _below(self, parent_id: str) -> list[SubAgent]:
        return [child for child in self._children.values() if child.parent_id == parent_id]

    def _family(self, thread_id: str) -> Iterable[SubAgent]:
        """Return all sub-agents of the root thread, at any depth."""
        root = thread_id
        while root in self._children:
            root = self._children[root].parent_id
        return [child for child in self._children.values() if self._is_below(child, root)]

    def _is_below(self, child: SubAgent, ancestor_id: str) -> bool:
        above: SubAgent | None = child
        while above is not None:
            if above.parent_id == ancestor_id:
                return True
            above = self._children.get(above.parent_id)
        return False


def _follow(thread: LoadedThread, above: RunSettings) -> None:
    """Let a child do what its parent may do now, unless a client chose otherwise for it."""
    settings = thread.settings.following(above)
    if settings != thread.settings:
        thread.log.record(SettingsChanged(turn_context(settings)))
        thread.update_settings(settings)
