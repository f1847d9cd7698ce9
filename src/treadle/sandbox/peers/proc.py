"""Processes as /proc shows them, without mistaking one for another that got its number later."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LINKS_OF_ONE_THREAD = 3


class ProcessEntry:
    """The folder of one process in /proc: it stays that of this process, or has nothing in it."""

    def __init__(self, pid: int) -> None:
        """Open the folder.

        Raises:
            OSError: there is no such process, or it may not be looked at.
        """
        self._fd = os.open(f"/proc/{pid}", _FOLDER_FLAGS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def status(self) -> dict[str, str]:
        """Return what the kernel says of the process.

        Raises:
            OSError: the process has ended.
        """
        fd = os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
        with open(fd, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - of a descriptor
            pairs = (line.partition(":") for line in file)
            return {name: value.strip() for name, _, value in pairs}

    def sockets(self) -> Iterator[int]:
        """Yield the inodes of the sockets that it has open.

        Raises:
            OSError: the process has ended, or may not be looked at.
        """
        return self._sockets("fd")

    def has_threads(self) -> bool:
        """Return whether the process has more than its first thread.

        Raises:
            OSError: the process has ended.
        """
        # Two links, and one for each thread.
        return os.stat("task", dir_fd=self._fd).st_nlink > _LINKS_OF_ONE_THREAD

    def thread_sockets(self) -> Iterator[int]:
        """Yield the inodes of the sockets that its threads have open.

        A thread can have descriptors that the other threads of its process do not have.

        Raises:
            OSError: the process has ended, or may not be looked at.
        """
        tasks = os.open("task", _FOLDER_FLAGS, dir_fd=self._fd)
        try:
            threads = os.listdir(tasks)  # noqa: PTH208 - pathlib knows no descriptors
        finally:
            os.close(tasks)
        for thread in threads:
            with suppress(OSError):  # ended meanwhile
                yield from self._sockets(f"task/{thread}/fd")

    def _sockets(self, path: str) -> Iterator[int]:
        folder = os.open(path, _FOLDER_FLAGS, dir_fd=self._fd)
        try:
            for name in os.listdir(folder):  # noqa: PTH208 - pathlib knows no descriptors
                with suppress(OSError):  # closed meanwhile
                    target = os.readlink(name, dir_fd=folder)
                    if target.startswith("socket:["):
                        yield int(target[len("socket:[") : -1])
        finally:
            os.close(folder)


def processes() -> Iterator[ProcessEntry]:
    """Yield every process that may be looked at, usually the youngest first.

    Each is open until the next one.
    """
    names = (entry.name for entry in Path("/proc").iterdir())
    for pid in sorted((int(name) for name in names if name.isdigit()), reverse=True):
        with suppress(OSError), ProcessEntry(pid) as process:
            yield process


def parent(pid: int) -> int:
    """Return the number of a process's parent at one moment, 0 for the first of all.

    Raises:
        OSError: the process has ended.
    """
    with ProcessEntry(pid) as process:
        return int(process.status()["PPid"])
