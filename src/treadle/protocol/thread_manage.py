"""Thread management: list, read, name, archive, roll back, unsubscribe."""

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
    """Archive a stored thread: only lists of archived threads show it."""

    thread_id: str


class ThreadArchiveResponse(Value, frozen=True):
    """The thread is archived."""


class ThreadArchivedNotification(Value, frozen=True):
    """A thread was archived."""

    thread_id: str


class ThreadClosedNotification(Value, frozen=True):
    """A thread was unloaded because it has no subscribers."""

    thread_id: str


class ThreadCompactStartParams(Params, frozen=True):
    """Compact the history of a thread, in a separate turn."""

    thread_id: str


class ThreadCompactStartResponse(Value, frozen=True):
    """The compaction has begun; its turn and item report the progress."""


class ThreadDeleteParams(Params, frozen=True):
    """Delete a thread and its stored history permanently."""

    thread_id: str


class ThreadDeleteResponse(Value, frozen=True):
    """The thread is deleted."""


class ThreadDeletedNotification(Value, frozen=True):
    """A thread was deleted permanently."""

    thread_id: str


class ThreadInjectItemsParams(Params, frozen=True):
    """Append items of the Responses API to the model context, without a turn."""

    items: list[JsonValue]
    thread_id: str


class ThreadInjectItemsResponse(Value, frozen=True):
    """The items are in the history."""


ThreadListCwdFilter = str | list[str]

ThreadSortKey = Literal["created_at", "updated_at", "recency_at", "section_position"]


@experimental(
    "ancestor_thread_id",
    "attached_to_thread_id",
    "include_attached_threads",
    "parent_thread_id",
    "project_id",
)
class ThreadListParams(Params, frozen=True):
    """Page through the stored threads that match every filter, newest first by default."""

    ancestor_thread_id: str | None = None
    # True lists only archived threads; any other value only the rest.
    archived: bool | None = None
    # Lists the threads attached to this one; excludes the two filters by ancestry.
    attached_to_thread_id: str | None = None
    current_account_only: bool = False
    cursor: str | None = None
    # Must match exactly.
    cwd: ThreadListCwdFilter | None = None
    # At most 100, and the same on each page.
    excluded_thread_ids: list[str] | None = None
    # Only with a search term.
    include_attached_threads: bool = False
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
    # Trust the index instead of scanning the stored files to repair it.
    use_state_db_only: bool = False


@experimental("read_states")
class ThreadListResponse(Value, frozen=True):
    """One page of threads, with cursors in both directions."""

    data: list[Thread]
    backwards_cursor: str | None = None
    next_cursor: str | None = None
    read_states: dict[str, ThreadReadState] | None = None


class ThreadLoadedListParams(Params, frozen=True):
    """Page through the loaded threads; without a limit, all of them."""

    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadLoadedListResponse(Value, frozen=True):
    """One page of thread ids."""

    data: list[str]
    next_cursor: str | None = None


class ThreadMetadataGitInfoUpdateParams(Params, frozen=True):
    """Git metadata to store: absent keeps the old value, null clears it."""

    branch: str | UnsetType | None = UNSET
    origin_url: str | UnsetType | None = UNSET
    sha: str | UnsetType | None = UNSET


@experimental("daybreak_enabled", "project_id")
class ThreadMetadataUpdateParams(Params, frozen=True):
    """Change the stored metadata of a thread, without loading it."""

    thread_id: str
    daybreak_enabled: bool | None = None
    git_info: ThreadMetadataGitInfoUpdateParams | None = None
    # An empty string removes the thread from its project.
    project_id: str | None = None


class ThreadMetadataUpdateResponse(Value, frozen=True):
    """The thread after the change."""

    thread: Thread


class ThreadNameUpdatedNotification(Sparse, frozen=True):
    """A thread has a new title."""

    thread_id: str
    thread_name: str | None = None


class ThreadReadParams(Params, frozen=True):
    """Read a thread without loading it or subscribing to it."""

    thread_id: str
    include_turns: bool = False


@experimental("read_state")
class ThreadReadResponse(Value, frozen=True):
    """The thread, with its turns if requested."""

    thread: Thread
    read_state: ThreadReadState | None = None


class ThreadRevertParams(Params, frozen=True):
    """Drop a turn and all later ones from the history; files are not changed."""

    before_turn_id: str
    thread_id: str


class ThreadRevertResponse(Value, frozen=True):
    """The thread without its turns, and cursors to read the remaining history backwards."""

    thread: Thread
    items_backwards_cursor: str | None = None
    turns_backwards_cursor: str | None = None


class ThreadRevertedNotification(Value, frozen=True):
    """The latest turns of a thread were dropped; read its history again."""

    thread_id: str


class ThreadUnarchiveParams(Params, frozen=True):
    """Restore an archived thread."""

    thread_id: str


class ThreadUnarchiveResponse(Value, frozen=True):
    """The restored thread."""

    thread: Thread


class ThreadUnarchivedNotification(Value, frozen=True):
    """An archived thread was restored."""

    thread_id: str


class ThreadUnsubscribeParams(Params, frozen=True):
    """Stop receiving events of a thread; it is unloaded after its last subscriber leaves."""

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
    """The thread with the remaining turns."""

    thread: Thread
