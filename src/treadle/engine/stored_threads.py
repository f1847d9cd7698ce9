"""What threads have been: their turns as they are stored, read, and dropped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.errors import EngineError, ThreadNotLoaded, TurnNotFound
from treadle.protocol import notifications as n
from treadle.protocol.error import TurnError
from treadle.protocol.thread_manage import ThreadRevertedNotification
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.store.journal import StoreError
from treadle.store.records import RolledBack
from treadle.store.store import Store
from treadle.store.stored_thread import StoredThread, ThreadMeta
from treadle.store.thread_reader import ThreadReader

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread


SERVER_ENDED: Final = TurnError(
    "the server ended while this turn was running", codex_error_info="other"
)


MAX_READS: Final = 3
"""How often a thread that grows is read beside the event loop before the rest is read on it."""


class StoredThreads:
    """The part of a server's threads that looks back; it needs to know which are in memory."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._loaded: dict[str, LoadedThread] = {}

    async def stored(self, thread_id: str, path: str | None = None) -> StoredThread:
        """A thread as it is stored now, whoever writes it.

        Raises:
            ThreadNotFound: there is none.
        """
        if path:
            return await self.store.run(partial(self.store.read_path, path))
        loaded = self._loaded.get(thread_id)
        if loaded is not None and loaded.meta.ephemeral:
            turns, history = self._in_memory(loaded).turns, list(loaded.history.items)
            # Where in the history each turn began is not kept: the whole comes after the turns.
            views = [(history, 0) for _ in turns]
            return StoredThread(loaded.meta, turns, history, views)
        return await self.store.run(partial(self.store.read, thread_id))

    async def meta(self, thread_id: str) -> ThreadMeta:
        """What is known of a thread without reading all of it.

        Raises:
            ThreadNotFound: there is none.
        """
        read = partial(self.store.read, thread_id, turns=False)
        return (await self.store.run(read)).meta

    async def turns(self, thread: LoadedThread) -> list[TurnSnapshot]:
        """The turns of a thread in memory, the running one included."""
        return (await self.as_it_stands(thread.id)).turns

    async def as_it_stands(self, thread_id: str) -> StoredThread:
        """A thread with its turns, the running one included.

        If the thread is in memory, nothing is published between what this gives and its return.

        Raises:
            ThreadNotFound: there is none.
        """
        thread = self._loaded.get(thread_id)
        if thread is not None and thread.meta.ephemeral:
            return self._with_running(thread, self._in_memory(thread))
        reader, stored = await self._read(thread_id)
        with reader:
            stored = await self._caught_up(reader, stored)
        thread = self._loaded.get(thread_id)
        return await self._left(stored) if thread is None else self._with_running(thread, stored)

    async def _read(self, thread_id: str) -> tuple[ThreadReader, StoredThread]:
        def read() -> tuple[ThreadReader, StoredThread]:
            reader = self.store.reader(thread_id)
            try:
                return reader, reader.read()
            except BaseException:
                reader.close()
                raise

        return await self.store.run(read, on_abandoned=lambda both: both[0].close())

    async def _caught_up(self, reader: ThreadReader, stored: StoredThread) -> StoredThread:
        for _ in range(MAX_READS):
            if reader.is_current:
                return stored
            stored = await self.store.run(reader.read)
        # It grows all the time: what came since the last time is little.
        return stored if reader.is_current else reader.read()

    def _in_memory(self, thread: LoadedThread) -> StoredThread:
        from treadle.engine.transcript import times_of, turns_of

        events = list(thread.journal.read(0))
        return StoredThread(thread.meta, turns_of(events), item_times=times_of(events))

    def _with_running(self, thread: LoadedThread, stored: StoredThread) -> StoredThread:
        turns = stored.turns
        if thread.turn is not None and turns and turns[-1].id == thread.turn.id:
            turns[-1] = msgspec.structs.replace(turns[-1], status="inProgress", error=None)
        return stored

    async def _left(self, stored: StoredThread) -> StoredThread:
        """A thread that is not in memory: nobody goes on with its turn if its server is gone.

        Unless the turn waits for an answer: then it goes on when the thread is loaded.
        """
        is_over = stored.running_turn is None and not stored.inputs
        if is_over or self.store.is_held(stored.meta.id):
            return stored
        from treadle.engine.recovery import calls_to_repeat, show_promised

        if not calls_to_repeat(stored, await self.who_waits(stored)):
            # A rollback may have removed the turn.
            if stored.running_turn is not None and stored.turns:
                stored.turns[-1] = msgspec.structs.replace(
                    stored.turns[-1], status="interrupted", error=SERVER_ENDED
                )
            show_promised(stored)
        return stored

    def waits(self, thread_id: str) -> bool:
        """Whether a thread in memory waits for answers alone, so that its turn may be left."""
        loaded = self._loaded.get(thread_id)
        if loaded is None:
            return False
        from treadle.engine.suspension import only_waits

        return only_waits(loaded)

    async def who_waits(self, stored: StoredThread) -> Callable[[str], bool]:
        """Find out which agents that a thread was waiting for wait for answers themselves."""
        from treadle.engine.recovery import agents_waited_for

        known = {id_: await self._is_waiting(id_) for id_ in agents_waited_for(stored)}
        return lambda id_: known.get(id_, False)

    async def _is_waiting(self, thread_id: str) -> bool:
        if thread_id in self._loaded:
            return self.waits(thread_id)
        from treadle.engine.recovery import calls_to_repeat

        try:
            stored = await self.store.run(partial(self.store.read, thread_id))
        except StoreError:
            return False
        return bool(calls_to_repeat(stored, await self.who_waits(stored)))

    async def roll_back(
        self,
        thread: LoadedThread,
        *,
        num_turns: int | None = None,
        before_turn_id: str | None = None,
    ) -> list[TurnSnapshot]:
        """Drop the last turns of a thread; gives those that are left.

        Raises:
            EngineError: a turn is running, or the thread is not stored.
            StorageFailed: that cannot be stored, and nothing is dropped.
            TurnNotFound: it has no such turn.
        """
        if thread.meta.ephemeral:
            raise EngineError("an ephemeral thread cannot be rolled back")
        self._check_idle(thread)
        reader, before = await self._read(thread.id)
        with reader:
            before = await self._caught_up(reader, before)
            # From here on nothing may come in between.
            self._check_idle(thread)
            if before_turn_id is not None and before_turn_id not in {t.id for t in before.turns}:
                raise TurnNotFound(before_turn_id)
            record = RolledBack(num_turns=num_turns, before_turn_id=before_turn_id)
            # In one with the record: who comes back later hears of what is gone, whatever happens.
            told = ThreadRevertedNotification(thread.id)
            thread.log.publish(n.THREAD_REVERTED, told, records=[record], required=True)
            thread.log.sync_soon()
            stored = reader.read()
        thread.rewind(stored.history, stored.turns)
        return stored.turns

    def _check_idle(self, thread: LoadedThread) -> None:
        if thread.turn is not None:
            raise EngineError("cannot roll back while a turn is running")
        if self._loaded.get(thread.id) is not thread:
            raise ThreadNotLoaded(thread.id)
