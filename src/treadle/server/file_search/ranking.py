"""The best matches of a query among the files of some folders."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from treadle.server.file_search.query import Query
from treadle.server.file_search.scores import highest
from treadle.server.file_search.walk import Entry
from treadle.support.concurrency.threads import give_way

LIMIT: Final = 50
"""Maximum number of matches that a search returns."""

# Some milliseconds: half a microsecond for each path.
_FILTERED_PART: Final = 4000


class Match(NamedTuple):
    """A file or folder that matches a query."""

    entry: Entry
    score: int
    positions: list[int]


class Cancelled(Exception):
    """The result of the search is not needed any more."""


def best_matches(
    entries: Sequence[Entry],
    query: Query,
    is_cancelled: Callable[[], bool] = lambda: False,
    narrowing: Narrowing | None = None,
) -> list[Match]:
    """Return the best matches, by score and then by path.

    Of those with the same score the shortest paths are chosen.

    Raises:
        Cancelled: `is_cancelled` returned true.
    """
    best = _best_starts(entries, query, is_cancelled)
    if best is None:
        narrowing = Narrowing() if narrowing is None else narrowing
        found = narrowing.candidates(entries, query, is_cancelled)
        best = heapq.nsmallest(LIMIT, _scored(found, query, is_cancelled), key=_rank)
    return sorted(best, key=lambda match: (-match.score, match.entry.path))


class Narrowing:
    """The files that can match a query while a user adds to it.

    A file that does not match a word matches no longer word that starts with it.
    """

    def __init__(self) -> None:
        self._needle = ""
        self._count = 0
        self._found: list[Entry] = []

    def candidates(
        self, entries: Sequence[Entry], query: Query, is_cancelled: Callable[[], bool]
    ) -> Sequence[Entry]:
        """Return what the query's filters accept of a list that only grows between calls."""
        needle = query.plain_needle
        if needle is None:
            return _accepted(entries, query, is_cancelled)
        if not (self._needle and needle.startswith(self._needle)):
            self._found, self._count = [], 0
        found = _accepted(self._found, query, is_cancelled)
        found += _accepted(entries[self._count :], query, is_cancelled)
        self._needle, self._count, self._found = needle, len(entries), found
        return found


def _accepted(
    entries: Sequence[Entry], query: Query, is_cancelled: Callable[[], bool]
) -> list[Entry]:
    found = list(entries)
    for accepts in query.filters:
        parts = _parts(found, _FILTERED_PART, is_cancelled)
        found = [entry for part in parts for entry in part if accepts(entry.plain)]
    return found


def _best_starts(
    entries: Sequence[Entry], query: Query, is_cancelled: Callable[[], bool]
) -> list[Match] | None:
    """Return the best matches if enough have the highest score, which needs no comparison."""
    needle = query.plain_needle
    if needle is None:
        return None
    name = f"/{needle}"
    starting = [
        entry
        for part in _parts(entries, _FILTERED_PART, is_cancelled)
        for entry in part
        if name in entry.plain or entry.plain.startswith(needle)
    ]
    if len(starting) < LIMIT:
        return None
    shortest = heapq.nsmallest(LIMIT, starting, key=lambda entry: (len(entry.path), entry.path))
    best = list(_scored(shortest, query, is_cancelled))
    return best if all(match.score == highest(needle) for match in best) else None


def _scored(
    entries: Sequence[Entry], query: Query, is_cancelled: Callable[[], bool]
) -> Iterable[Match]:
    for entry in entries:
        # Each time: a long path and a long query take a tenth of a second.
        if is_cancelled():
            raise Cancelled
        give_way()
        alignment = query.align(entry.path, entry.plain)
        if alignment is not None:
            yield Match(entry, *alignment)


def _rank(match: Match) -> tuple[int, int, str]:
    return -match.score, len(match.entry.path), match.entry.path


def _parts(
    entries: Sequence[Entry], size: int, is_cancelled: Callable[[], bool]
) -> Iterator[Sequence[Entry]]:
    for start in range(0, len(entries), size):
        if is_cancelled():
            raise Cancelled
        give_way()
        yield entries[start : start + size]
