"""Keeping threads: list, read, name, archive, roll back, unsubscribe."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import (
    JsonValue,
    Params,
    SortDirection,
    Sparse,
    UInt32,
    Value,
    experimental,
)
from treadle.protocol.read_state import ThreadReadState
from treadle.protocol.source import ThreadSourceKind
from treadle.protocol.thread import Thread


class ThreadArchiveParams(Params, frozen=True):
    """Put a stored thread away: only lists that ask for archived ones show it."""

    thread_id: str


class ThreadArchiveResponse(Value, frozen=True):
    """The thread is archived."""


class ThreadArchivedNotification(Value, frozen=True):
    """A thread was archived."""

    thread_id: str


class ThreadClosedNotification(Value, frozen=True):
    """A thread was unloaded, as nobody is subscribed to it any more."""

    thread_id: str


class ThreadCompactStartParams(Params, frozen=True):
    """Have the history of a thread shortened, in a turn of its own."""

    thread_id: str


class ThreadCompactStartResponse(Value, frozen=True):
    """The shortening has begun; its turn and item tell the rest."""


class ThreadDeleteParams(Params, frozen=True):
    """Remove a thread and its stored history for good."""

    thread_id: str


class ThreadDeleteResponse(Value, frozen=True):
    """The thread is gone."""


class ThreadDeletedNotification(Value, frozen=True):
    """A thread was removed for good."""

    thread_id: str


class ThreadInjectItemsParams(Params, frozen=True):
    """Append items of the Responses API to what the model sees, without a turn."""

    items: list[JsonValue]
    thread_id: str


class ThreadInjectItemsResponse(Value, frozen=True):
    """The items are in the history."""


ThreadListCwdFilter = str | list[str]

ThreadSortKey = Literal["created_at", "updated_at", "recency_at", "section_position"]


@experimental("ancestor_thread_id", "parent_thread_id", "project_id")
class ThreadListParams(Params, frozen=True):
    """Page through the stored threads that pass every filter, newest first by default."""

    ancestor_thread_id: str | None = None
    # True lists only archived threads, anything else only the others.
    archived: bool | None = None
    cursor: str | None = None
    # Must match exactly.
    cwd: ThreadListCwdFilter | None = None
    # At most 100, and the same on each page.
    excluded_thread_ids: list[str] | None = None
    limit: UInt32 | None = None
    # Empty means any provider.
    model_providers: list[str] | None = None
    originators: list[str] | None = None
    parent_thread_id: str | None = None
    project_id: str | UnsetType | None = UNSET
    search_term: str | None = None
    section_id: str | UnsetType | None = UNSET
    sort_direction: SortDirection | None = None
    sort_key: ThreadSortKey | None = None
    # Empty means interactive clients only.
    source_kinds: list[ThreadSourceKind] | None = None
    # Trust the index instead of scanning the stored files to mend it.
    use_state_db_only: bool = False


@experimental("read_states")
class ThreadListResponse(Value, frozen=True):
    """One page of threads, with cursors to go on and to turn back."""

    data: list[Thread]
    backwards_cursor: str | None = None
    next_cursor: str | None = None
    read_states: dict[str, ThreadReadState] | None = None


class ThreadLoadedListParams(Params, frozen=True):
    """Page through the threads that are in memory; all of them without a limit."""

    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadLoadedListResponse(Value, frozen=True):
    """One page of thread ids."""

    data: list[str]
    next_cursor: str | None = None


class ThreadMetadataGitInfoUpdateParams(Params, frozen=True):
    """Git facts to store: absent keeps the old value, null clears it."""

    branch: str | UnsetType | None = UNSET
    origin_url: str | UnsetType | None = UNSET
    sha: str | UnsetType | None = UNSET


@experimental("daybreak_enabled", "project_id")
class ThreadMetadataUpdateParams(Params, frozen=True):
    """Change what is stored about a thread, without loading it."""

    thread_id: str
    daybreak_enabled: bool | None = None
    git_info: ThreadMetadataGitInfoUpdateParams | None = None
    # An empty string takes the thread out of its project.
    project_id: str | None = None


class ThreadMetadataUpdateResponse(Value, frozen=True):
    """The thread as it is after the change."""

    thread: Thread


class ThreadNameUpdatedNotification(Sparse, frozen=True):
    """A thread has a new title."""

    thread_id: str
    thread_name: str | None = None


class ThreadReadParams(Params, frozen=True):
    """Fetch a thread without loading it or subscribing to it."""

    thread_id: str
    include_turns: bool = False


@experimental("read_state")
class ThreadReadResponse(Value, frozen=True):
    """The thread, with its turns if they were asked for."""

    thread: Thread
    read_state: ThreadReadState | None = None


class ThreadRevertParams(Params, frozen=True):
    """Drop a turn and all later ones from the history; files stay as they are."""

    before_turn_id: str
    thread_id: str


class ThreadRevertResponse(Value, frozen=True):
    """The thread without its turns, and cursors to read what is left backwards from."""

    thread: Thread
    items_backwards_cursor: str | None = None
    turns_backwards_cursor: str | None = None


class ThreadRevertedNotification(Value, frozen=True):
    """A thread lost its latest turns; read its history anew."""

    thread_id: str


class ThreadUnarchiveParams(Params, frozen=True):
    """Bring an archived thread back among the others."""

    thread_id: str


class ThreadUnarchiveResponse(Value, frozen=True):
    """The thread that is back."""

    thread: Thread


class ThreadUnarchivedNotification(Value, frozen=True):
    """A thread came back from the archive."""

    thread_id: str


class ThreadUnsubscribeParams(Params, frozen=True):
    """Get no more events of a thread; once its last subscriber leaves it is unloaded."""

    thread_id: str


ThreadUnsubscribeStatus = Literal["notLoaded", "notSubscribed", "unsubscribed"]


class ThreadUnsubscribeResponse(Value, frozen=True):
    """Whether there was a subscription to end."""

    status: ThreadUnsubscribeStatus


class ThreadRollbackParams(Params, frozen=True):
    """Drop the last turns of a thread; newer peers use `thread/revert`."""

    num_turns: UInt32
    thread_id: str


class ThreadRollbackResponse(Value, frozen=True):
    """The thread with the turns that are left."""

    thread: Thread
