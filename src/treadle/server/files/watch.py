"""Watches over files and folders: reports the changes at a path together, after a short delay.

A watch follows a path, not the file behind it: it continues when the file is replaced or the
folder is removed and created again, and it may begin before either exists. The kernel reports
changes where it can; elsewhere, and when its limit of watches is reached, the path is polled.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from treadle.server.files.inotify import Inotify
from treadle.server.files.service import readable
from treadle.support.concurrency.workers import Workers
from treadle.support.files.writing import SCRATCH

DEBOUNCE_S: Final = 0.2
POLL_S: Final = 0.25
MAX_LOOKS: Final = 8
"""Maximum number of paths examined at once; further ones wait."""
_LOOKS: Final = 3

OnChange: TypeAlias = Callable[[list[str]], Awaitable[None]]
# Identifies a file and everything that changes with its content or permissions.
_Mark: TypeAlias = tuple[int, int, int, int, int]

_TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM})

logger = logging.getLogger(__name__)


class PathWatch(Protocol):
    """One watched path; every change after its creation is noticed."""

    async def changes(self) -> set[str]:
        """Wait for an event, and return the changed paths, if any."""
        ...

    def end(self) -> None:
        """Release all resources; the watch cannot be used again."""
        ...


async def follow(watch: PathWatch, on_change: OnChange) -> None:
    """Report changes until cancelled."""
    while True:
        if changed := await watch.changes():
            await on_change(sorted(readable(path) for path in changed))


class Watcher:
    """All watches of a server; they share one kernel queue."""

    def __init__(self, *, polls: bool = sys.platform != "linux") -> None:
        # Threads that examine paths, which may be on slow disks.
        self.workers = Workers("watch", MAX_LOOKS)
        self._polls = polls
        self._inotify: Inotify | None = None
        self._listeners: dict[int, set[NotifiedWatch]] = {}

    async def watch(self, path: str) -> PathWatch:
        """Start watching a path.

        Raises:
            OSError: the path cannot be examined.
        """
        if not self._polls:
            watch = NotifiedWatch(self, path)
            try:
                await watch.begin()
            except OSError as error:
                watch.end()
                if error.errno not in _TOO_MANY:
                    raise
                logger.warning("too many watches", extra={"reason": str(error)})
            except BaseException:
                watch.end()
                raise
            else:
                return watch
        polled = PolledWatch(self.workers, path)
        await polled.begin()
        return polled

    def listen(self, watch: NotifiedWatch, folder: str) -> int:
        """Subscribe a watch to a folder, and return the folder's number."""
        if self._inotify is None:
            self._inotify = Inotify(self._on_change)
        try:
            number = self._inotify.add(folder)
        except OSError:
            self._close_if_idle()
            raise
        self._listeners.setdefault(number, set()).add(watch)
        return number

    def unlisten(self, watch: NotifiedWatch, number: int) -> None:
        """End a watch's subscription to a folder."""
        listeners = self._listeners.get(number, set())
        listeners.discard(watch)
        if not listeners and self._inotify is not None:
            self._listeners.pop(number, None)
            self._inotify.remove(number)
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self._listeners and self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _on_change(self, number: int, name: str) -> None:
        if name.startswith(SCRATCH):
            return
        if number >= 0:
            for watch in self._listeners.get(number, ()):
                watch.on_change(number, name)
            return
        logger.warning("changes were lost")
        for watch in {each for listeners in self._listeners.values() for each in listeners}:
            watch.on_loss()


@dataclass(frozen=True, slots=True)
class PathState:
    """The current target of a path, and the folders whose changes affect it."""

    # Device and inode of the file or folder at the path, if any.
    there: tuple[int, int] | None
    # Folder and entry: the path itself, or a step on the way to it if `is_near` is false.
    names: tuple[tuple[str, str, bool], ...]
    # The folder at the path, if it is one.
    inside: str | None


def look(path: Path) -> PathState:
    """Return the current target of a path."""
    names: list[tuple[str, str, bool]] = []
    there, is_folder = _identify(path)
    parent, name = path.parent, path.name
    is_near = True
    while not parent.is_dir() and parent != parent.parent:
        parent, name, is_near = parent.parent, parent.name, False
    if name:
        names.append((str(parent), name, is_near))
    target = Path(os.path.realpath(path))
    if not is_folder and target != path and target.parent.is_dir():
        names.append((str(target.parent), target.name, True))
    return PathState(there, tuple(names), str(path) if is_folder else None)


def _identify(path: Path) -> tuple[tuple[int, int] | None, bool]:
    try:
        status = path.stat()
    except OSError:
        return None, False
    return (status.st_dev, status.st_ino), stat.S_ISDIR(status.st_mode)


