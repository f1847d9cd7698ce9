"""How far the user has read a thread."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.engine.errors import EngineError
from treadle.engine.state import ThreadState
from treadle.engine.turn import ActiveTurn
from treadle.protocol import notifications as n
from treadle.protocol.read_state import (
    ReadThreadReadStateOperation,
    ThreadReadState,
    ThreadReadStateChangedNotification,
    ThreadReadStateOperation,
    ThreadStartThreadUnreadPosition,
    TurnThreadUnreadPosition,
)
from treadle.protocol.turn import Turn
from treadle.store.records import ReadStateChanged
from treadle.store.stored_thread import ThreadMeta
from treadle.support.ids import uuid7


class ReadStateUnavailable(EngineError):
    """The thread is ephemeral or still empty."""

    def __init__(self) -> None:
        super().__init__("thread read state unavailable")


class ReadStateConflict(EngineError):
    """The state has changed since the client learned of it."""

    def __init__(self, current: ThreadReadState) -> None:
        super().__init__("read state changed")
        self.current = current


def read_state_of(meta: ThreadMeta) -> ThreadReadState | None:
    """Return the read state of a thread; ephemeral and empty threads have none."""
    if meta.ephemeral:
        return None
    if meta.read_state is None and meta.preview:
        return ThreadReadState(f"initial:{meta.id}")
    return meta.read_state


def changed_read_state(
    meta: ThreadMeta, operation: ThreadReadStateOperation, expected: str
) -> ThreadReadState:
    """Return the read state after a client marked the thread.

    Raises:
        ReadStateUnavailable: the thread has no read state.
        ReadStateConflict: its revision is not the expected one.
    """
    current = read_state_of(meta)
    if current is None:
        raise ReadStateUnavailable
    if current.revision != expected:
        raise ReadStateConflict(current)
    is_read = isinstance(operation, ReadThreadReadStateOperation)
    return ThreadReadState(uuid7(), None if is_read else ThreadStartThreadUnreadPosition())


def mark_unread(state: ThreadState, turn: ActiveTurn) -> None:
    """Mark a thread as unread from a turn on that ends with a message, unless it is unread."""
    if turn.last_message is None or state.meta.ephemeral:
        return
    before = state.meta.read_state
    first_unread = None if before is None else before.first_unread
    _publish(state, ThreadReadState(uuid7(), first_unread or TurnThreadUnreadPosition(turn.id)))


def forget_dropped(state: ThreadState, turns: Sequence[Turn]) -> None:
    """Mark a thread as read whose first unread turn was dropped; these turns remain."""
    before = state.meta.read_state
    first_unread = None if before is None else before.first_unread
    if isinstance(first_unread, TurnThreadUnreadPosition) and not any(
        turn.id == first_unread.turn_id for turn in turns
    ):
        _publish(state, ThreadReadState(uuid7()))


def _publish(state: ThreadState, after: ThreadReadState) -> None:
    state.update_meta(read_state=after)
    changed = ThreadReadStateChangedNotification(after, state.id)
    state.log.publish(n.THREAD_READ_STATE_CHANGED, changed, records=[ReadStateChanged(after)])
