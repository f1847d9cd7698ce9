"""Sections of a user's thread list."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from treadle.protocol.base import Params, UInt32, Value


class ThreadSectionAppearance(Value, frozen=True):
    """The colour and icon of a section, in values that the clients agree on."""

    color: str | None = None
    icon: str | None = None


class ThreadSection(Value, frozen=True):
    """A named group in the thread list; its id survives renaming."""

    id: str
    name: str
    appearance: ThreadSectionAppearance | None = None


class ThreadSectionChangedNotification(Value, frozen=True):
    """A thread has another place in the sections; null means outside all of them."""

    section_id: str | None
    thread_id: str


class ThreadSectionCreateParams(Params, frozen=True):
    """Add an empty section."""

    name: str
    appearance: ThreadSectionAppearance | None = None


class ThreadSectionCreateResponse(Value, frozen=True):
    """The new section, with its id."""

    section: ThreadSection


class ThreadSectionDeleteParams(Params, frozen=True):
    """Delete a section; its threads remain."""

    section_id: str


class ThreadSectionDeleteResponse(Value, frozen=True):
    """The section is deleted."""


class ThreadSectionListParams(Params, frozen=True):
    """Page through the sections."""

    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadSectionListResponse(Value, frozen=True):
    """A page of sections; the last page has no cursor."""

    data: list[ThreadSection]
    next_cursor: str | None = None


class ThreadSectionMoveParams(Params, frozen=True):
    """Move a thread into a section, to its end or before another thread, or out with null."""

    section_id: str | None
    thread_id: str
    before_thread_id: str | None = None


class ThreadSectionMoveResponse(Value, frozen=True):
    """The thread has its new position."""


class ThreadSectionUpdateParams(Params, frozen=True):
    """Rename a section, and change its appearance if given."""

    name: str
    section_id: str
    appearance: ThreadSectionAppearance | UnsetType | None = UNSET


class ThreadSectionUpdateResponse(Value, frozen=True):
    """The section after the change."""

    section: ThreadSection
