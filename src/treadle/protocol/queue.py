"""Input queued for later turns of a thread."""

from __future__ import annotations

from treadle.protocol.base import Params, UInt32, Value
from treadle.protocol.input import UserInput
from treadle.protocol.turn import Turn


class QueuedSubmission(Value, frozen=True):
    """Input that waits for a turn of its own."""

    client_user_message_id: str
    id: str
    input: list[UserInput]


class ThreadQueueAddParams(Params, frozen=True):
    """Put input at the end of a thread's queue."""

    client_user_message_id: str
    input: list[UserInput]
    thread_id: str


class ThreadQueueAddResponse(Value, frozen=True):
    """The waiting input, with the id that the server gave it."""

    queued_submission: QueuedSubmission


class ThreadQueueChangedNotification(Value, frozen=True):
    """A thread's queue changed in some way; list it again."""

    thread_id: str


class ThreadQueueDeleteParams(Params, frozen=True):
    """Take waiting input out of the queue."""

    queued_submission_id: str
    thread_id: str


class ThreadQueueDeleteResponse(Value, frozen=True):
    """Whether the input was still waiting."""

    deleted: bool


class ThreadQueueListParams(Params, frozen=True):
    """Page through a thread's queue."""

    thread_id: str
    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadQueueListResponse(Value, frozen=True):
    """A page of waiting input, first to run first; no cursor means that it is the last."""

    data: list[QueuedSubmission]
    next_cursor: str | None = None


class ThreadQueueReorderParams(Params, frozen=True):
    """Set the order of the queue; every waiting id must be named once."""

    queued_submission_ids: list[str]
    thread_id: str


class ThreadQueueReorderResponse(Value, frozen=True):
    """The queue has its new order."""


class ThreadQueueStartParams(Params, frozen=True):
    """Run waiting input now, the first if none is named; refused while a turn runs."""

    thread_id: str
    queued_submission_id: str | None = None


class ThreadQueueStartResponse(Value, frozen=True):
    """The turn that begins; its input has left the queue."""

    turn: Turn


class ThreadQueueUpdateParams(Params, frozen=True):
    """Replace input that still waits."""

    input: list[UserInput]
    queued_submission_id: str
    thread_id: str


class ThreadQueueUpdateResponse(Value, frozen=True):
    """The waiting input after the change; its id and place are the same."""

    queued_submission: QueuedSubmission
