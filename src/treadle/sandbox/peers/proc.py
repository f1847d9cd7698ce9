"""Reads processes in /proc, safe against reuse of their numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LINKS_OF_ONE_THREAD = 3


class ProcessEntry:
    """The /proc folder of one process: it stays that of this process, or becomes empty."""

    def __init__(self, pid: int) -> None:
        """Open the folder.

        Raises:
            OSError: there is no such process, or it is inaccessible.
        """
        self._fd = os.open(f"/proc/{pid}", _FOLDER_FLAGS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def status(self) -> dict[str, str]:
        """Return the status of the process.

        Raises:
            OSError: the process has ended.
        """
        fd = os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
        with open(fd, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a descriptor
            pairs = (line.partition(":") for line in file)
            return {name: value.strip() for name, _, value in pairs}

    def sockets(self) -> Iterator[int]:
        """Yield the inodes of the sockets that it has open.

        Raises:
            OSError: the process has ended, or is inaccessible.
        """
        return self._sockets("fd")

    def has_threads(self) -> bool:
        """Return whether the process has more than one thread.

        Raises:
            OSError: the process has ended.
        """
        # Two links, plus one for each thread.
        return os.stat("task", dir_fd=self._fd).st_nlink > _LINKS_OF_ONE_THREAD

    def thread_sockets(self) -> Iterator[int]:
        """Yield the inodes of the sockets that its threads have open.

        A thread can have descriptors that the other threads do not have.

        Raises:
            OSError: the process has ended, or is inaccessible.
        """
        tasks = os.open("task", _FOLDER_FLAGS, dir_fd=self._fd)
        try:
            threads = os.listdir(tasks)  # noqa: PTH208 - pathlib has no descriptors
        finally:
            os.close(tasks)
        for thread in threads:
            with suppress(OSError):  # ended in the meantime
                yield from self._sockets(f"task/{thread}/fd")

    def _sockets(self, path: str) -> Iterator[int]:
        folder = os.open(path, _FOLDER_FLAGS, dir_fd=self._fd)
        try:
            for name in os.listdir(folder):  # noqa: PTH208 - pathlib has no descriptors
                with suppress(OSError):  # closed in the meantime
                    target = os.readlink(name, dir_fd=folder)
                    if target.startswith("socket:["):
                        yield int(target[len("socket:[") : -1])
        finally:
            os.close(folder)


def processes() -> Iterator[ProcessEntry]:
    """Yield every accessible process, usually the youngest first.

    Each one is open until the next.
    """
    names = (entry.name for entry in Path("/proc").iterdir())
    for pid in sorted((int(name) for name in names if name.isdigit()), reverse=True):
        with suppress(OSError), ProcessEntry(pid) as process:
            yield process


def parent(pid: int) -> int:
    """Return the current parent of a process, 0 for the first process.

    Raises:
        OSError: the process has ended.
    """
    with ProcessEntry(pid) as process:
        return int(process.status()["PPid"])