class NotifiedWatch:
    """A watch that receives changes from the kernel."""

    def __init__(self, watcher: Watcher, path: str) -> None:
        self.path = path
        self._watcher = watcher
        self._there: tuple[int, int] | None = None
        # Watched entries by folder number; true if the entry is the path itself.
        self._names: dict[int, dict[str, bool]] = {}
        self._inside: int | None = None
        self._changed: set[str] = set()
        self._event = asyncio.Event()

    async def begin(self) -> None:
        """Subscribe to the folders that the path depends on."""
        await self._resubscribe()

    async def changes(self) -> set[str]:
        """Wait for an event, and collect those that follow within `DEBOUNCE_S`."""
        await self._event.wait()
        await asyncio.sleep(DEBOUNCE_S)
        self._event.clear()
        before = self._there
        try:
            await self._resubscribe()
        except OSError as error:
            logger.warning("cannot watch", extra={"path": self.path, "reason": str(error)})
        if self._there != before:
            # The path appeared, vanished or was replaced, perhaps with silently added entries.
            self._changed.add(self.path)
        changed, self._changed = self._changed, set()
        return changed

    async def _resubscribe(self) -> None:
        """Subscribe to the folders that matter now.

        A change between the inspection and the subscription raises no event, so inspect again.
        """
        workers = self._watcher.workers
        state = await workers.run(look, Path(self.path))
        for _ in range(_LOOKS):
            with suppress(FileNotFoundError):
                self._subscribe(state)
            previous, state = state, await workers.run(look, Path(self.path))
            if state == previous:
                break
        else:
            self._event.set()  # the path keeps changing: try again later
        self._there = state.there

    def end(self) -> None:
        """End all subscriptions."""
        self._replace({}, None)

    def on_change(self, number: int, name: str) -> None:
        """Handle a change of an entry in a folder, or of the folder itself if the name is empty."""
        if number == self._inside:
            self._changed.add(str(Path(self.path, name)) if name else self.path)
            self._event.set()
        names = self._names.get(number)
        if names is None:
            return
        if names.get(name):
            self._changed.add(self.path)
        if not name or name in names:
            self._event.set()

    def on_loss(self) -> None:
        """Handle an overflow of the kernel's queue."""
        self._changed.add(self.path)
        self._event.set()

    def _subscribe(self, state: PathState) -> None:
        """Subscribe to exactly the folders that matter now."""
        names: dict[int, dict[str, bool]] = {}
        inside: int | None = None
        try:
            for folder, name, is_near in state.names:
                number = self._watcher.listen(self, folder)
                names.setdefault(number, {})[name] = is_near
            if state.inside is not None:
                inside = self._watcher.listen(self, state.inside)
        finally:
            self._replace(names, inside)

    def _replace(self, names: dict[int, dict[str, bool]], inside: int | None) -> None:
        obsolete = {*self._names, self._inside} - {*names, inside}
        self._names, self._inside = names, inside
        for number in obsolete:
            if number is not None:
                self._watcher.unlisten(self, number)


class PolledWatch:
    """A watch that polls."""

    def __init__(self, workers: Workers, path: str) -> None:
        self.path = path
        self._workers = workers
        self._marks: dict[str, _Mark] = {}

    async def begin(self) -> None:
        """Record the initial state."""
        self._marks = await self._workers.run(_marks, self.path)

    async def changes(self) -> set[str]:
        """Wait for the polling interval, and compare the state."""
        await asyncio.sleep(POLL_S)
        before, self._marks = self._marks, await self._workers.run(_marks, self.path)
        return {path for path, _ in before.items() ^ self._marks.items()}

    def end(self) -> None:
        """Do nothing: a polled watch holds no resources."""


def _marks(path: str) -> dict[str, _Mark]:
    """Return the state of a path and, for a folder, of its direct entries."""
    marks: dict[str, _Mark] = {}
    with suppress(OSError):
        for name, status in _stat_entries(path):
            if not stat.S_ISDIR(status.st_mode):
                mark = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns)
            else:
                # A folder's size and times change with its entries, which are reported separately.
                mark = (status.st_ino, status.st_mode, 0, 0)
            marks[name] = (status.st_dev, *mark)
    return marks


def _stat_entries(path: str) -> Iterator[tuple[str, os.stat_result]]:
    status = Path(path).stat()
    yield path, status
    if not stat.S_ISDIR(status.st_mode):
        return
    with os.scandir(path) as entries:
        for entry in entries:
            if not entry.name.startswith(SCRATCH):
                with suppress(FileNotFoundError):
                    yield entry.path, entry.stat(follow_symlinks=False)
