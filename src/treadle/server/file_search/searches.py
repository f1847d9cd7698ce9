"""The searches of one client: single ones, and sessions that follow what a user types."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event
from typing import Final

from treadle.protocol.fuzzy_file_search import FuzzyFileSearchResult
from treadle.server.file_search.found import Found
from treadle.server.file_search.query import Query
from treadle.server.file_search.ranking import Cancelled, Match, Narrowing, best_matches
from treadle.server.file_search.walk import Entry, Walk
from treadle.support.concurrency.workers import Workers

PUBLISH_SECONDS: Final = 0.1
"""How often a session publishes matches while it still walks through the folders."""

logger = logging.getLogger(__name__)

Publish = Callable[[str, list[FuzzyFileSearchResult]], Awaitable[None]]
Complete = Callable[[], Awaitable[None]]


class SingleSearches:
    """Searches that a later one with the same token cancels."""

    def __init__(self, workers: Workers, found: Found) -> None:
        self._workers = workers
        self._found = found
        self._by_token: dict[str, Event] = {}

    async def search(
        self, query: str, roots: Sequence[str], token: str | None
    ) -> list[FuzzyFileSearchResult]:
        """Return the best matches; nothing if another search took the token."""
        if not query:
            return []
        with self._cancellation(token) as is_over:
            return await self._workers.run(_search, query, roots, is_over, self._found)

    @contextmanager
    def _cancellation(self, token: str | None) -> Iterator[Event]:
        is_over = Event()
        if token is not None:
            if (former := self._by_token.get(token)) is not None:
                former.set()
            self._by_token[token] = is_over
        try:
            yield is_over
        finally:
            is_over.set()
            if token is not None and self._by_token.get(token) is is_over:
                del self._by_token[token]


class SearchSession:
    """A search whose query changes; its list of files is made once, when it starts."""

    def __init__(self, roots: Sequence[str], workers: Workers, found: Found) -> None:
        self._workers = workers
        self._query = ""
        self._updates = 0
        self._has_news = asyncio.Event()
        self._is_over = Event()
        self._walk = Walk(roots, self._is_over.is_set, found)
        self._narrowing = Narrowing()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""
        return self._is_over.is_set()

    def update(self, query: str) -> None:
        """Search for something else."""
        self._query = query
        self._updates += 1
        self._has_news.set()

    def stop(self) -> None:
        """End the session."""
        self._is_over.set()
        if self._task is not None:
            self._task.cancel()

    async def run(self, publish: Publish, complete: Complete) -> None:
        """Publish the matches of each query until the session ends."""
        if self._is_over.is_set():
            return
        self._task = asyncio.current_task()
        walking = await self._workers.start(self._walk.run)
        walking.add_done_callback(self._on_walked)
        published: tuple[int, list[Match]] | None = None
        try:
            while True:
                self._has_news.clear()
                query, number, is_all = self._query, self._updates, walking.done()
                matches = await self._matches(query, number)
                if matches is None:
                    continue
                if published != (number, matches):
                    await publish(query, results(matches))
                    published = number, matches
                if is_all:
                    await complete()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if is_all else PUBLISH_SECONDS):
                        await self._has_news.wait()
        finally:
            self._is_over.set()
            walking.add_done_callback(self._release)

    async def _matches(self, query: str, number: int) -> list[Match] | None:
        """Return the matches; None if the query changed meanwhile."""
        if not query:
            return []

        def is_cancelled() -> bool:
            return self._is_over.is_set() or self._updates != number

        try:
            entries = self._walk.entries
            return await self._workers.run(
                _matches, entries[:], query, is_cancelled, self._narrowing
            )
        except Cancelled:
            return None

    def _release(self, _walking: asyncio.Future[None]) -> None:
        self._walk.release()

    def _on_walked(self, walking: asyncio.Future[None]) -> None:
        if not walking.cancelled() and (error := walking.exception()) is not None:
            logger.error("a file search did not find all files", exc_info=error)
        self._has_news.set()


def results(matches: Sequence[Match]) -> list[FuzzyFileSearchResult]:
    """Return matches as the protocol has them."""
    return [
        FuzzyFileSearchResult(
            file_name=match.entry.path.rpartition("/")[2],
            match_type="directory" if match.entry.is_folder else "file",
            path=match.entry.path,
            root=match.entry.root,
            score=match.score,
            indices=match.positions,
        )
        for match in matches
    ]


def _search(
    query: str, roots: Sequence[str], is_over: Event, found: Found
) -> list[FuzzyFileSearchResult]:
    walk = Walk(roots, is_over.is_set, found)
    try:
        walk.run()
        return results(_matches(walk.entries, query, is_over.is_set))
    except Cancelled:
        return []
    finally:
        walk.release()


def _matches(
    entries: Sequence[Entry],
    query: str,
    is_cancelled: Callable[[], bool],
    narrowing: Narrowing | None = None,
) -> list[Match]:
    # In this thread, because compiling a long query takes a while.
    return best_matches(entries, Query(query), is_cancelled, narrowing)
