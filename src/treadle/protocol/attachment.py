"""Files and links attached to threads."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, JsonValue, Params, UInt32, Value


class ThreadAttachment(Value, frozen=True):
    """Data that a client attaches to a thread; the payload is opaque to the server."""

    attachment_type: str
    created_at: Int64
    id: str
    identity_key: str
    payload: JsonValue


ThreadAttachmentAddOutcome = Literal["created", "existing"]


class ThreadAttachmentAddParams(Params, frozen=True):
    """Attach a payload to a thread unless an attachment has the same type and key."""

    attachment_type: str
    identity_key: str
    payload: JsonValue
    thread_id: str


class ThreadAttachmentAddResponse(Value, frozen=True):
    """The stored attachment; an existing one keeps its payload."""

    attachment: ThreadAttachment
    outcome: ThreadAttachmentAddOutcome


class ThreadAttachmentListParams(Params, frozen=True):
    """Page through the attachments of a thread."""

    thread_id: str
    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadAttachmentListResponse(Value, frozen=True):
    """A page of a thread's attachments; the last page has no cursor."""

    data: list[ThreadAttachment]
    next_cursor: str | None = None


ThreadAttachmentOperation = Literal["created", "deleted"]


class ThreadAttachmentOwner(Value, frozen=True):
    """A thread that has the attachment, archived or not."""

    archived: bool
    thread_id: str


class ThreadAttachmentOwnerListParams(Params, frozen=True):
    """Find the threads that have an attachment; `archived` selects one kind of thread."""

    attachment_type: str
    identity_key: str
    archived: bool | None = None
    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadAttachmentOwnerListResponse(Value, frozen=True):
    """A page of threads; the last page has no cursor."""

    data: list[ThreadAttachmentOwner]
    next_cursor: str | None = None


class ThreadAttachmentRemoveParams(Params, frozen=True):
    """Remove the attachment with the given type and key from a thread."""

    attachment_type: str
    identity_key: str
    thread_id: str


class ThreadAttachmentRemoveResponse(Value, frozen=True):
    """The attachment is removed."""


class ThreadAttachmentUpdatedNotification(Value, frozen=True):
    """An attachment was added to a thread or removed from it."""

    attachment_id: str
    attachment_type: str
    identity_key: str
    operation: ThreadAttachmentOperation
    thread_id: str
