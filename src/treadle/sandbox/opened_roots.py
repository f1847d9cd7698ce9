"""Records which folders were ever writable for commands, and since when.

A file that changed after that may be the work of a command, even of one that ended long ago. The
kernel sets the change time of an inode, and no unprivileged program can set it back. Comparing the
two shows what a command cannot have created.

A file keeps its change time when a folder above it is renamed. Each folder on the way to the file
is therefore checked too: a rename sets the change time of the folder and of its parent.
"""

# Paths are text here, as everywhere in the sandbox.
# ruff: noqa: PTH112, PTH116, PTH120

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from treadle.sandbox.file_systems import dates_renames
from treadle.sandbox.paths import (
    change_time,
    identity,
    is_irreplaceable,
    is_out_of_reach,
    is_within,
    parents,
)
from treadle.support.code_guard import FILE_CLOCK
from treadle.support.files.reading import read_file

FILE_NAME: Final = "opened_roots.jsonl"
MOST: Final = 4096
"""How many folders are recorded before missing ones are dropped."""
# Far more than that many paths need.
_MAX_BYTES: Final = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


def _file_time_ns() -> int:
    """The clock of change times; the usual clock is some milliseconds ahead."""
    return time.clock_gettime_ns(FILE_CLOCK)


class OpenedRoots:
    """The record of one home; servers that share the home share the record."""

    def __init__(self, home: Path, now_ns: Callable[[], int] = _file_time_ns) -> None:
        self._path = home / FILE_NAME
        self._now_ns = now_ns
        self._since: dict[str, int] = {}
        # What could not be appended yet.
        self._unsaved: dict[str, int] = {}
        self._stamp: tuple[int, int] | None = None
        # By device, since the look-up is the slowest part.
        self._dating: dict[int, bool] = {}

    def add(self, roots: Iterable[str]) -> None:
        """Record that commands may write these folders from now on."""
        self._read()
        added = {root: self._now_ns() for root in roots if root not in self._since}
        self._since |= added
        self._unsaved |= added
        if not self._unsaved:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._opened() as (descriptor, is_locked):
                if len(self._since) <= MOST or not is_locked or not self._read():
                    os.write(descriptor, _lines(self._unsaved))
                else:
                    self._compact()
            self._unsaved.clear()
        except OSError as error:
            # The record still applies while this server runs, and the next call tries again.
            logger.warning("cannot record writable folders", extra={"error": str(error)})

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[int, bool]]:
        """Open the file for appending, and lock it against servers that replace it.

        Commands can read the file, so they can also lock it. Without the lock a line is still
        appended whole. It is lost only if another server compacts the file at that moment; this
        server still has it in memory.

        Opening does not wait either, for a lease of another program on the file.
        """
        while True:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(self._path, flags, 0o600)
            try:
                is_locked = _is_exclusive(descriptor)
                about = os.fstat(descriptor)
                if identity(str(self._path)) == (about.st_dev, about.st_ino):
                    yield descriptor, is_locked
                    return
            finally:
                os.close(descriptor)

    def _compact(self) -> None:
        """Drop folders that are gone: nothing that a command created there remains."""
        self._since = {root: since for root, since in self._since.items() if os.path.isdir(root)}
        with tempfile.NamedTemporaryFile(dir=self._path.parent, delete=False) as file:
            file.write(_lines(self._since))
        Path(file.name).replace(self._path)

    def may_have_made(self, path: str, *, above: str | None = None) -> bool:
        """Return whether a command could have created or changed a path, without following links.

        With `above`, only writable folders above that one count: settings directly in a writable
        folder are read-only for commands.
        """
        return self._is_suspect(path, [*parents(path if above is None else above)])

    def may_have_filled(self, folder: str) -> bool:
        """Return whether a command could have added something to a folder."""
        return self._is_suspect(folder, [folder, *parents(folder)])

    def _is_suspect(self, path: str, roots: Sequence[str]) -> bool:
        """Return whether a path changed or was replaced since the first of the roots was opened.

        A record that exists and cannot be read may contain any folder.
        """
        if not self._read():
            return True
        since = self._opened_since(roots)
        changed = None if since is None else change_time(path)
        if since is None:
            return False
        if changed is None:
            # A command may have removed it right now, and may put it back.
            return True
        if (changed >= since or not self._dates_renames(path)) and not is_out_of_reach(path):
            return True
        return any(self._may_be_moved(folder, roots) for folder in parents(path))

    def _may_be_moved(self, folder: str, roots: Iterable[str]) -> bool:
        """Return whether a command could have moved this folder here, with its contents."""
        since = self._opened_since(
            root for root in roots if root != folder and is_within(folder, root)
        )
        if since is None or is_irreplaceable(folder):
            return False
        # New files also change a folder; only a rename changes its parent too.
        changes = change_time(folder), change_time(os.path.dirname(folder))
        is_new = all(changed is None or changed >= since for changed in changes)
        return is_new or not self._dates_renames(folder)

    def _dates_renames(self, path: str) -> bool:
        found = identity(os.path.dirname(path))
        if found is None:
            return False
        device = found[0]
        if device not in self._dating:
            self._dating[device] = dates_renames(os.path.dirname(path))
        return self._dating[device]

    def _opened_since(self, roots: Iterable[str]) -> int | None:
        return min((self._since[root] for root in roots if root in self._since), default=None)

    def _read(self) -> bool:
        """Read the entries that this or another server has added; return whether all are known."""
        try:
            found = os.stat(self._path)
            stamp = found.st_mtime_ns, found.st_size
            if stamp == self._stamp:
                return True
            lines = read_file(self._path, _MAX_BYTES).splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as error:
            logger.warning("cannot read writable folders", extra={"error": str(error)})
            return False
        for line in lines:
            # A line that a full disk cut short is ignored.
            with contextlib.suppress(ValueError, TypeError):
                root, since = json.loads(line)
                self._since[root] = min(since, self._since.get(root, since))
        self._stamp = stamp
        return True


def _is_exclusive(descriptor: int) -> bool:
    """Lock a file without waiting."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lines(since: Mapping[str, int]) -> bytes:
    return b"".join(json.dumps([root, at]).encode() + b"\n" for root, at in since.items())
