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
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from treadle.server.files.inotify import Inotify
from treadle.server.files.shared_path import Changes, PathSource, PathWatch, SharedPath
from treadle.support.concurrency.workers import Workers
from treadle.support.files.links import follow
from treadle.support.files.writing import SCRATCH

DEBOUNCE_S: Final = 0.2
POLL_S: Final = 0.25
MAX_LOOKS: Final = 8
"""Maximum number of paths examined at once; further ones wait."""
_LOOKS: Final = 3

# Identifies a file and everything that changes with its content or permissions.
_Mark: TypeAlias = tuple[int, int, int, int, int]
# A folder's number and an entry of it, or `None` for all entries.
_Place: TypeAlias = tuple[int, str | None]

_TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM})

logger = logging.getLogger(__name__)


class Watcher:
    """All watches of a server; they share one kernel queue, and watches of a path its changes."""

    def __init__(self, *, polls: bool = sys.platform != "linux") -> None:
        # Threads that examine paths, which may be on slow disks.
        self.workers = Workers("watch", MAX_LOOKS)
        self._polls = polls
        self._shared: dict[str, SharedPath] = {}
        self._inotify: Inotify | None = None
        # By folder: who waits for changes of an entry, or of any entry.
        self._listeners: dict[int, dict[str | None, set[NotifiedSource]]] = {}

    async def watch(self, path: str) -> PathWatch:
        """Start watching a path.

        Raises:
            OSError: the path cannot be examined.
        """
        shared = self._shared.setdefault(path, SharedPath(path))
        watch = PathWatch(shared, partial(self._end, shared))
        shared.watches.add(watch)
        try:
            await shared.begin(self._open)
        except BaseException:
            watch.end()
            raise
        return watch

    def _end(self, shared: SharedPath) -> None:
        if self._shared.get(shared.path) is shared:
            del self._shared[shared.path]
        shared.end()

    async def _open(self, path: str) -> PathSource:
        if not self._polls:
            source = NotifiedSource(self, path)
            try:
                await source.begin()
            except OSError as error:
                source.end()
                if error.errno not in _TOO_MANY:
                    raise
                logger.warning("too many watches", extra={"reason": str(error)})
            except BaseException:
                source.end()
                raise
            else:
                return source
        polled = PolledSource(self.workers, path)
        await polled.begin()
        return polled

    def listen(self, source: NotifiedSource, folder: str, name: str | None) -> _Place:
        """Subscribe to an entry of a folder, or to all of them; return what `unlisten` takes."""
        if self._inotify is None:
            self._inotify = Inotify(self._on_change)
        try:
            number = self._inotify.add(folder)
        except OSError:
            self._close_if_idle()
            raise
        self._listeners.setdefault(number, {}).setdefault(name, set()).add(source)
        return number, name

    def unlisten(self, source: NotifiedSource, place: _Place) -> None:
        """End a subscription."""
        number, name = place
        folder = self._listeners.get(number, {})
        listeners = folder.get(name, set())
        listeners.discard(source)
        if not listeners:
            folder.pop(name, None)
        if not folder and self._inotify is not None:
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
            folder = self._listeners.get(number, {})
            names = (name, None) if name else tuple(folder)
            for source in {each for key in names for each in folder.get(key, ())}:
                source.on_change(number, name)
            return
        logger.warning("changes were lost")
        folders = self._listeners.values()
        for source in {each for folder in folders for some in folder.values() for each in some}:
            source.on_loss()


class PathState(Struct, frozen=True):
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
    target = Path(follow(str(path)).place)
    if not is_folder and target != path and target.parent.is_dir():
        names.append((str(target.parent), target.name, True))
    return PathState(there, tuple(names), str(path) if is_folder else None)


def _identify(path: Path) -> tuple[tuple[int, int] | None, bool]:
    try:
        status = path.stat()
    except OSError:
        return None, False
    return (status.st_dev, status.st_ino), stat.S_ISDIR(status.st_mode)


class NotifiedSource:
    """A source that receives changes from the kernel."""

    def __init__(self, watcher: Watcher, path: str) -> None:
        self.path = path
        self._below = path.rstrip("/") + "/"
        self._watcher = watcher
        self._there: tuple[int, int] | None = None
        # What it is subscribed to; true if the entry is the path itself.
        self._places: dict[_Place, bool] = {}
        self._changed = Changes(path)
        self._event = asyncio.Event()

    async def begin(self) -> None:
        """Subscribe to the folders that the path depends on."""
        await self._resubscribe()

    async def collect(self) -> list[str]:
        """Wait for an event, and collect those that follow within `DEBOUNCE_S`."""
        await self._event.wait()
        await asyncio.sleep(DEBOUNCE_S)
        self._event.clear()
        before = self._there
        try:
            await self._resubscribe()
        except OSError as error:
            logger.warning("cannot watch", extra={"path": self.path, "reason": str(error)})
        except BaseException:
            self._event.set()  # another watch of the path collects instead
            raise
        if self._there != before:
            # The path appeared, vanished or was replaced, perhaps with silently added entries.
            self._changed.add(self.path)
        return self._changed.take()

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
        self._replace({})

    def on_change(self, number: int, name: str) -> None:
        """Handle a change of an entry in a folder, or of the folder itself if the name is empty."""
        if (number, None) in self._places:
            self._changed.add(self._below + name if name else self.path)
        if self._places.get((number, name)):
            self._changed.add(self.path)
        self._event.set()

    def on_loss(self) -> None:
        """Handle an overflow of the kernel's queue."""
        self._changed.add(self.path)
        self._event.set()

    def _subscribe(self, state: PathState) -> None:
        """Subscribe to exactly the folders that matter now."""
        places: dict[_Place, bool] = {}
        try:
            for folder, name, is_near in state.names:
                places[self._watcher.listen(self, folder, name)] = is_near
            if state.inside is not None:
                places[self._watcher.listen(self, state.inside, None)] = False
        finally:
            self._replace(places)

    def _replace(self, places: dict[_Place, bool]) -> None:
        obsolete = self._places.keys() - places.keys()
        self._places = places
        for place in obsolete:
            self._watcher.unlisten(self, place)


class PolledSource:
    """A source that polls."""

    def __init__(self, workers: Workers, path: str) -> None:
        self.path = path
        self._workers = workers
        self._marks: dict[str, _Mark] = {}

    async def begin(self) -> None:
        """Record the initial state."""
        self._marks = await self._workers.run(_marks, self.path)

    async def collect(self) -> list[str]:
        """Wait for the polling interval, and compare the state."""
        await asyncio.sleep(POLL_S)
        before, self._marks = self._marks, await self._workers.run(_marks, self.path)
        return await self._workers.run(_differences, self.path, before, self._marks)

    def end(self) -> None:
        """Do nothing: a polled source holds no resources."""


def _differences(path: str, before: dict[str, _Mark], now: dict[str, _Mark]) -> list[str]:
    changes = Changes(path)
    changes.update(path for path, _ in before.items() ^ now.items())
    return changes.take()


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
