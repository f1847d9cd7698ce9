"""Files and links attached to threads."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, JsonValue, Params, UInt32, Value


class ThreadAttachment(Value, frozen=True):
    """Something a client keeps with a thread; only the client knows what its payload means."""

    attachment_type: str
    created_at: Int64
    id: str
    identity_key: str
    payload: JsonValue


ThreadAttachmentAddOutcome = Literal["created", "existing"]


class ThreadAttachmentAddParams(Params, frozen=True):
    """Attach a payload to a thread unless its type and key are already there."""

    attachment_type: str
    identity_key: str
    payload: JsonValue
    thread_id: str


class ThreadAttachmentAddResponse(Value, frozen=True):
    """The attachment in place; an existing one keeps its old payload."""

    attachment: ThreadAttachment
    outcome: ThreadAttachmentAddOutcome


class ThreadAttachmentListParams(Params, frozen=True):
    """Page through what is attached to a thread."""

    thread_id: str
    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadAttachmentListResponse(Value, frozen=True):
    """A page of a thread's attachments; no cursor means that it is the last."""

    data: list[ThreadAttachment]
    next_cursor: str | None = None


ThreadAttachmentOperation = Literal["created", "deleted"]


class ThreadAttachmentOwner(Value, frozen=True):
    """A thread that carries the attachment asked for, archived or not."""

    archived: bool
    thread_id: str


class ThreadAttachmentOwnerListParams(Params, frozen=True):
    """Find the threads that carry an attachment; `archived` narrows to one sort."""

    attachment_type: str
    identity_key: str
    archived: bool | None = None
    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadAttachmentOwnerListResponse(Value, frozen=True):
    """A page of the threads found; no cursor means that it is the last."""

    data: list[ThreadAttachmentOwner]
    next_cursor: str | None = None


class ThreadAttachmentRemoveParams(Params, frozen=True):
    """Detach what has the given type and key from a thread."""

    attachment_type: str
    identity_key: str
    thread_id: str


class ThreadAttachmentRemoveResponse(Value, frozen=True):
    """The attachment is gone."""


class ThreadAttachmentUpdatedNotification(Value, frozen=True):
    """Something was attached to a thread or detached from it."""

    attachment_id: str
    attachment_type: str
    identity_key: str
    operation: ThreadAttachmentOperation
    thread_id: str
