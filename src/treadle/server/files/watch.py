"""Watches over files and folders: what changed at a path, told a moment later and all at once.

A watch is on a path and not on what happens to be there: it goes on when the file is replaced,
and when the folder is removed and made again, and it may begin before either is there. Where the
kernel tells of changes it is asked to; elsewhere, and when it watches as much as it can, the path
is looked at again and again.
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
"""How many paths are looked at at once; more of them wait."""
_LOOKS: Final = 3

Tell: TypeAlias = Callable[[list[str]], Awaitable[None]]
# Which file a name stands for, and all that changes with its content or its rights.
_Mark: TypeAlias = tuple[int, int, int, int, int]

_TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM})

logger = logging.getLogger(__name__)


class PathWatch(Protocol):
    """One path that is watched; every change from its making on is noticed."""

    async def changes(self) -> set[str]:
        """Wait for something to happen, and give the paths that it happened to, if any."""
        ...

    def end(self) -> None:
        """Let go of everything; for good."""
        ...


async def follow(watch: PathWatch, tell: Tell) -> None:
    """Tell of changes, until cancelled."""
    while True:
        if changed := await watch.changes():
            await tell(sorted(readable(path) for path in changed))


class Watcher:
    """All watches of a server; they share what the kernel gives."""

    def __init__(self, *, polls: bool = sys.platform != "linux") -> None:
        # Threads that look at paths, which may be on slow disks.
        self.workers = Workers("watch", MAX_LOOKS)
        self._polls = polls
        self._inotify: Inotify | None = None
        self._listeners: dict[int, set[NotifiedWatch]] = {}

    async def watch(self, path: str) -> PathWatch:
        """Begin to watch a path.

        Raises:
            OSError: it may not be looked at.
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
        """Let a watch hear of a folder, by a number that stands for it."""
        if self._inotify is None:
            self._inotify = Inotify(self._on_change)
        try:
            number = self._inotify.add(folder)
        except OSError:
            self._rest()
            raise
        self._listeners.setdefault(number, set()).add(watch)
        return number

    def unlisten(self, watch: NotifiedWatch, number: int) -> None:
        """Let a watch hear no more of a folder."""
        listeners = self._listeners.get(number, set())
        listeners.discard(watch)
        if not listeners and self._inotify is not None:
            self._listeners.pop(number, None)
            self._inotify.remove(number)
            self._rest()

    def _rest(self) -> None:
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
    """Where a path leads now, and the folders whose changes concern it."""

    # The file or folder that is there, if any.
    there: tuple[int, int] | None
    # A name in a folder that is the path itself; or one on the way to it, if `is_near` is false.
    names: tuple[tuple[str, str, bool], ...]
    # The folder that the path leads to.
    inside: str | None


def look(path: Path) -> PathState:
    """See where a path leads."""
    names: list[tuple[str, str, bool]] = []
    there, is_folder = _found(path)
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


def _found(path: Path) -> tuple[tuple[int, int] | None, bool]:
    try:
        found = path.stat()
    except OSError:
        return None, False
    return (found.st_dev, found.st_ino), stat.S_ISDIR(found.st_mode)


class NotifiedWatch:
    """A watch that the kernel tells of changes."""

    def __init__(self, watcher: Watcher, path: str) -> None:
        self.path = path
        self._watcher = watcher
        self._there: tuple[int, int] | None = None
        # What is heard, by the numbers of folders: names, and whether each is the path itself.
        self._names: dict[int, dict[str, bool]] = {}
        self._inside: int | None = None
        self._changed: set[str] = set()
        self._news = asyncio.Event()

    async def begin(self) -> None:
        """Listen to the folders that the path depends on."""
        await self._listen_anew()

    async def changes(self) -> set[str]:
        """Wait for news, and a moment longer for what comes with them."""
        await self._news.wait()
        await asyncio.sleep(DEBOUNCE_S)
        self._news.clear()
        before = self._there
        try:
            await self._listen_anew()
        except OSError as error:
            logger.warning("cannot watch", extra={"path": self.path, "reason": str(error)})
        if self._there != before:
            # It appeared, went or was exchanged; perhaps with things in it that nobody told of.
            self._changed.add(self.path)
        changed, self._changed = self._changed, set()
        return changed

    async def _listen_anew(self) -> None:
        """Listen to what matters now.

        What changes between a look and the listening is told by nobody, so there is another look.
        """
        workers = self._watcher.workers
        sight = await workers.run(look, Path(self.path))
        for _ in range(_LOOKS):
            with suppress(FileNotFoundError):
                self._listen(sight)
            seen, sight = sight, await workers.run(look, Path(self.path))
            if sight == seen:
                break
        else:
            self._news.set()  # it does not stand still: later again
        self._there = sight.there

    def end(self) -> None:
        """Listen to nothing."""
        self._keep({}, None)

    def on_change(self, number: int, name: str) -> None:
        """Hear that something changed in a folder, or with it if there is no name."""
        if number == self._inside:
            self._changed.add(str(Path(self.path, name)) if name else self.path)
            self._news.set()
        names = self._names.get(number)
        if names is None:
            return
        if names.get(name):
            self._changed.add(self.path)
        if not name or name in names:
            self._news.set()

    def on_loss(self) -> None:
        """Hear that more changed than could be told."""
        self._changed.add(self.path)
        self._news.set()

    def _listen(self, sight: PathState) -> None:
        """Listen to what matters now, and to nothing else."""
        names: dict[int, dict[str, bool]] = {}
        inside: int | None = None
        try:
            for folder, name, is_near in sight.names:
                number = self._watcher.listen(self, folder)
                names.setdefault(number, {})[name] = is_near
            if sight.inside is not None:
                inside = self._watcher.listen(self, sight.inside)
        finally:
            self._keep(names, inside)

    def _keep(self, names: dict[int, dict[str, bool]], inside: int | None) -> None:
        known = {*self._names, self._inside} - {*names, inside}
        self._names, self._inside = names, inside
        for number in known:
            if number is not None:
                self._watcher.unlisten(self, number)


class PolledWatch:
    """A watch that looks again and again."""

    def __init__(self, workers: Workers, path: str) -> None:
        self.path = path
        self._workers = workers
        self._marks: dict[str, _Mark] = {}

    async def begin(self) -> None:
        """Take a first look."""
        self._marks = await self._workers.run(_marks, self.path)

    async def changes(self) -> set[str]:
        """Look again after a while."""
        await asyncio.sleep(POLL_S)
        before, self._marks = self._marks, await self._workers.run(_marks, self.path)
        return {path for path, _ in before.items() ^ self._marks.items()}

    def end(self) -> None:
        """Hold nothing, so there is nothing to let go of."""


def _marks(path: str) -> dict[str, _Mark]:
    """What is at a path and, if it is a folder, directly inside."""
    marks: dict[str, _Mark] = {}
    with suppress(OSError):
        for name, found in _looked(path):
            if not stat.S_ISDIR(found.st_mode):
                mark = (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns)
            else:
                # A folder's size and times change with what it holds, which is told by itself.
                mark = (found.st_ino, found.st_mode, 0, 0)
            marks[name] = (found.st_dev, *mark)
    return marks


def _looked(path: str) -> Iterator[tuple[str, os.stat_result]]:
    found = Path(path).stat()
    yield path, found
    if not stat.S_ISDIR(found.st_mode):
        return
    with os.scandir(path) as entries:
        for entry in entries:
            if not entry.name.startswith(SCRATCH):
                with suppress(FileNotFoundError):
                    yield entry.path, entry.stat(follow_symlinks=False)
