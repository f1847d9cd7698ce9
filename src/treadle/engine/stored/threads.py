"""Reads stored threads and rolls them back."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.errors import EngineError, ThreadNotLoaded, TurnNotFound
from treadle.protocol import notifications as n
from treadle.protocol.thread_manage import ThreadRevertedNotification
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.store.journal import StoreError
from treadle.store.records import RolledBack
from treadle.store.store import Store
from treadle.store.stored_thread import StoredThread, ThreadMeta
from treadle.store.thread_reader import ThreadReader

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread


MAX_READS: Final = 3
"""How often a growing thread is read in a worker before the event loop reads the rest."""
MAX_AGENTS: Final = 1000
"""How many sub-agents are read to find out what a thread waits for."""


class StoredThreads:
    """The stored threads of a server; `loaded` holds those that are in memory."""

    def __init__(self, store: Store, loaded: Mapping[str, LoadedThread]) -> None:
        self._store = store
        self._loaded = loaded

    async def read(self, thread_id: str, path: str | None = None) -> StoredThread:
        """Read a thread as it is stored now, whichever process writes it.

        Raises:
            ThreadNotFound: the thread does not exist.
        """
        if path:
            return await self._store.run(partial(self._store.read_path, path))
        loaded = self._loaded.get(thread_id)
        if loaded is not None and loaded.meta.ephemeral:
            turns, history = self._in_memory(loaded).turns, list(loaded.context.history.items)
            # The start of each turn in the history is unknown: all of it follows the turns.
            views = [(history, 0) for _ in turns]
            return StoredThread(loaded.meta, turns, history, views)
        return await self._store.run(partial(self._store.read, thread_id))

    async def read_meta(self, thread_id: str) -> ThreadMeta:
        """Read the metadata of a thread without its turns.

        Raises:
            ThreadNotFound: the thread does not exist.
        """
        read = partial(self._store.read, thread_id, turns=False)
        return (await self._store.run(read)).meta

    async def turns(self, thread: LoadedThread) -> list[TurnSnapshot]:
        """Return the turns of a thread in memory, including the active one."""
        return (await self.read_current(thread.id)).turns

    async def read_current(self, thread_id: str) -> StoredThread:
        """Read a thread with its turns, including the active one.

        If the thread is in memory, the result includes all events published when this returns.

        Raises:
            ThreadNotFound: the thread does not exist.
        """
        thread = self._loaded.get(thread_id)
        if thread is not None and thread.meta.ephemeral:
            return self._mark_active(thread, self._in_memory(thread))
        reader, stored = await self._read(thread_id)
        with reader:
            stored = await self._catch_up(reader, stored)
        thread = self._loaded.get(thread_id)
        if thread is None:
            return await self._mark_interrupted(stored)
        return self._mark_active(thread, stored)

    async def _read(self, thread_id: str) -> tuple[ThreadReader, StoredThread]:
        def read() -> tuple[ThreadReader, StoredThread]:
            reader = self._store.reader(thread_id)
            try:
                return reader, reader.read()
            except BaseException:
                reader.close()
                raise

        return await self._store.run(read, on_abandoned=lambda both: both[0].close())

    async def _catch_up(self, reader: ThreadReader, stored: StoredThread) -> StoredThread:
        for _ in range(MAX_READS):
            if reader.is_current:
                return stored
            stored = await self._store.run(reader.read)
        # The thread keeps growing, but only a little since the last read.
        return stored if reader.is_current else reader.read()

    def _in_memory(self, thread: LoadedThread) -> StoredThread:
        from treadle.engine.stored.transcript import turns_of

        return StoredThread(thread.meta, turns_of(thread.journal.read(0)))

    def _mark_active(self, thread: LoadedThread, stored: StoredThread) -> StoredThread:
        turns = stored.turns
        if thread.turn is not None and turns and turns[-1].id == thread.turn.id:
            turns[-1] = msgspec.structs.replace(turns[-1], status="inProgress", error=None)
        return stored

    async def _mark_interrupted(self, stored: StoredThread) -> StoredThread:
        """Show the unfinished turn of a thread without a writer as interrupted.

        A turn that waits for an answer stays as it is: it continues when the thread is loaded.
        """
        if stored.running_turn is None and not stored.inputs:
            return stored
        from treadle.engine.stored.recovery import SERVER_ENDED, add_accepted_input, calls_to_repeat

        if self._store.is_held(stored.meta.id):
            # The other server has acknowledged it, and is about to publish it.
            add_accepted_input(stored, is_running=True)
            return stored
        if not calls_to_repeat(stored, await self.find_waiting_agents(stored)):
            # A rollback may have removed the turn.
            if stored.running_turn is not None and stored.turns:
                stored.turns[-1] = msgspec.structs.replace(
                    stored.turns[-1], status="interrupted", error=SERVER_ENDED
                )
            add_accepted_input(stored)
        return stored

    def only_waiting(self) -> set[str]:
        """Return the threads in memory that only wait for answers, so they can be suspended."""
        from treadle.engine.stored.suspension import only_waiting

        return only_waiting(thread.state for thread in self._loaded.values())

    async def find_waiting_agents(self, stored: StoredThread) -> Callable[[str], bool]:
        """Return a function that says whether a sub-agent of the thread waits for answers.

        Each sub-agent is read once, however many calls wait for it, and at most `MAX_AGENTS` are.
        """
        from treadle.engine.stored.recovery import agents_waited_for, has_open_call

        waiting = self.only_waiting() if self._loaded else set[str]()
        waiters: defaultdict[str, list[str]] = defaultdict(list)
        seen = dict.fromkeys(agents_waited_for(stored))
        unread = deque(seen)
        found: list[str] = []
        for _ in range(MAX_AGENTS):
            if not unread:
                break
            id_ = unread.popleft()
            if id_ in self._loaded:
                found += [id_] if id_ in waiting else []
                continue
            try:
                agent = await self._store.run(partial(self._store.read, id_))
            except StoreError:
                continue
            if has_open_call(agent):
                found.append(id_)
            for target in agents_waited_for(agent):
                waiters[target].append(id_)
                if target not in seen:
                    seen[target] = None
                    unread.append(target)
        known = set(found)
        while found:
            above = [id_ for id_ in waiters[found.pop()] if id_ not in known]
            known.update(above)
            found += above
        return known.__contains__

    async def roll_back(
        self,
        thread: LoadedThread,
        *,
        num_turns: int | None = None,
        before_turn_id: str | None = None,
    ) -> list[TurnSnapshot]:
        """Drop the last turns of a thread; return the remaining ones.

        Raises:
            EngineError: a turn is running, or the thread is not stored.
            StorageFailed: the rollback cannot be stored; no turn is dropped.
            TurnNotFound: the thread has no such turn.
        """
        from treadle.engine.read_states import forget_dropped

        if thread.meta.ephemeral:
            raise EngineError("an ephemeral thread cannot be rolled back")
        self._check_idle(thread)
        reader, before = await self._read(thread.id)
        with reader:
            before = await self._catch_up(reader, before)
            # No `await` from here on.
            self._check_idle(thread)
            if before_turn_id is not None and before_turn_id not in {t.id for t in before.turns}:
                raise TurnNotFound(before_turn_id)
            record = RolledBack(num_turns=num_turns, before_turn_id=before_turn_id)
            # Stored with the record, so that a client that reconnects later always receives it.
            params = ThreadRevertedNotification(thread.id)
            thread.log.publish(n.THREAD_REVERTED, params, records=[record], required=True)
            thread.log.sync_soon()
            stored = reader.read()
        thread.rewind(stored.history, stored.turns)
        forget_dropped(thread.state, stored.turns)
        return stored.turns

    def _check_idle(self, thread: LoadedThread) -> None:
        if thread.turn is not None:
            raise EngineError("cannot roll back while a turn is running")
        if self._loaded.get(thread.id) is not thread:
            raise ThreadNotLoaded(thread.id)
