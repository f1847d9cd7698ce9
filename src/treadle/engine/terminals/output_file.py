"""Stores the whole output of a command in a file of the home if it exceeds the memory limit."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from treadle.sandbox.limits import CommandLimits

logger = logging.getLogger(__name__)

FOLDER: Final = "outputs"
MAX_AGE_SECONDS: Final = 7 * 24 * 60 * 60
MAX_TOTAL_BYTES: Final = 4 * 1024**3
"""The most bytes that the files of all threads may use; the oldest are removed first."""

_MAX_WAITING: Final = 4 * 1024 * 1024
# How much is written between two checks of the free space.
_CHECK_BYTES: Final = 16 * 1024 * 1024
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_LENGTH: Final = 64


def folder_of(home: Path, thread_id: str) -> Path:
    """The folder with the outputs of a thread."""
    return home / FOLDER / _safe(thread_id)


class OutputFile:
    """Accepts output without blocking; a thread of the executor writes it."""

    def __init__(self, folder: Path, name: str, limits: CommandLimits) -> None:
        self.path: Final = folder / f"{_safe(name)}-{os.urandom(3).hex()}.log"
        self._room = limits.output_file
        self._reserve = limits.disk_reserve
        self._fd: int | None = None
        self._has_failed = False
        self._unchecked = 0
        self._waiting: list[bytes] = []
        self._size = 0
        self._work: asyncio.Future[None] | None = None
        self._is_closed = False
        self._on_room: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def is_behind(self) -> bool:
        """Whether more data waits to be written than should be held in memory."""
        return self._size > _MAX_WAITING

    @property
    def name(self) -> str | None:
        """The path to show to users; `None` if writing failed."""
        return None if self._has_failed else str(self.path)

    def add(self, data: bytes) -> None:
        """Add output."""
        if self._has_failed or self._is_closed or self._room == 0:
            return
        if self._room is not None:
            data = data[: self._room]
            self._room -= len(data)
        self._waiting.append(data)
        self._size += len(data)
        if self._room == 0:
            self._waiting.append(b"\n[... reached the limit of sandbox.limits.output_file]\n")
        self._write_waiting()

    def on_room(self, action: Callable[[], None]) -> None:
        """Call `action` when the data that waits now has been written."""
        self._on_room = action

    async def written(self) -> None:
        """Wait until all data added so far is in the file."""
        while self._work is not None:
            # Yields to the loop even if the work has ended: its callback then updates `_work`.
            await asyncio.wait([self._work])

    def close(self) -> None:
        """Close the file after all data is written."""
        self._is_closed = True
        self._write_waiting()

    def _write_waiting(self) -> None:
        if self._work is not None or self._loop.is_closed():
            return
        batch, self._waiting = self._waiting, []
        self._size = 0
        if not batch and (not self._is_closed or self._fd is None):
            return
        try:
            self._work = self._loop.run_in_executor(None, self._write, batch)
        except RuntimeError:  # the server is closing, and its executor has shut down
            self._has_failed = True
            self._release()
            return
        self._work.add_done_callback(self._on_written)

    def _on_written(self, work: asyncio.Future[None]) -> None:
        self._work = None
        if not work.cancelled() and (error := work.exception()) is not None:
            # The command continues without the file, and no note names it.
            self._has_failed = True
            self._waiting.clear()
            logger.warning("cannot store the output of a command in %s: %s", self.path, error)
        if self._on_room is not None:
            self._on_room()
            self._on_room = None
        self._write_waiting()

    # -- in a thread

    def _write(self, batch: Sequence[bytes]) -> None:
        if not batch:
            self._release()
            return
        try:
            data = memoryview(b"".join(batch))
            self._check_space(len(data))
            if self._fd is None:
                self._fd = _create(self.path)
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self._release()
            raise

    def _check_space(self, size: int) -> None:
        self._unchecked += size
        if self._reserve is None or (self._fd is not None and self._unchecked < _CHECK_BYTES):
            return
        self._unchecked = 0
        _make_folder(self.path.parent)
        disk = os.statvfs(self.path.parent)
        least = self._reserve.on(disk.f_blocks * disk.f_frsize)
        if disk.f_bavail * disk.f_frsize < least:
            raise OSError(f"less than {least:,} bytes free (sandbox.limits.disk_reserve)")

    def _release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _make_folder(folder: Path) -> None:
    for path in (folder.parent, folder):
        path.mkdir(mode=0o700, exist_ok=True)


def _create(path: Path) -> int:
    _make_folder(path.parent)
    make_room(path.parent.parent)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def remove_outputs(home: Path, thread_id: str) -> None:
    """Remove the outputs of a thread."""
    shutil.rmtree(folder_of(home, thread_id), ignore_errors=True)


def discard_outputs(home: Path, thread_id: str) -> None:
    """Remove the outputs of a thread that is not stored, in the background."""
    if folder_of(home, thread_id).exists():
        asyncio.get_running_loop().run_in_executor(None, remove_outputs, home, thread_id)


def make_room(folder: Path) -> None:
    """Remove expired outputs, and the oldest if all of them use too much space."""
    outputs = []
    for path in folder.glob("*/*.log"):
        try:
            status = path.lstat()
        except OSError:
            continue
        outputs.append((status.st_mtime, status.st_size, path))
    total, oldest = sum(size for _, size, _ in outputs), time.time() - MAX_AGE_SECONDS
    for changed, size, path in sorted(outputs):
        if changed > oldest and total <= MAX_TOTAL_BYTES:
            break
        total -= size
        path.unlink(missing_ok=True)
        if not any(path.parent.iterdir()):
            path.parent.rmdir()


def _safe(name: str) -> str:
    """Make a file name from an id that a model or a client chose."""
    return _UNSAFE.sub("_", name)[:_NAME_LENGTH] or "_"
