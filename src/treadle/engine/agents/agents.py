"""Agents that work for other agents: threads with a parent, and how they are doing.

A child is a thread like any other, with events, clients and questions of its own. What is special
about it is kept here: whose it is, how many there may be, and that its parent hears how it ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from treadle.engine.agents.roles import ROLES, free_name
from treadle.engine.agents.setup import (
    depth_of,
    describe_child,
    permissions_in,
    settings_for,
    words_of,
)
from treadle.engine.agents.states import PENDING, RUNNING, SHUTDOWN, outcome, state_after, word_for
from treadle.engine.conversation.input import InputFiles, message, to_model_items
from treadle.engine.settings import RunSettings
from treadle.protocol import notifications as n
from treadle.protocol.input import UserInput
from treadle.protocol.item import CollabAgentState
from treadle.protocol.status import ThreadStatusChangedNotification
from treadle.protocol.turn import TurnStartParams
from treadle.store.journal import StorageFailed, StoreError
from treadle.store.records import AgentClosed

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.threads import Threads
    from treadle.engine.turn import ActiveTurn

logger = logging.getLogger(__name__)


class AgentRefused(Exception):
    """It cannot be done; the text is for the model."""


@dataclass(slots=True)
class SubAgent:
    """An agent that works for another one."""

    id: str
    parent_id: str
    nickname: str
    settings: RunSettings
    state: CollabAgentState = PENDING
    is_open: bool = True
    # How many calls wait for it: they hear of its end before anybody tells them.
    waiters: int = 0

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.state.status not in ("pendingInit", "running")


class Agents:
    """The children of all threads of a server."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._children: dict[str, SubAgent] = {}
        self._change = asyncio.Event()
        self.on_spawn: Callable[[LoadedThread, LoadedThread], None] = lambda _parent, _child: None

    # -- what agents do with each other

    def spawn(
        self,
        parent: LoadedThread,
        turn: ActiveTurn,
        given: list[UserInput],
        files: InputFiles,
        *,
        role: str | None = None,
        model: str | None = None,
        effort: str | None = None,
        forks: bool = False,
    ) -> SubAgent:
        """Begin a thread that works for another one, and give it its task.

        `files` holds what the files of the input hold.

        Raises:
            AgentRefused: there are too many, too deep, or the role is not known.
            InvalidInput: what is given to it cannot be read.
        """
        if role is not None and role not in ROLES:
            known = ", ".join(ROLES)
            raise AgentRefused(f"unknown agent_type {role!r}; there are: {known}")
        self._check_room(parent)
        # Refuses what cannot be read before there is anything to let go of again.
        to_model_items(given, files)
        settings = settings_for(parent.settings_of(turn), role, model, effort)
        name = free_name({child.nickname for child in self._family(parent.id)})
        thread = self._threads.start(
            settings,
            describe=lambda meta: describe_child(meta, parent, name, role),
            ephemeral=parent.meta.ephemeral,
        )
        if forks:
            thread.history.add(*words_of(parent.history.items))
        child = SubAgent(thread.id, parent.id, name, settings)
        self._adopt(parent, thread, child)
        self._give(child, thread, given, files, turn)
        return child

    async def send(
        self,
        parent: LoadedThread,
        turn: ActiveTurn,
        child: SubAgent,
        given: list[UserInput],
        files: InputFiles,
    ) -> str:
        """Give a child something to do, now or after what it is doing; gives the turn's id.

        Raises:
            AgentRefused: it was closed.
        """
        if not child.is_open:
            raise AgentRefused(f"agent {child.id} is closed; resume it first")
        thread = self._threads.find(child.id)
        if thread is None:
            # Nobody had listened to it for a while.
            thread = await self._load(child)
            self._adopt(parent, thread, child)
        self._follow(child, parent.settings_of(turn))
        return self._give(child, thread, given, files, turn)

    async def interrupt(self, child: SubAgent) -> None:
        """Stop what a child is doing."""
        thread = self._threads.find(child.id)
        if thread is not None:
            await thread.halt()

    async def wait(self, turn: ActiveTurn, children: Sequence[SubAgent], timeout_s: float) -> None:
        """Wait until one of them has nothing left to do, the user says something, or time is up."""
        for child in children:
            child.waiters += 1
        try:
            async with asyncio.timeout(timeout_s):
                while not (turn.waiting or any(child.is_done for child in children)):
                    await self._change.wait()
                for child in children:
                    # Clients hear that a child has ended before they hear what came of it.
                    thread = self._threads.find(child.id) if child.is_done else None
                    if thread is not None:
                        await thread.log.published()
        except TimeoutError:
            pass
        finally:
            for child in children:
                child.waiters -= 1

    async def close(self, child: SubAgent) -> CollabAgentState:
        """Stop a child and its own children, and let go of them; gives how it was before."""
        before = child.state
        self._retire(child)
        self._note_closed(child, is_closed=True)
        for below in self._below(child.id):
            await self.close(below)
        thread = self._threads.find(child.id)
        if thread is not None:
            await thread.halt()
            if self._threads.find(child.id) is thread:
                self._threads.unload(thread)
        return before

    async def resume(self, parent: LoadedThread, child_id: str) -> SubAgent:
        """Load a child that was closed; one that is open stays as it is.

        Raises:
            AgentRefused: there is no such child, or no room for it.
        """
        child = await self.find(parent, child_id)
        if child is None:
            raise AgentRefused(f"agent with id {child_id} not found")
        if child.is_open:
            return child
        self._check_room(parent)
        thread = self._threads.find(child_id) or await self._load(child)
        child.is_open, child.state = True, RUNNING if thread.turn is not None else PENDING
        self._note_closed(child, is_closed=False)
        self._adopt(parent, thread, child)
        return child

    async def find(self, parent: LoadedThread, child_id: str) -> SubAgent | None:
        """A child, or a child's child, that a thread may talk to.

        One that worked for it under an earlier server is loaded, unless it was closed.
        """
        child = self._children.get(child_id) or await self._recall(parent, child_id)
        return child if child is not None and self._is_below(child, parent.id) else None

    def parent_of(self, thread: LoadedThread) -> LoadedThread | None:
        """The thread that an agent works for, if it is in memory."""
        parent_id = thread.meta.parent_thread_id
        return self._threads.find(parent_id) if parent_id is not None else None

    # -- what threads tell

    def turn_began(self, thread: LoadedThread) -> None:
        """Note that a child is at work, whoever gave it something to do."""
        child = self._children.get(thread.id)
        if child is not None and child.is_open:
            self._set(child, RUNNING)

    def turn_ended(self, thread: LoadedThread, turn: ActiveTurn) -> None:
        """Note how a child did; when a parent is interrupted, close its children."""
        child = self._children.get(thread.id)
        if child is not None and child.is_open:
            self._note(child, outcome(turn))
        if turn.state == "interrupted" and not turn.ends_with_server:
            for below in self._below(thread.id):
                self._note_closed(below, is_closed=True)
            self.dismiss(thread.id)

    def settings_changed(self, parent: LoadedThread) -> None:
        """Have the children of a thread keep to what it may do from now on."""
        for child in self._below(parent.id):
            self._follow(child, parent.settings)

    def wake(self) -> None:
        """Let those who wait for agents look up."""
        changed, self._change = self._change, asyncio.Event()
        changed.set()

    def dismiss(self, parent_id: str) -> None:
        """Close the children of a thread, without waiting for it."""
        for child in self._below(parent_id):
            if child.is_open and not self._threads.tasks.is_closed:
                self._retire(child)
                self._threads.tasks.spawn(self._close_quietly(child), f"close agent {child.id}")

    def open_threads(self, parent: LoadedThread) -> list[LoadedThread]:
        """The open children of a thread that are loaded."""
        found = (self._threads.find(child.id) for child in self._below(parent.id) if child.is_open)
        return [thread for thread in found if thread is not None]

    def has_busy(self, parent: LoadedThread) -> bool:
        """Whether somebody works for a thread."""
        return any(thread.turn is not None for thread in self.open_threads(parent))

    # -- the rest

    def _check_room(self, parent: LoadedThread) -> None:
        limits = parent.settings.agents
        if depth_of(parent.meta) >= limits.max_depth:
            raise AgentRefused("an agent at this depth cannot have agents of its own")
        if sum(child.is_open for child in self._family(parent.id)) >= limits.max_threads:
            raise AgentRefused(
                f"{limits.max_threads} agents are open, and there can be no more: close one first"
            )

    def _adopt(self, parent: LoadedThread, thread: LoadedThread, child: SubAgent) -> None:
        self._know(parent, child)
        # What a child uses, its parent has used.
        thread.usage.shared = lambda: parent.usage.meters
        self.on_spawn(parent, thread)

    def _know(self, parent: LoadedThread, child: SubAgent) -> None:
        """Keep a child in mind for as long as its parent is loaded."""
        if not self._below(parent.id):
            parent.at_close(lambda: self._forget(parent.id))
        self._children[child.id] = child

    def _follow(self, child: SubAgent, above: RunSettings) -> None:
        """Let a child do what its parent may do now, unless a client chose otherwise for it."""
        inherited, wanted = permissions_in(child.settings), permissions_in(above)
        if wanted == inherited:
            return
        child.settings = replace(child.settings, **wanted)
        thread = self._threads.find(child.id)
        if thread is not None and permissions_in(thread.settings) == inherited:
            thread.update_settings(replace(thread.settings, **wanted))

    def _give(
        self,
        child: SubAgent,
        thread: LoadedThread,
        given: list[UserInput],
        files: InputFiles,
        turn: ActiveTurn,
    ) -> str:
        params = TurnStartParams(
            input=given, thread_id=thread.id, root_turn_id=turn.root_id or turn.id
        )
        promised, start = thread.begin_turn(params, files=files)
        self._set(child, RUNNING)
        if start is not None:
            start()
        return promised.id

    async def _recall(self, parent: LoadedThread, child_id: str) -> SubAgent | None:
        """Find a child that nobody has spoken to since the server began."""
        try:
            meta = await self._threads.meta(child_id)
        except StoreError:
            return None
        owner = parent
        if meta.parent_thread_id != parent.id:
            # Perhaps a child's child: then whoever is between is a child.
            above = meta.parent_thread_id and await self.find(parent, meta.parent_thread_id)
            between = self._threads.find(above.id) if above else None
            if between is None:
                return None
            owner = between
        child = SubAgent(child_id, owner.id, meta.agent_nickname or "", owner.settings)
        child.settings = settings_for(owner.settings, None, meta.model, meta.reasoning_effort)
        if child_id in owner.closed_agents:
            child.is_open, child.state = False, SHUTDOWN
            self._know(owner, child)
            return child
        try:
            thread = self._threads.find(child_id) or await self._load(child)
        except AgentRefused:
            return None
        # A client may have loaded it, with what its parent could do when it was stored.
        child.settings = replace(child.settings, **permissions_in(thread.settings))
        is_busy = thread.turn is not None
        child.state = RUNNING if is_busy else state_after(await self._threads.turns(thread))
        self._adopt(owner, thread, child)
        return child

    async def _load(self, child: SubAgent) -> LoadedThread:
        async with self._threads.opening(child.id):
            # A client may have been first.
            return self._threads.find(child.id) or await self._open(child)

    async def _open(self, child: SubAgent) -> LoadedThread:
        try:
            journal, stored = await self._threads.open(child.id)
        except StoreError as error:
            raise AgentRefused(f"agent with id {child.id} not found") from error
        if stored.meta.archived:
            journal.close()
            raise AgentRefused(f"agent with id {child.id} not found")
        # What it is there for; what it may do is up to its parent.
        own = stored.meta.developer_instructions
        settings = replace(child.settings, developer_instructions=own)
        waits = await self._threads.who_waits(stored)
        try:
            thread = self._threads.load(journal, stored, settings, waits)
        except StorageFailed as error:
            journal.close()
            raise AgentRefused(f"agent with id {child.id} cannot be resumed: {error}") from error
        told = ThreadStatusChangedNotification(status=thread.status, thread_id=thread.id)
        self._threads.broadcast(n.THREAD_STATUS_CHANGED, told)
        return thread

    def _note_closed(self, child: SubAgent, *, is_closed: bool) -> None:
        """Have a child stay closed, or open, for whoever goes on with its parent."""
        parent = self._threads.find(child.parent_id)
        if parent is None or (child.id in parent.closed_agents) == is_closed:
            return
        parent.closed_agents ^= {child.id}
        parent.log.record(AgentClosed(child.id, is_closed))

    def _note(self, child: SubAgent, state: CollabAgentState) -> None:
        """Note that a child is done, and let its parent know unless it waits for that."""
        self._set(child, state)
        parent = self._threads.find(child.parent_id)
        if parent is not None and not child.waiters:
            news = {"agent_path": child.id, "nickname": child.nickname, "status": word_for(state)}
            text = msgspec.json.encode(news).decode()
            note = f"<subagent_notification>\n{text}\n</subagent_notification>"
            parent.tell_model(message("user", note))

    def _forget(self, parent_id: str) -> None:
        """Let go of the children of a thread that is let go of; they can be found in the store."""
        self.dismiss(parent_id)
        for child in self._below(parent_id):
            del self._children[child.id]

    def _retire(self, child: SubAgent) -> None:
        child.is_open = False
        self._set(child, SHUTDOWN)

    def _set(self, child: SubAgent, state: CollabAgentState) -> None:
        child.state = state
        self.wake()

    async def _close_quietly(self, child: SubAgent) -> None:
        await self.close(child)

    def _below(self, parent_id: str) -> list[SubAgent]:
        return [child for child in self._children.values() if child.parent_id == parent_id]

    def _family(self, thread_id: str) -> Iterable[SubAgent]:
        """All children of the thread that a client began, however deep."""
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
