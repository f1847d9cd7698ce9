"""The best matches of a query among the files of some folders."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from treadle.server.file_search.query import Query
from treadle.server.file_search.walk import Entry
from treadle.support.concurrency.threads import give_way

LIMIT: Final = 50
"""Maximum number of matches that a search returns."""

# Some milliseconds each: a path takes ten microseconds, and one that a filter rejects half of one.
_PART: Final = 200
_FILTERED_PART: Final = 4000


class Match(NamedTuple):
    """A file or folder that matches a query."""

    entry: Entry
    score: int
    positions: list[int]


class Cancelled(Exception):
    """The result of the search is not needed any more."""


def best_matches(
    entries: Sequence[Entry], query: Query, is_cancelled: Callable[[], bool] = lambda: False
) -> list[Match]:
    """Return the best matches, by score and then by path.

    Of those with the same score the shortest paths are chosen.

    Raises:
        Cancelled: `is_cancelled` returned true.
    """
    found: Sequence[Entry] = entries
    for accepts in query.filters:
        parts = _parts(found, _FILTERED_PART, is_cancelled)
        found = [entry for part in parts for entry in part if accepts(entry.plain)]
    start = query.best_start
    if start is not None:
        needle, highest = start
        starting = [entry for entry in found if f"/{needle}" in f"/{entry.plain}"]
        best = _best(starting, query, is_cancelled)
        if len(best) == LIMIT and all(match.score == highest for match in best):
            return best
    return _best(found, query, is_cancelled)


def _best(entries: Sequence[Entry], query: Query, is_cancelled: Callable[[], bool]) -> list[Match]:
    best = heapq.nsmallest(LIMIT, _scored(entries, query, is_cancelled), key=_rank)
    return sorted(best, key=lambda match: (-match.score, match.entry.path))


def _scored(
    entries: Sequence[Entry], query: Query, is_cancelled: Callable[[], bool]
) -> Iterable[Match]:
    for part in _parts(entries, _PART, is_cancelled):
        for entry in part:
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
