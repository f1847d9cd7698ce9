"""One path and its watches: changes are collected once, and their number is limited.

Clients, and programs that change files, decide how much is collected: without a limit, it would
grow while a client does not read, and many watches of one folder would multiply it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeAlias

from treadle.server.files.service import readable

MAX_CHANGES: Final = 1000
"""Maximum number of changed paths in one report; beyond it, the watched path stands for all."""
MAX_CHARACTERS: Final = 128 * 1024
"""Maximum length of all changed paths in one report."""

OnChange: TypeAlias = Callable[[list[str]], Awaitable[None]]


class Changes:
    """The changed paths of one watch; beyond a limit, only the watched path."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._paths: set[str] = set()
        self._size = 0
        self._is_full = False

    def add(self, path: str) -> None:
        """Add a changed path."""
        if self._is_full or path in self._paths:
            return
        self._paths.add(path)
        self._size += len(path)
        if len(self._paths) > MAX_CHANGES or self._size > MAX_CHARACTERS:
            self._paths, self._is_full = {self._path}, True

    def update(self, paths: Iterable[str]) -> None:
        """Add several changed paths."""
        for path in paths:
            self.add(path)

    def take(self) -> list[str]:
        """Return the changed paths as sorted text, and forget them."""
        paths, self._paths, self._size, self._is_full = self._paths, set(), 0, False
        return sorted({readable(path) for path in paths})


class PathSource(Protocol):
    """Notices every change of one path after `begin`."""

    async def begin(self) -> None:
        """Record the initial state.

        Raises:
            OSError: the path cannot be examined.
        """
        ...

    async def collect(self) -> list[str]:
        """Wait for an event, and return the changed paths, if any."""
        ...

    def end(self) -> None:
        """Release all resources; the source cannot be used again."""
        ...


class SharedPath:
    """One path with a single source of changes, for any number of watches."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.watches: set[PathWatch] = set()
        self._source: PathSource | None = None
        self._opening = asyncio.Lock()
        self._collecting = asyncio.Lock()

    async def begin(self, open_source: Callable[[str], Awaitable[PathSource]]) -> None:
        """Open the source unless it is open."""
        async with self._opening:
            if self._source is None:
                self._source = await open_source(self.path)

    async def collect(self, watch: PathWatch) -> None:
        """Wait until there are changes for a watch.

        The first watch that waits collects them for all. The others wake one after the other, so
        that requests are answered in between.
        """
        async with self._collecting:
            if self._source is not None and not watch.has_changes:
                changed = await self._source.collect()
                for each in self.watches:
                    each.add(changed)

    def end(self) -> None:
        """Release the source."""
        if self._source is not None:
            self._source.end()


class PathWatch:
    """One watch of a path; every change after its creation is noticed."""

    def __init__(self, shared: SharedPath, on_end: Callable[[], None]) -> None:
        self._shared = shared
        self._on_end = on_end
        # Not read yet. Changes that are not read in time are joined, up to the limit of a report.
        self._changed: list[str] = []

    @property
    def has_changes(self) -> bool:
        """Return whether changes have not been read yet."""
        return bool(self._changed)

    def add(self, changed: list[str]) -> None:
        """Take changes that were collected for all watches of the path."""
        if self._changed and changed:
            joined = Changes(self._shared.path)
            joined.update(self._changed)
            joined.update(changed)
            changed = joined.take()
        self._changed = changed or self._changed

    async def changes(self) -> list[str]:
        """Wait for an event, and return the changed paths, if any, in order."""
        if not self._changed:
            await self._shared.collect(self)
        changed, self._changed = self._changed, []
        return changed

    def end(self) -> None:
        """Release all resources; the watch cannot be used again."""
        self._shared.watches.discard(self)
        if not self._shared.watches:
            self._on_end()


async def follow(watch: PathWatch, on_change: OnChange) -> None:
    """Report changes until cancelled."""
    while True:
        if changed := await watch.changes():
            await on_change(changed)
