"""What a command and everything that it started use, according to /proc.

A command may try to hide: its first thread may end before the others, after which /proc shows
nothing under the number of the process; a thread may have its own open files; and a process that is
not dumpable cannot be inspected by its user. The use of all of these is counted.
"""

# Part of the supervisor program: few imports, and nothing of this package.
# ruff: noqa: PTH110, PTH115, PTH116, PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import os
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# What reading /proc raises: a file is missing, inaccessible, or has another form.
UNREADABLE = (OSError, ValueError, IndexError)
# A command as a whole may have this many times the open files of one process.
_FILES_IN_ALL = 16
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
# Not every kernel has lists of children; without them, use the parents of all processes.
_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
# Compares two threads; on machines with the generic table it has the other number.
_KCMP = 312 if os.uname().machine == "x86_64" else 272
_FILES, _SAME, _LESS, _GREATER = 2, 0, 1, 2
_libc = ctypes.CDLL(None)
# So many entries are read between two looks at whether the guard is to kill its command.
_PIECE = 256
# Adding more processes cannot take these below their limit again.
_ONLY_GROW = {"cpu_seconds", "open_files", "epoll_watches"}
_EVENT_POLL = "anon_inode:[eventpoll]"


class Stopped(Exception):
    """The guard is to kill its command: what that uses no longer matters."""


