"""What threads have been: their turns as they are stored, read, and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.errors import EngineError, TurnNotFound
from treadle.protocol import notifications as n
from treadle.protocol.error import TurnError
from treadle.protocol.thread_manage import ThreadRevertedNotification
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.store.journal import StoreError
from treadle.store.records import RolledBack
from treadle.store.store import Store
from treadle.store.thread import StoredThread

if TYPE_CHECKING:
    from treadle.engine.thread import Thread


SERVER_ENDED: Final = TurnError(
    "the server ended while this turn was running", codex_error_info="other"
)


class Archive:
    """The part of a server's threads that looks back; it needs to know which are in memory."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._loaded: dict[str, Thread] = {}

    def stored(self, thread_id: str, path: str | None = None) -> StoredThread:
        """A thread as it is stored now, whoever writes it.

        Raises:
            ThreadNotFound: there is none.
        """
        if path:
            return self.store.read_path(path)
        loaded = self._loaded.get(thread_id)
        if loaded is not None and loaded.meta.ephemeral:
            turns, history = self.turns(loaded), list(loaded.history.items)
            # Where in the history each turn began is not kept: the whole comes after the turns.
            views = [(history, 0) for _ in turns]
            return StoredThread(loaded.meta, turns, history, views)
        return self.store.read(thread_id)

    def turns(self, thread: Thread) -> list[TurnSnapshot]:
        """The turns of a thread in memory, the running one included."""
        return self.as_it_stands(thread.id).turns

    def as_it_stands(self, thread_id: str) -> StoredThread:
        """A thread with its turns, the running one included.

        Raises:
            ThreadNotFound: there is none.
        """
        thread = self._loaded.get(thread_id)
        if thread is None:
            return self._left(self.store.read(thread_id))
        if thread.meta.ephemeral:
            from treadle.engine.transcript import times_of, turns_of

            events = list(thread.journal.read(0))
            stored = StoredThread(thread.meta, turns_of(events), item_times=times_of(events))
        else:
            stored = self.store.read(thread.id)
        turns = stored.turns
        if thread.turn is not None and turns and turns[-1].id == thread.turn.id:
            turns[-1] = msgspec.structs.replace(turns[-1], status="inProgress", error=None)
        return stored

    def _left(self, stored: StoredThread) -> StoredThread:
        """A thread that is not in memory: nobody goes on with its turn if its server is gone.

        Unless the turn waits for an answer: then it goes on when the thread is loaded.
        """
        if stored.running_turn is None or self.store.is_held(stored.meta.id):
            return stored
        from treadle.engine.recovery import calls_to_repeat

        if not calls_to_repeat(stored, self.waits):
            stored.turns[-1] = msgspec.structs.replace(
                stored.turns[-1], status="interrupted", error=SERVER_ENDED
            )
        return stored

    def waits(self, thread_id: str) -> bool:
        """Whether a thread waits for answers alone, so that its turn outlives its server."""
        loaded = self._loaded.get(thread_id)
        if loaded is not None:
            from treadle.engine.suspension import only_waits

            return only_waits(loaded)
        from treadle.engine.recovery import calls_to_repeat

        try:
            return bool(calls_to_repeat(self.store.read(thread_id), self.waits))
        except StoreError:
            return False

    def past_turn(self, thread: Thread, turn_id: str) -> TurnSnapshot:
        """A turn that is over, without its items.

        Raises:
            TurnNotFound: it is gone.
        """
        turn = next((turn for turn in self.turns(thread) if turn.id == turn_id), None)
        if turn is None:
            raise TurnNotFound(turn_id)
        return msgspec.structs.replace(turn, items=[], items_view="notLoaded")

    def roll_back(
        self, thread: Thread, *, num_turns: int | None = None, before_turn_id: str | None = None
    ) -> list[TurnSnapshot]:
        """Drop the last turns of a thread; gives those that are left.

        Raises:
            EngineError: a turn is running, or the thread is not stored.
            StorageFailed: that cannot be stored, and nothing is dropped.
            TurnNotFound: it has no such turn.
        """
        if thread.turn is not None:
            raise EngineError("cannot roll back while a turn is running")
        if thread.meta.ephemeral:
            raise EngineError("an ephemeral thread cannot be rolled back")
        if before_turn_id is not None:
            ids = [turn.id for turn in self.store.read(thread.id).turns]
            if before_turn_id not in ids:
                raise TurnNotFound(before_turn_id)
        record = RolledBack(num_turns=num_turns, before_turn_id=before_turn_id)
        # In one with the record: who comes back later hears of what is gone, whatever happens.
        told = ThreadRevertedNotification(thread.id)
        thread.log.tell(n.THREAD_REVERTED, told, records=[record], required=True)
        thread.log.sync_soon()
        stored = self.store.read(thread.id)
        thread.rewind(stored.history, stored.turns)
        return stored.turns
