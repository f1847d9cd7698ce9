"""Fuzzy search for files by name, once or as a session that follows the query."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Params, SnakeValue, UInt32, Value

FuzzyFileSearchMatchType = Literal["file", "directory"]


class FuzzyFileSearchParams(Params, frozen=True):
    """Search once; a later search with the same token cancels the previous one."""

    query: str
    roots: list[str]
    cancellation_token: str | None = None


class FuzzyFileSearchResult(SnakeValue, frozen=True):
    """A matching path, relative to its root; `indices` are the matched characters."""

    file_name: str
    match_type: FuzzyFileSearchMatchType
    path: str
    root: str
    score: UInt32
    indices: list[UInt32] | None = None


class FuzzyFileSearchResponse(Value, frozen=True):
    """The matches, best first."""

    files: list[FuzzyFileSearchResult]


class FuzzyFileSearchSessionCompletedNotification(Value, frozen=True):
    """The results for the session's current query are complete."""

    session_id: str


class FuzzyFileSearchSessionStartParams(Params, frozen=True):
    """Open a search over some roots under an id that the client chooses."""

    roots: list[str]
    session_id: str


class FuzzyFileSearchSessionStartResponse(Value, frozen=True):
    """The session is open and waits for a query."""


class FuzzyFileSearchSessionStopParams(Params, frozen=True):
    """Close a search and discard its index."""

    session_id: str


class FuzzyFileSearchSessionStopResponse(Value, frozen=True):
    """The session is closed."""


class FuzzyFileSearchSessionUpdateParams(Params, frozen=True):
    """Change the query of an open session."""

    query: str
    session_id: str


class FuzzyFileSearchSessionUpdateResponse(Value, frozen=True):
    """The query was accepted; matches follow as notifications."""


class FuzzyFileSearchSessionUpdatedNotification(Value, frozen=True):
    """All matches of a query found so far; replaces earlier ones."""

    files: list[FuzzyFileSearchResult]
    query: str
    session_id: str