class Use:
    """What the guard's descendants use, as far as it is limited."""

    def __init__(
        self, limits: dict[str, int], shared_before: int, is_stopped: Callable[[], bool]
    ) -> None:
        self._limits = limits
        self._is_stopped = is_stopped
        self._shared_before = shared_before
        self.threads = self.memory = self.files = self.epoll_watches = 0
        self.cpu_seconds = 0.0
        self._found: list[int] = []
        # The folder in /proc for each process.
        self._places: list[str] = []
        # The sizes of unnamed files by device and inode: several processes may have one open.
        self._nameless: dict[tuple[int, int], int] = {}
        self._tables = 0
        self._is_hidden = False
        # One thread for each table of open files, in the order of the kernel.
        self._known: list[int] = []

    def add_up(self) -> None:
        """Add up all processes, until a limit is certainly exceeded.

        Raises:
            Stopped: the guard is to kill its command now.
        """
        limits = self._limits
        most = limits.get("processes", 0)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_seconds = used.ru_utime + used.ru_stime
        self._found = found = children(os.getpid())[0]
        for pid in found:
            below, threads = children(pid)
            found += below
            self.threads += len(threads)
            if most and self.threads > most:
                return
            self._check_stopped()
            self._add(pid, threads)
            if any(self._is_certain(key) for key in limits):
                return
        if "memory" in limits:
            self.memory += self._tables + self._unmapped()

    def _check_stopped(self) -> None:
        if self._is_stopped():
            raise Stopped

    def _is_certain(self, key: str) -> bool:
        return key in _ONLY_GROW and key in self._limits and self.is_over(key, self._limits[key])

    def _add(self, pid: int, threads: list[str]) -> None:
        limits, place = self._limits, _place(pid, threads)
        self._places.append(place)
        # It may end at any time, and another user's is unreadable. Each kind separately: an
        # unreadable one says nothing about the others.
        if "cpu_seconds" in limits:
            with contextlib.suppress(*UNREADABLE):
                times = read(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split()[11:15]
                self.cpu_seconds += sum(map(int, times)) / _TICKS
        if "memory" in limits:
            with contextlib.suppress(*UNREADABLE):
                self.memory += int(read(f"{place}/statm").split()[1]) * _PAGE
                self._tables += _of_status(place, b"VmPTE")
        if "memory" not in limits and "open_files" not in limits:
            return
        for holder in self._holders(pid, place, threads):
            with contextlib.suppress(*UNREADABLE):
                self.files += os.stat(f"{holder}/fd").st_size
            if self._is_certain("open_files"):
                return
            with contextlib.suppress(*UNREADABLE):
                self._add_open(holder)

    def is_over(self, key: str, limit: int) -> bool:
        if key == "processes":
            return self.threads > limit
        if key == "cpu_seconds":
            return self.cpu_seconds > limit
        if key == "open_files":
            return self.files > _FILES_IN_ALL * limit
        if key == "epoll_watches":
            return self.epoll_watches > limit
        # Shared pages were counted once per process.
        return key == "memory" and self.memory > limit and self._memory_shared_out() > limit

    def _memory_shared_out(self) -> int:
        """Add up the memory of each process, with shared pages divided among them.

        A mapped file that is stored in memory counts once, as that file.
        """
        total = shared_ = 0
        for place in self._places:
            self._check_stopped()
            with contextlib.suppress(*UNREADABLE):
                try:
                    rollup = read(f"{place}/smaps_rollup")
                    total += int(rollup.partition(b"\nPss:")[2].split()[0]) * 1024
                    shared_ += int(rollup.partition(b"\nPss_Shmem:")[2].split()[0]) * 1024
                except OSError:
                    mapped = _of_status(place, b"RssShmem")
                    total += _of_status(place, b"RssAnon") + mapped
                    shared_ += mapped
        return total + self._tables + max(0, self._unmapped() - shared_)

    def _unmapped(self) -> int:
        """Add memory that may not be mapped by any process: files that are stored in it."""
        seen = self._devices() + sum(self._nameless.values())
        return max(seen, shared() - self._shared_before) if self._is_hidden else seen

    def _add_open(self, holder: str) -> None:
        """Add what open files use: unnamed files in memory, and registrations with epoll."""
        try:
            names = os.listdir(f"{holder}/fd")
        except PermissionError:
            self._is_hidden = True
            return
        for number, name in enumerate(names):
            if number % _PIECE == 0:
                self._check_stopped()
            with contextlib.suppress(OSError):
                path = f"{holder}/fd/{name}"
                target = os.readlink(path)
                if target.startswith("/memfd:"):
                    about = os.stat(path)
                    self._nameless[about.st_dev, about.st_ino] = about.st_blocks * 512
                elif target == _EVENT_POLL and "epoll_watches" in self._limits:
                    self._add_watches(f"{holder}/fdinfo/{name}")
                    if self._is_certain("epoll_watches"):
                        return

    def _add_watches(self, path: str) -> None:
        with open(path, "rb", 0) as file:
            while piece := file.read(_PIECE * 1024):
                self._check_stopped()
                # One line for each; the kernel returns whole lines.
                self.epoll_watches += piece.count(b"tfd:")
                if self._is_certain("epoll_watches"):
                    return

    def _holders(self, pid: int, place: str, threads: list[str]) -> list[str]:
        """Return the folders of a process's open files that are not yet counted.

        There is one for each table of open files; processes and threads may share one.
        """
        numbers = [int(place.rpartition("/")[2]), *(map(int, threads) if len(threads) > 1 else ())]
        found = []
        for position, thread in enumerate(numbers):
            is_new = self._is_new_table(thread)
            # One that cannot be compared counts once for its process.
            if is_new or (is_new is None and position == 0):
                found.append(place if position == 0 else f"/proc/{pid}/task/{thread}")
        return found

    def _is_new_table(self, thread: int) -> bool | None:
        """Remember the table of a thread; return whether it is new, `None` if that is unknown."""
        known = self._known
        low, high = 0, len(known)
        while low < high:
            middle = (low + high) // 2
            order = _libc.syscall(_KCMP, thread, known[middle], _FILES, 0, 0)
            if order not in (_LESS, _GREATER):
                return False if order == _SAME else None
            low, high = (low, middle) if order == _LESS else (middle + 1, high)
        known.insert(low, thread)
        return True

    def _devices(self) -> int:
        """Return the size of the files in a sandbox's /dev: memory that no process maps."""
        with contextlib.suppress(OSError, IndexError):
            folder = f"/proc/{self._found[1]}/root/dev"
            if os.stat(folder).st_dev != os.stat("/dev").st_dev:
                disk = os.statvfs(folder)
                return (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        return 0


def shared() -> int:
    """Return the bytes of shared memory and of files in memory of the whole machine."""
    with contextlib.suppress(*UNREADABLE):
        return int(read("/proc/meminfo").partition(b"\nShmem:")[2].split(None, 1)[0]) * 1024
    return 0


def _of_status(place: str, key: bytes) -> int:
    """Return a size from the status of a process; page tables grow with sparse memory."""
    return int(read(f"{place}/status").partition(b"\n" + key + b":")[2].split()[0]) * 1024


def _place(pid: int, threads: list[str]) -> str:
    """Return where to read about a process: if its first thread has ended, under another one."""
    for place in (f"/proc/{pid}", *(f"/proc/{pid}/task/{thread}" for thread in threads)):
        with contextlib.suppress(OSError):
            if len(threads) < 2 or not read(f"{place}/statm").startswith(b"0 "):
                return place
    return f"/proc/{pid}"


# -- processes


def descendants() -> list[int]:
    """Return every process below this one."""
    found = children(os.getpid())[0]
    for pid in found:
        found += children(pid)[0]
    return found


def children(pid: int) -> tuple[list[int], list[str]]:
    """Return the children of a process and its threads; nothing if it has ended."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found, []
    if not _LISTS_CHILDREN:
        return [child for child, parent in _parents() if parent == pid], threads
    for thread in threads:
        with contextlib.suppress(OSError):
            found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    return found, threads


def _parents() -> list[tuple[int, int]]:
    """Return every process and its parent."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = read(f"/proc/{name}/stat")
                # The name of a program may contain anything, so count from the end.
                found.append((int(name), int(stat.rsplit(b")", 1)[1].split()[1])))
    return found


def read(path: str) -> bytes:
    with open(path, "rb", 0) as file:
        return file.read()
