"""How far a user has read a thread."""

from __future__ import annotations

from treadle.protocol.base import Params, Value


class ThreadStartThreadUnreadPosition(Value, tag="threadStart", frozen=True):
    """The whole thread counts as unread, even if it has no turn."""


class TurnThreadUnreadPosition(Value, tag="turn", frozen=True):
    """Everything from the given turn on is unread."""

    turn_id: str


ThreadUnreadPosition = ThreadStartThreadUnreadPosition | TurnThreadUnreadPosition


class ThreadReadState(Value, frozen=True):
    """Where the unread part of a thread begins, null if nowhere, and the revision of the state."""

    revision: str
    first_unread: ThreadUnreadPosition | None = None


class ThreadReadStateChangedNotification(Value, frozen=True):
    """A thread was marked as read or unread, or an unread turn ended in it."""

    read_state: ThreadReadState
    thread_id: str


class ReadThreadReadStateOperation(Value, tag="read", frozen=True):
    """Mark the thread as read to its end."""


class UnreadThreadReadStateOperation(Value, tag="unread", frozen=True):
    """Mark the thread as unread."""


ThreadReadStateOperation = ReadThreadReadStateOperation | UnreadThreadReadStateOperation


class ThreadReadStateUpdateParams(Params, frozen=True):
    """Mark a thread as read or unread; rejected if the revision is no longer current."""

    expected_revision: str
    operation: ThreadReadStateOperation
    thread_id: str


class ThreadReadStateUpdateResponse(Value, frozen=True):
    """The read state after the change, with its new revision."""

    read_state: ThreadReadState
