"""Input queued for later turns of a thread."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from treadle.protocol.base import Params, UInt32, Value
from treadle.protocol.input import UserInput
from treadle.protocol.turn import Turn


class QueuedSubmission(Value, frozen=True):
    """Queued input for a separate turn."""

    client_user_message_id: str
    id: str
    input: list[UserInput]
    responsesapi_client_metadata: dict[str, str] | UnsetType | None = UNSET


class ThreadQueueAddParams(Params, frozen=True):
    """Append input to a thread's queue."""

    client_user_message_id: str
    input: list[UserInput]
    thread_id: str
    responsesapi_client_metadata: dict[str, str] | None = None


class ThreadQueueAddResponse(Value, frozen=True):
    """The queued input, with its id."""

    queued_submission: QueuedSubmission


class ThreadQueueChangedNotification(Value, frozen=True):
    """A thread's queue changed; list it again."""

    thread_id: str


class ThreadQueueDeleteParams(Params, frozen=True):
    """Remove input from the queue."""

    queued_submission_id: str
    thread_id: str


class ThreadQueueDeleteResponse(Value, frozen=True):
    """Whether the input was still in the queue."""

    deleted: bool


class ThreadQueueListParams(Params, frozen=True):
    """Page through a thread's queue."""

    thread_id: str
    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadQueueListResponse(Value, frozen=True):
    """A page of queued input in order of execution; the last page has no cursor."""

    data: list[QueuedSubmission]
    next_cursor: str | None = None


class ThreadQueueReorderParams(Params, frozen=True):
    """Set the order of the queue; every queued id must be named once."""

    queued_submission_ids: list[str]
    thread_id: str


class ThreadQueueReorderResponse(Value, frozen=True):
    """The queue has its new order."""


class ThreadQueueStartParams(Params, frozen=True):
    """Run queued input now, the first if none is named; rejected while a turn is active."""

    thread_id: str
    queued_submission_id: str | None = None


class ThreadQueueStartResponse(Value, frozen=True):
    """The turn that starts; its input has left the queue."""

    turn: Turn


class ThreadQueueUpdateParams(Params, frozen=True):
    """Replace input that is still in the queue."""

    input: list[UserInput]
    queued_submission_id: str
    thread_id: str
    # Empty keeps the metadata, like absence.
    responsesapi_client_metadata: dict[str, str] | None = None


class ThreadQueueUpdateResponse(Value, frozen=True):
    """The queued input after the change; its id and position are unchanged."""

    queued_submission: QueuedSubmission
